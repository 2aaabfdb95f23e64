"""Token-in, token-out: raw turns to training streams, and the independent check of what was made of them.

Pure functions on numpy arrays. `assemble` and `audit` share no code: what one gets wrong, the other sees.
"""

from t1.tito.assembler import assemble, truncate
from t1.tito.auditor import AuditReport, audit

__all__ = ["AuditReport", "assemble", "audit", "truncate"]
