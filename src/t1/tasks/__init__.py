"""Tasks: Harbor's task directory, suites, the generator of `shell-basics`, and checks that run a task."""

from t1.tasks.check import TaskReport, check_task
from t1.tasks.harbor import read_document, read_task, task_digest, write_task
from t1.tasks.suites import Suite, read_suite

__all__ = [
    "Suite",
    "TaskReport",
    "check_task",
    "read_document",
    "read_suite",
    "read_task",
    "task_digest",
    "write_task",
]
