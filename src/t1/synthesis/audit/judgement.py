"""What the observations mean: rejects with a place and a reason. Boundary: pure; nothing is run here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from t1.synthesis.audit.databases import is_database, rows_of
from t1.synthesis.audit.leakage import decoded
from t1.synthesis.audit.probes import Observations
from t1.synthesis.audit.report import Kind, Reject
from t1.synthesis.audit.sources import Source, Sources, is_code

MIN_ANSWER = 6
"""Characters from which an answer that lies in the image is no coincidence."""
_ANSWER_NAME = re.compile(
    r"expect|answer|solution|result|ref(erence)?\b|want|\bbak\b|done|fixed|golden|oracle|truth|\bold\b|final|example"
)


def judge(sources: Sources, seen: Observations) -> list[Reject]:
    """All rejects that the observations support."""
    if seen.solved.error or not seen.is_solved:
        return [*_weak_untouched(sources, seen), *_unsolved(sources, seen)]
    return [
        *_weak_untouched(sources, seen),
        *_weak(sources, seen),
        *_paid(sources, seen),
        *_shortcuts(sources, seen),
        *_leaks(sources, seen),
    ]


def _unsolved(sources: Sources, seen: Observations) -> Iterator[Reject]:
    file = sources.solution[-1].path if sources.solution else "solution/solve.sh"
    missed = ", ".join(sorted(seen.solved.missed)[:3])
    reason = seen.solved.error or seen.solution_error or f"the solution does not pass {missed}"
    yield Reject(Kind.UNSOLVABLE, "tests/test.sh" if seen.solved.error else file, 1, reason, True)


def _weak_untouched(sources: Sources, seen: Observations) -> Iterator[Reject]:
    """Doing nothing solves it."""
    run = seen.untouched
    if run.passed and not run.missed and not run.error:
        source = sources.verifier
        yield Reject(Kind.WEAK_VERIFIER, source.path, 1, "passes before anything was done", True)
    elif run.assertions and not run.passed and all(a.status == "skipped" for a in seen.solved.assertions):
        yield Reject(Kind.WEAK_VERIFIER, sources.verifier.path, 1, "skips every test", True)


def _weak(sources: Sources, seen: Observations) -> Iterator[Reject]:
    """Wrong outputs pass."""
    reported = set()
    for trial in seen.trials:
        if trial.survived and trial.is_gross and trial.path not in reported:
            reported.add(trial.path)
            file, line = place_of(sources.tests, trial.path)
            reason = f"passes with {trial.mutant} in {trial.path}: assert what is in it"
            yield Reject(Kind.WEAK_VERIFIER, file, line, reason, True)


def _paid(sources: Sources, seen: Observations) -> Iterator[Reject]:
    """An attack of the red team earns everything."""
    for tried in seen.attacks:
        if tried.solved and tried.reward > 0:
            reason = f"the red team's {tried.name} earns the full reward: assert what only the work brings about"
            yield Reject(Kind.WEAK_VERIFIER, sources.verifier.path, 1, reason, True)
            return


def place_of(files: tuple[Source, ...], path: str) -> tuple[str, int]:
    """Where a file name is first spoken of."""
    name = path.rpartition("/")[2]
    for source in files:
        if name in source.text and "ctrf.json" not in source.text[:400]:
            return source.path, source.line_of(name)
    return (files[0].path, 1) if files else ("tests/test.sh", 1)


def _shortcuts(sources: Sources, seen: Observations) -> Iterator[Reject]:
    """Outputs that do not depend on the inputs and that the solution has word for word."""
    for path in constant_answers(sources, seen):
        file, line = place_of(sources.solution, path)
        reason = f"{path} stays the same when {seen.num_changed} inputs change: the answer stands in the solution"
        yield Reject(Kind.SOLUTION_SHORTCUT, file, line, reason, True)


def constant_answers(sources: Sources, seen: Observations) -> list[str]:
    """Paths of outputs whose text the solution has, whatever the inputs, and that the instruction did not dictate."""
    if not any(sources.names(path) for path in seen.inputs):
        return []
    solution = "\n".join([sources.solution_text, *decoded(sources.solution_text)])
    found = []
    for path in sorted(seen.constant):
        content = seen.outputs[path]
        text = rows_of(content) if is_database(content) else content.decode("utf-8", "replace")
        if is_code(path, text) or not text.strip():
            continue
        tokens = set(re.findall(r"[^\W_]+", text))
        told = set(re.findall(r"[^\W_]+", sources.instruction))
        untold = tokens - told
        written = [token for token in tokens if re.search(_alone(token), solution)]
        if untold and len(written) >= 0.8 * len(tokens):
            found.append(path)
    return found


def _alone(token: str) -> str:
    """A pattern for a token that no letter or digit goes on from, but for the n of a written-out newline."""
    return rf"(?<![^\W_]){re.escape(token)}(?![^\W_])|\\n{re.escape(token)}"


def _leaks(sources: Sources, seen: Observations) -> Iterator[Reject]:
    """Outputs that the image has already, under another name, or in its variables."""
    for path, content in seen.outputs.items():
        answer = content.decode("utf-8", "replace").strip()
        if not answer or path.startswith("/tmp/"):
            continue
        if found := _lying_about(sources, seen, path, answer):
            name = found.rpartition("/")[2]
            line = sources.dockerfile.line_of(name) if name in sources.dockerfile.text else 1
            reason = f"{found} has what {path} should hold: leave it out of the image"
            file = next((s.path for s in sources.environment if s.name == name), sources.dockerfile.path)
            yield Reject(Kind.TEST_LEAKAGE, file, line, reason, True)
        elif line := _in_dockerfile(sources, answer):
            reason = f"what {path} should hold stands in the image's history"
            yield Reject(Kind.TEST_LEAKAGE, sources.dockerfile.path, line, reason, True)


def _lying_about(sources: Sources, seen: Observations, path: str, answer: str) -> str:
    """The file of the image that holds an answer, where the instruction does not lead to it."""
    for other, content in seen.inputs.items():
        # A twin of the output under the same name is not what the instruction means by that name.
        shown = other.rpartition("/")[0] if other.rpartition("/")[2] == path.rpartition("/")[2] else other
        if other == path or (sources.leads_to(shown) and not _is_tucked_away(other, sources.instruction)):
            continue
        text = content.decode("utf-8", "replace")
        for candidate in (text, *decoded(text)):
            same = (candidate.strip() == answer or _says_the_same(candidate, answer)) and (
                len(answer) >= MIN_ANSWER or _ANSWER_NAME.search(other.lower())
            )
            inside = len(answer) >= 24 and "\n" in answer and answer in candidate
            if same or inside:
                return other
    return ""


def _is_tucked_away(path: str, instruction: str) -> bool:
    """Whether a hidden file or directory, which no word of the instruction is about, holds it."""
    hidden = [part for part in path.split("/") if part.startswith(".")]
    return bool(hidden) and not any(part in instruction for part in hidden)


def _says_the_same(text: str, answer: str) -> bool:
    """Whether two texts are the same JSON, however it is spaced and rounded."""
    if text.lstrip()[:1] not in ("{", "[") or answer[:1] not in ("{", "["):
        return False
    try:
        return bool(json.loads(text, parse_float=_rounded) == json.loads(answer, parse_float=_rounded))
    except ValueError:
        return False


def _rounded(number: str) -> float:
    return round(float(number), 6)


def _in_dockerfile(sources: Sources, answer: str) -> int:
    """The line of the Dockerfile that has an answer, or 0."""
    if len(answer) < MIN_ANSWER or answer in sources.instruction:
        return 0
    for number, line in enumerate(sources.dockerfile.text.splitlines(), 1):
        if answer in line.replace("\\n", "\n"):
            return number
    return 0
