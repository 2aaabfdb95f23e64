"""Test leakage, as far as texts show it: tests, expected values or the solution among what the image is built from.

Boundary: reads texts. Whether an output lies in the built image is for the probes to find.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from t1.synthesis.audit.report import Kind, Reject
from t1.synthesis.audit.shell_syntax import read_script
from t1.synthesis.audit.sources import Source, Sources

MIN_LINE = 12
SHARE = 0.6
"""How much of the solution, or of a test's assertions, another file must hold to be a copy."""
_NOISE = re.compile(
    r"^(#|//|import |from |set -|exit\b|cd |fi$|done$|else|export |def main|if __name__|PY$|END$|EOF$)|^\W*$"
)
_ASSERTION = re.compile(r"\b(assert\w*|check|grep|diff|cmp|test|expect\w*)\b|\[ |==")
_ENCODED = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_COPIED = re.compile(r"^\s*(?:COPY|ADD)\b.*\b(?:tests?/|solution/|solve\.sh|test_outputs)", re.IGNORECASE)


def leaks(sources: Sources) -> list[Reject]:
    """What of tests and solution lies in the environment."""
    found = list(_copied(sources))
    tests = [t for t in sources.tests if not t.binary and t.name not in ("run.py", "conftest.py", "setup.sh")]
    for source in sources.environment:
        if source.path == "environment/Dockerfile" or source.binary or not source.text.strip():
            continue
        for reason, origin in _copies(source, sources, tests):
            line = source.line_of(reason[1])
            found.append(Reject(Kind.TEST_LEAKAGE, source.path, line, f"{reason[0]} {origin}: the agent can read it"))
            break
    return found


def _copied(sources: Sources) -> Iterator[Reject]:
    """Lines of the Dockerfile that take tests or solution into the image."""
    for number, line in enumerate(sources.dockerfile.text.splitlines(), 1):
        if _COPIED.search(line) and not re.search(r"--from=", line) and _inside(sources, line):
            reason = "the image takes in tests or the solution: leave this line out"
            yield Reject(Kind.TEST_LEAKAGE, sources.dockerfile.path, number, reason)


def _inside(sources: Sources, line: str) -> bool:
    """Whether the project's own tests are not meant: the instruction names them where they belong to the task."""
    match = re.search(r"[\w./-]*(?:tests?/|solution/|solve\.sh|test_outputs)", line)
    return match is not None and not re.search(r"\btests?\b", sources.instruction.lower())


def _copies(source: Source, sources: Sources, tests: list[Source]) -> Iterator[tuple[tuple[str, str], str]]:
    """((what it is, a line of it), the file that it is a copy of)."""
    texts = [source.text, *decoded(source.text)]
    for origin in sources.solution:
        wanted = [] if _is_target(source, origin) else _lines(origin.text)
        for text in texts:
            if shared := _shared(wanted, text):
                yield ("holds the solution", shared), origin.path
        if not sources.names(source.path) and not _is_target(source, origin):
            for body in _bodies(origin.text):
                if len(body) > 2 and (shared := _shared(body, source.text, share=0.9)):
                    yield ("holds what the solution writes,", shared), origin.path
    for origin in tests:
        wanted = [line for line in _lines(origin.text) if _ASSERTION.search(line)]
        is_text = not origin.path.endswith((".py", ".sh"))
        if not is_text and len(wanted) > 1 and (shared := _shared(wanted, source.text, share=0.5)):
            yield ("holds assertions of", shared), origin.path
        if is_text and not sources.leads_to(source.path) and _holds(source.text, origin.text):
            yield ("holds the expected values of", ""), origin.path


def _lines(text: str) -> list[str]:
    """Lines that say something."""
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if len(line) >= MIN_LINE and not _NOISE.search(line)]


def _shared(wanted: list[str], text: str, share: float = SHARE) -> str:
    """The first wanted line that `text` has, where it has at least a share of them."""
    there = {line.strip() for line in text.splitlines()}
    common = [line for line in wanted if line in there]
    return common[0] if wanted and len(common) >= share * len(wanted) else ""


def _bodies(text: str) -> list[list[str]]:
    """The lines of every here-document that a solution writes."""
    words = read_script(text).literals if "<<" in text else []
    bodies = [word.text for word in words if word.role == "heredoc"]
    return [[s for line in body.splitlines() if len(s := line.strip()) > 3] for body in bodies]


def _is_target(source: Source, origin: Source) -> bool:
    """Whether the solution writes this very file anew."""
    return re.search(rf">\s*\S*{re.escape(source.name)}(?![\w.])", origin.text) is not None


def _holds(text: str, expected: str) -> bool:
    """Whether a file holds all of what is expected."""
    wanted = expected.strip()
    return len(wanted) >= 4 and (text.strip() == wanted or (len(wanted) >= 24 and wanted in text))


def decoded(text: str) -> Iterator[str]:
    """What stands in a text as base64."""
    for match in list(_ENCODED.finditer(text))[:50]:
        try:
            decoded = base64.b64decode(match[0] + "=" * (-len(match[0]) % 4), validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            continue
        if decoded.isprintable() or "\n" in decoded:
            yield decoded
