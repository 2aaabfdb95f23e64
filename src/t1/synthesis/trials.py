"""One script on one task: run in the agent's place, judged as training judges, and what became of the files.

Boundary: it runs and reports; whether a script should have passed is for the stages to say.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from t1.errors import SandboxUnavailable, VerifierError
from t1.protocols import Sandbox, SandboxProvider, Verifier
from t1.synthesis.variations import PLAIN, Variation
from t1.types import AssertionStatus, TamperLevel, Task
from t1.verification import PristineVerifier, score

MAX_STATE_BYTES = 1 << 20
STATE_S = 20.0
_SYSTEM = "bin boot dev etc lib lib32 lib64 libx32 logs media mnt proc run sbin sys tests usr"
_ROOTS = f'roots=; for d in /*/; do case \' {_SYSTEM} \' in *" ${{d:1:-1}} "*) ;; *) roots+=" $d";; esac; done'
_STATE = f"""{_ROOTS}
skip='-name __pycache__ -prune -o -name .t1-home -prune -o -name .git -prune -printf G%p\\n'
find $roots $skip -o -printf '%y %m %p -> %l\\n' 2>/dev/null
echo ---
find $roots -name .git -prune -o -name __pycache__ -prune -o -name .t1-home -prune \\
  -o -type f -exec sha256sum {{}} + 2>/dev/null"""
"""What the files are, without times: two processes a look, since every trial has one."""
_REPOSITORY = """git --git-dir={0} log --all --format='%T %an %s' 2>&1
git --git-dir={0} for-each-ref --format='%(refname) %(tree)' 2>&1; git --git-dir={0} config -l --local 2>&1
cat {0}/HEAD; git --git-dir={0} ls-files -s 2>&1
"""
"""Git's store, by what it says and not by its bytes."""
MAX_REMEMBERED = 256
"""Trials whose end is kept for the next stage."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a script brought about."""

    exit_code: int | None
    """Of the script; None where it ran out of time."""
    output: str
    """The end of what it printed."""
    passed: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()
    reward: float = 0.0
    """Share of the assertions, as training would score it."""
    tamper: tuple[str, ...] = ()
    """Evidence against it, of the level that costs a policy its reward."""
    error: str = ""
    """Why the verifier gave no verdict; what passed is then empty."""
    state: str = ""
    """Digest of the files before the verifier ran, where it was asked for."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Regular file → sha256."""

    @property
    def solved(self) -> bool:
        """Every assertion passed, and there was one."""
        return bool(self.passed) and not self.missed and not self.error


class Ground:
    """Where trials take place."""

    def __init__(self, provider: SandboxProvider, verifier: Verifier | None = None) -> None:
        self._provider = provider
        self._verifier = verifier or PristineVerifier(provider)
        self._remembered: dict[tuple[str, str], Trial] = {}

    async def trial(
        self,
        task: Task,
        script: str,
        variation: Variation = PLAIN,
        *,
        look: bool = False,
        known: Mapping[str, Trial] = MappingProxyType({}),
    ) -> Trial:
        """Run `script` in a fresh sandbox of the task and verify what it left; `look`: report its files, too.

        `known`: trials by their state. The verifier sees nothing but files, so the same files have the same verdict.
        Raises SandboxError where there was no sandbox, TaskError where the environment cannot be built.
        """
        if variation.env:
            spec = replace(task.verifier, env={**task.verifier.env, **variation.env})
            task = replace(task, verifier=spec)
        sandbox = await self._provider.open(task)
        try:
            ended = await sandbox.run(variation.wrap(script), timeout_s=task.limits.agent_timeout_s)
            state, files = await _state(sandbox) if look else ("", {})
            trial = Trial(ended.exit_code, ended.output.strip()[-300:], state=state, files=files)
            if state and (same := known.get(state)) is not None:
                return replace(same, exit_code=trial.exit_code, output=trial.output)
            return await self._judge(task, sandbox, trial)
        finally:
            await sandbox.close()

    async def looked(self, task: Task, script: str) -> Trial:
        """A trial with a look at its files, remembered for the stages that come after."""
        key = (task.digest, script)
        if key not in self._remembered:
            while len(self._remembered) >= MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[key] = await self.trial(task, script, look=True)
        return self._remembered[key]

    async def _judge(self, task: Task, sandbox: Sandbox, trial: Trial) -> Trial:
        """The verdict, in the trial's terms."""
        try:
            verdict = await self._verifier.verify(task, sandbox)
        except SandboxUnavailable:
            raise
        except VerifierError as error:
            return replace(trial, error=str(error))
        found = verdict.assertions
        if found is None:
            names = frozenset({"reward"})
            passed, missed = (names, frozenset[str]()) if verdict.solved else (frozenset[str](), names)
        else:
            passed = frozenset(a.name for a in found if a.status is AssertionStatus.PASSED)
            missed = frozenset(a.name for a in found) - passed
        tamper = tuple(f"{e.rule}: {e.path}" for e in verdict.tamper if e.level is TamperLevel.TAMPERING)
        reward = score(verdict, normalizer=float(len(found or ()) or 1), kind="dense")[0]
        return replace(trial, passed=passed, missed=missed, reward=reward, tamper=tamper)

    async def probe(self, task: Task, command: str) -> tuple[int | None, str]:
        """Exit code and output of a command in a fresh sandbox, without a verdict."""
        sandbox = await self._provider.open(task)
        try:
            ended = await sandbox.run(command, timeout_s=STATE_S)
            return ended.exit_code, ended.output.strip()
        finally:
            await sandbox.close()


async def _state(sandbox: Sandbox) -> tuple[str, dict[str, str]]:
    """Digest of all files, and the digest of each regular one; ("", {}) where it could not be seen whole."""
    ended = await sandbox.run(f"({_STATE})", timeout_s=STATE_S, max_output_bytes=MAX_STATE_BYTES)
    entries, separator, sums = ended.output.partition("\n---\n")
    if not separator or ended.cut_bytes or ended.timed_out:
        return "", {}
    repositories = sorted(line[1:] for line in entries.splitlines() if line.startswith("G/"))
    said = ""
    if repositories:
        looks = "".join(_REPOSITORY.format(shlex.quote(path)) for path in repositories)
        said = (await sandbox.run(f"({looks})", timeout_s=STATE_S, max_output_bytes=MAX_STATE_BYTES)).output
    matches = [re.fullmatch(r"([0-9a-f]{64})  (/.+)", line) for line in sums.splitlines()]
    whole = "\n".join([*sorted(entries.splitlines()), "---", *sorted(sums.splitlines()), "---", said])
    return hashlib.sha256(whole.encode()).hexdigest(), {m[2]: m[1] for m in matches if m is not None}
