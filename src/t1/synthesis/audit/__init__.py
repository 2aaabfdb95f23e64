"""The audit of tasks: what must not be trained on, found by reading and by running, and a score with its evidence."""

from t1.synthesis.audit.audit import audit_directory, audit_task, audit_texts, task_directories
from t1.synthesis.audit.judge import Judge
from t1.synthesis.audit.report import AuditReport, Criterion, Kind, Opinion, Part, Reject

__all__ = [
    "AuditReport",
    "Criterion",
    "Judge",
    "Kind",
    "Opinion",
    "Part",
    "Reject",
    "audit_directory",
    "audit_task",
    "audit_texts",
    "task_directories",
]
