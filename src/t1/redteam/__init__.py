"""Scripted attacks on the verification, and odd but honest solutions, on real tasks in real sandboxes."""

from t1.redteam.arbitrary import aimed_exploits, arbitrary_exploits, volley, volley_members
from t1.redteam.exploits import EXPLOITS, Exploit
from t1.redteam.honest import HONEST, Honest
from t1.redteam.suite import Row, run_suite, summary

__all__ = [
    "EXPLOITS",
    "HONEST",
    "Exploit",
    "Honest",
    "Row",
    "aimed_exploits",
    "arbitrary_exploits",
    "run_suite",
    "summary",
    "volley",
    "volley_members",
]
