"""Which of a verifier's files count, and what they say together.

Per-assertion reports, first format that is there and readable: CTRF, pytest's JSON, JUnit, TAP; several files of it are
merged. Then reward.txt, then reward.json. Boundary: reads the verifier's place through a Sandbox that runs nothing any
more; judging the outcome is the verifier's part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from t1.errors import SandboxError, SandboxVanished
from t1.protocols import Sandbox
from t1.types import AssertionResult
from t1.verification.formats.assertions import MAX_ASSERTIONS, distinct
from t1.verification.formats.ctrf import parse_ctrf
from t1.verification.formats.junit import parse_junit
from t1.verification.formats.pytest_json import parse_pytest_json
from t1.verification.formats.reward_file import parse_reward
from t1.verification.formats.tap import parse_tap

__all__ = ["LOGS", "Assertions", "parse_ctrf", "parse_reward", "read_assertions", "read_reward"]

LOGS = "/logs/verifier"
MAX_REPORT_BYTES = 8 << 20
MAX_REWARD_BYTES = 64 << 10
MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of per-assertion report."""

    name: str
    files: re.Pattern[str]
    usual: str
    """The name that is tried where the directory cannot be listed."""
    parse: Callable[[bytes], tuple[AssertionResult, ...]]


FORMATS = (
    Format("CTRF", re.compile(r"ctrf.*\.json|.*[._-]ctrf\.json"), "ctrf.json", parse_ctrf),
    Format("pytest JSON", re.compile(r"\.?(pytest|report).*\.json"), "report.json", parse_pytest_json),
    Format("JUnit", re.compile(r".*\.xml"), "junit.xml", parse_junit),
    Format("TAP", re.compile(r".*\.tap"), "results.tap", parse_tap),
)
"""In order of precedence."""


@dataclass(frozen=True, slots=True)
class Assertions:
    """What the reports say: results, or why there are none."""

    results: tuple[AssertionResult, ...] | None
    error: str = ""
    unreadable: bool = False
    """True where a report is there, and is none."""


async def read_assertions(sandbox: Sandbox, names: Sequence[str] | None) -> Assertions:
    """The assertions of the first readable format among the files `names` of the verifier's place (None = unknown)."""
    complaints = []
    for kind in FORMATS:
        files = [kind.usual] if names is None else sorted(name for name in names if kind.files.fullmatch(name))
        try:
            results = await _merged(sandbox, kind, files)
        except ValueError as error:
            complaints.append(str(error))
            continue
        if results is not None:
            return Assertions(results)
    return Assertions(None, "; ".join(complaints) or "the verifier wrote no ctrf.json", bool(complaints))


async def _merged(sandbox: Sandbox, kind: Format, files: Sequence[str]) -> tuple[AssertionResult, ...] | None:
    """All files of one format as one report; None where there is none. ValueError names the file that is unreadable."""
    if len(files) > MAX_FILES:
        raise ValueError(f"{len(files)} {kind.name} reports, more than {MAX_FILES}")
    read = []
    for file in files:
        try:
            report = await sandbox.read(f"{LOGS}/{file}", max_bytes=MAX_REPORT_BYTES)
            if report is not None:
                read.append((file, kind.parse(report)))
        except SandboxVanished:
            raise
        except (SandboxError, ValueError) as error:
            raise ValueError(f"{file}: {error}") from error
    if len(read) < 2:
        return read[0][1] if read else None
    if sum(len(results) for _, results in read) > MAX_ASSERTIONS:
        raise ValueError(f"more than {MAX_ASSERTIONS} tests in {len(read)} {kind.name} reports")
    merged = [(f"{file}: {result.name}", result) for file, results in read for result in results]
    names = distinct(name for name, _ in merged)
    return tuple(
        AssertionResult(name, result.status, result.message) for name, (_, result) in zip(names, merged, strict=True)
    )


async def read_reward(sandbox: Sandbox) -> float | None:
    """The number in reward.txt, else in reward.json; None where there is neither. ValueError names the file."""
    for name in ("reward.txt", "reward.json"):
        try:
            text = await sandbox.read(f"{LOGS}/{name}", max_bytes=MAX_REWARD_BYTES)
            if text is not None:
                return parse_reward(text, is_json=name.endswith(".json"))
        except SandboxVanished:
            raise
        except (SandboxError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from error
    return None
