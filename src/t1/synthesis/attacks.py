"""Attacks of the red team on one task, each in the agent's place and judged as training judges.

Boundary: it runs and reports; whether a task may pay an attacker anything is for the stages and the audit to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from t1.redteam import Exploit, aimed_exploits, arbitrary_exploits, volley, volley_members
from t1.synthesis.trials import Ground
from t1.types import Task


class Attacks(StrEnum):
    """How much of the bank is tried."""

    NONE = "none"
    VOLLEY = "volley"
    """Those that leave files, all in one sandbox, and one by one only where that earned something."""
    EACH = "each"
    """Every one in a sandbox of its own."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """What one attack brought its author."""

    name: str
    reward: float
    """Share of the assertions, after evidence of tampering has cost what it costs."""
    solved: bool = False
    passed: frozenset[str] = frozenset()
    tamper: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    """Of a volley: the attacks in it."""


async def attack(
    task: Task, ground: Ground, attacks: Attacks, *, outputs: Sequence[str], expected: Mapping[str, str] | None = None
) -> list[Attacked]:
    """What the bank, and attacks aimed at these outputs, earn. `expected`: output → the file below tests/ it equals."""
    if attacks is Attacks.NONE:
        return []
    done = []
    for exploit in aimed_exploits(outputs, task.instruction, expected):
        done.append(await _one(task, ground, exploit))
    if attacks is Attacks.EACH:
        return done + [await _one(task, ground, exploit) for exploit in arbitrary_exploits()]
    members = volley_members()
    together = await _one(task, ground, volley(members), members)
    if together.reward > 0:
        done += [await _one(task, ground, exploit) for exploit in members]
    return [*done, together]


async def _one(task: Task, ground: Ground, exploit: Exploit, members: Sequence[Exploit] = ()) -> Attacked:
    trial = await ground.trial(task, exploit.script)
    names = tuple(member.name for member in members)
    return Attacked(exploit.name, trial.reward, trial.solved, trial.passed, trial.tamper, names)


def expected_files(tests: Mapping[str, str | bytes], outputs: Mapping[str, str]) -> dict[str, str]:
    """Output → the file of tests/ with the same bytes, from the outputs' sha256."""
    digests = {_sha256(content): name for name, content in sorted(tests.items(), reverse=True)}
    return {path: digests[digest] for path, digest in outputs.items() if digest in digests}


def _sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
