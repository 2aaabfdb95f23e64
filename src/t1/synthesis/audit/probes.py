"""The probes that run: nothing done, the solution, wrong outputs, changed inputs.

One sandbox in which the verifier judges the untouched environment, the solved one and mutants of it, one in which the
inputs are other ones before the solution runs, and one for each attack of the red team. Boundary: what was seen, as
`Observations`; what it means is `judgement.py`'s business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from t1.protocols import SandboxProvider
from t1.synthesis.attacks import Attacked, Attacks, attack, expected_files
from t1.synthesis.audit.box import Box, Entry, places_of
from t1.synthesis.audit.mutations import mutants, turn
from t1.synthesis.audit.sources import Sources, is_code
from t1.synthesis.trials import Ground
from t1.tasks.check import VerifierRun
from t1.types import FileChanges, Task

MAX_MUTATED = 3
"""Outputs whose mutants are tried."""
MAX_INPUTS = 60


@dataclass(frozen=True, slots=True)
class Trial:
    """One mutant and whether the verifier took it."""

    path: str
    mutant: str
    is_gross: bool
    survived: bool


@dataclass(frozen=True, slots=True)
class Observations:
    """What running a task showed."""

    untouched: VerifierRun
    solved: VerifierRun
    again: VerifierRun
    solution_error: str = ""
    initial: Mapping[str, Entry] = field(default_factory=dict)
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    """Path → bytes of the small files that the image has and that are no programs."""
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    """Path → bytes of what the solution made or changed."""
    trials: tuple[Trial, ...] = ()
    constant: frozenset[str] = frozenset()
    """New outputs that came out the same after every input was changed."""
    num_changed: int = 0
    """Inputs that were changed for that."""
    attacks: tuple[Attacked, ...] = ()
    """What the red team earned."""

    @property
    def is_solved(self) -> bool:
        """Whether the solution passes everything."""
        return bool(self.solved.passed) and not self.solved.missed and not self.solved.error


async def observe(sources: Sources, provider: SandboxProvider, attacks: Attacks = Attacks.VOLLEY) -> Observations:
    """Run all probes. Raises SandboxError where no sandbox can be had."""
    seen = await _watched(sources, provider)
    if not seen.is_solved:
        return seen
    outputs = [path for path in seen.outputs if sources.names(path)]
    tried = await attack(sources.task, Ground(provider), attacks, outputs=outputs, expected=_aims(sources, seen))
    return replace(seen, attacks=tuple(tried))


def _aims(sources: Sources, seen: Observations) -> dict[str, str]:
    """Output → the file below tests/ with the same bytes."""
    tests = {source.path.removeprefix("tests/"): source.text for source in sources.tests if not source.binary}
    return expected_files(tests, {path: hashlib.sha256(content).hexdigest() for path, content in seen.outputs.items()})


async def _watched(sources: Sources, provider: SandboxProvider) -> Observations:
    """All but the attacks."""
    task = sources.task
    places = places_of(task, [sources.instruction, sources.solution_text])
    agent = await provider.open(task)
    try:
        changes = await agent.stop()
        seen = await _first(task, provider, changes, places, sources)
        if not seen.is_solved or not seen.outputs:
            return seen
        return await _with_other_inputs(task, provider, changes, places, seen)
    finally:
        await agent.close()


async def _first(
    task: Task, provider: SandboxProvider, changes: FileChanges, places: tuple[str, ...], sources: Sources
) -> Observations:
    """Nothing done, solved, twice, and mutants."""
    sandbox = await provider.open_pristine(task, changes)
    try:
        box = Box(task, sandbox, places)
        untouched = await box.verify()
        initial = await box.listing()
        inputs = await box.contents([path for path in initial if not is_code(path)][:MAX_INPUTS])
        error = await box.solve() if sources.solution else "there is no solution"
        left = await box.listing()
        outputs = await box.contents(
            [path for path, entry in left.items() if _is_new(path, entry, initial)][:MAX_INPUTS]
        )
        solved = await box.verify()
        again = await box.verify()
        seen = Observations(untouched, solved, again, error, initial, inputs, outputs)
        if not seen.is_solved:
            return seen
        return replace(seen, trials=tuple(await _mutate(box, seen, sources)))
    finally:
        await sandbox.close()


def _is_new(path: str, entry: Entry, initial: Mapping[str, Entry]) -> bool:
    before = initial.get(path)
    return (before is None or before.digest != entry.digest) and "/.git/" not in path and "__pycache__" not in path


async def _mutate(box: Box, seen: Observations, sources: Sources) -> list[Trial]:
    """Try wrong versions of each output that the instruction names, or of the only one."""
    trials = []
    left = [path for path in seen.outputs if not path.startswith("/tmp/")]
    committed = await box.committed(left) if left else frozenset[str]()
    only = [path for path in left if path not in committed]
    some = [path for path in only if sources.names(path)]
    for path in (some or (only if len(only) == 1 else []))[:MAX_MUTATED]:
        content = seen.outputs[path]
        if not content.strip():
            continue
        for mutant in mutants(path, content, sources.instruction):
            await box.change({path: mutant.content})
            survived = not (run := await box.verify()).missed and bool(run.passed) and not run.error
            trials.append(Trial(path, mutant.name, mutant.is_gross, survived))
        await box.change({path: content})
    return trials


async def _with_other_inputs(
    task: Task, provider: SandboxProvider, changes: FileChanges, places: tuple[str, ...], seen: Observations
) -> Observations:
    """Metamorphic: change every input, solve again, and see which outputs are the same."""
    inputs = {path: other(content) for path, content in seen.inputs.items()}
    inputs = {path: content for path, content in inputs.items() if content != seen.inputs[path]}
    made = [path for path in seen.outputs if path not in seen.initial and not path.startswith("/tmp/")]
    if not inputs or not made:
        return seen
    sandbox = await provider.open_pristine(task, changes)
    try:
        box = Box(task, sandbox, places)
        await box.change(inputs)
        await box.solve()
        after = await box.contents(made)
    finally:
        await sandbox.close()
    constant = frozenset(path for path in made if after.get(path) == seen.outputs[path])
    return replace(seen, constant=constant, num_changed=len(inputs))


def other(content: bytes) -> bytes:
    """Other contents of an input: every letter and digit another one, the second half of the lines gone."""
    if b"\0" in content:
        return content[: len(content) // 2]
    lines = content.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    kept = lines[: max(1, (len(lines) + 1) // 2)]
    return turn("".join(kept)).encode("utf-8", "surrogateescape")
