"""How fast trials are without a model: open, four commands, verify in a fresh sandbox, close. And what they leave.

    python bench/bench_sandbox.py [--trials 1000]

The last line is one JSON object of medians: trial_ms (alone), open_ms, command_ms, pristine_overhead_ms (verification
beyond the test script's own time), trials_per_s_16 (16 at once), podman_trial_ms (the same trial in containers; null
without an engine and its base image, see `make test-containers`), and leaked: the processes, mounts, control groups,
temporary directories and descriptors that --trials trials in a row left.

How much of that is the machine's own: bare_open_ms and bare_command_ms are the same shell and commands with nothing
around them, bubblewrap_trial_ms and bubblewrap_trials_per_s_16 the trial's programs in two runs of bubblewrap by itself
(all commands in one shell, the test script in another; no control group, filter, quota, search or report).
over_bubblewrap is trial_ms over bubblewrap_trial_ms, measured in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from t1.protocols import SandboxProvider
from t1.sandboxes import ContainerProvider, NamespaceProvider, cgroups
from t1.sandboxes.containers.engine import ContainerEngine
from t1.sandboxes.containers.images import REPOSITORY, context_digest
from t1.sandboxes.dockerfile import DEFAULT_ENV, read_image
from t1.sandboxes.leases import PREFIX, default_root
from t1.sandboxes.namespaces import mount_table
from t1.sandboxes.namespaces.confinement import Confinement, Mounts, command_line, make_etc, probe, uids
from t1.sandboxes.namespaces.nursery import Nursery
from t1.sandboxes.namespaces.quota import Quota
from t1.sandboxes.namespaces.shell import ProcessLimits, Shell
from t1.sandboxes.output import BoundedOutput
from t1.sandboxes.places import make_places
from t1.testing.containers import BASE_IMAGE, engine_with_image
from t1.types import Environment, Limits, Task, VerifierSpec
from t1.verification import PristineVerifier

COMMANDS = (
    "cat /app/names.txt",
    "sort /app/names.txt > /app/sorted.txt",
    "mkdir -p /app/out && cp /app/sorted.txt /app/out/result.txt",
    "cd /app/out && wc -l < result.txt",
)
TEST = r"""set -u
check() { if eval "$2"; then status=passed; else status=failed; fi
  tests="${tests:+$tests,}{\"name\":\"$1\",\"status\":\"$status\",\"duration\":0}"; }
check "sorted" '[ "$(head -n 1 /app/sorted.txt)" = alice ]'
check "copied" '[ -f /app/out/result.txt ]'
check "complete" '[ "$(wc -l < /app/out/result.txt)" = 3 ]'
printf '{"results":{"tool":{"name":"shell"},"tests":[%s]}}' "$tests" > /logs/verifier/ctrf.json
"""


def make_task(path: Path) -> Task:
    """A small task with a shell verifier."""
    (path / "environment").mkdir()
    (path / "tests").mkdir()
    (path / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\nCOPY names.txt /app/\n")
    (path / "environment" / "names.txt").write_text("carol\nalice\nbob\n")
    (path / "tests" / "test.sh").write_text(TEST)
    environment, verifier = Environment(path / "environment"), VerifierSpec(path / "tests")
    return Task("bench", "0" * 64, "Sort the names.", environment, verifier, Limits(), path)


async def trial(task: Task, provider: SandboxProvider, verifier: PristineVerifier) -> dict[str, float]:
    """One trial; milliseconds by part."""
    started = time.perf_counter()
    sandbox = await provider.open(task)
    opened = time.perf_counter()
    for command in COMMANDS:
        await sandbox.run(command, timeout_s=10)
    commanded = time.perf_counter()
    verdict = await verifier.verify(task, sandbox)
    verified = time.perf_counter()
    await sandbox.close()
    assert verdict.solved, verdict
    ended = time.perf_counter()
    return {
        "trial": 1e3 * (ended - started),
        "open": 1e3 * (opened - started),
        "verify": 1e3 * (verified - commanded),
        "command": 1e3 * (commanded - opened) / len(COMMANDS),
    }


async def together(task: Task, provider: SandboxProvider, verifier: PristineVerifier, num: int, width: int) -> float:
    """Trials per second with `width` at once."""
    gate = asyncio.Semaphore(width)

    async def one() -> None:
        async with gate:
            await trial(task, provider, verifier)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(num)))
    return num / (time.perf_counter() - started)


class PlainBubblewrap:
    """The trial's programs in two runs of bubblewrap: what is left when all of T1 is taken away."""

    def __init__(self, task: Task, folder: Path) -> None:
        found = probe().confinement
        assert found is not None
        self._way, self._task, self._folder = found, task, folder
        self._owned = found is not Confinement.USER
        self._thread = self._threads(1)
        folder.mkdir()
        for entered in (folder, folder.parent):
            entered.chmod(0o755)
        self._etc, self._uids, self._numbers = make_etc(folder / "etc"), uids(), itertools.count()
        self._tests = Path(shutil.copytree(task.verifier.path, folder / "tests"))

    @staticmethod
    def _threads(num: int) -> ThreadPoolExecutor:
        """Threads that start bubblewrap with as few mounts to read as T1's own."""
        return ThreadPoolExecutor(num, initializer=mount_table.shorten)

    def alone(self) -> float:
        """Milliseconds of one trial."""
        return self._thread.submit(self._trial).result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _trial(self) -> float:
        """Milliseconds of the two runs alone; their directories are made before and removed after that."""
        uid = next(self._uids) if self._owned else os.geteuid()
        directory = self._folder / str(next(self._numbers))
        places = make_places(directory, read_image(self._task.environment), uid if self._owned else None)
        agent = self._words(uid, Mounts(self._etc, places, {}), "cd /app; " + "; ".join(COMMANDS))
        verifier = self._words(uid, Mounts(self._etc, places, {"/tests": self._tests}), "bash /tests/test.sh")
        started = time.perf_counter()
        for words in (agent, verifier):
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={}, timeout=60)
        ended = time.perf_counter()
        assert (directory / "logs" / "verifier" / "ctrf.json").is_file()
        shutil.rmtree(directory)
        return 1e3 * (ended - started)

    def _words(self, uid: int, mounts: Mounts, script: str) -> list[str]:
        program = ("/bin/bash", "--norc", "--noprofile", "-c", script)
        return command_line(self._way, uid, mounts, DEFAULT_ENV, program, None)

    def together(self, num: int, width: int) -> float:
        """Trials per second with `width` at once."""
        with self._threads(width) as threads:
            started = time.perf_counter()
            list(threads.map(lambda _: self._trial(), range(num)))
            return num / (time.perf_counter() - started)


async def script_ms(task: Task, provider: SandboxProvider) -> float:
    """Milliseconds of the test script alone, in a sandbox that is open already."""
    sandbox = await provider.open(task)
    for command in COMMANDS:
        await sandbox.run(command, timeout_s=10)
    pristine = await provider.open_pristine(task, await sandbox.stop())
    started = time.perf_counter()
    await pristine.run("bash /tests/test.sh", timeout_s=10)
    ended = time.perf_counter()
    await pristine.close()
    await sandbox.close()
    return 1e3 * (ended - started)


async def bare(num: int) -> dict[str, float]:
    """The same shell and commands on the bare machine; median milliseconds."""
    nursery, opens, commands = Nursery(), list[float](), list[float]()
    try:
        for _ in range(num):
            with tempfile.TemporaryDirectory(prefix="t1-bench-") as folder:
                (Path(folder) / "names.txt").write_text("carol\nalice\nbob\n")
                started = time.perf_counter()
                shell = await Shell.start(
                    lambda program, _: list(program),
                    nursery,
                    None,
                    directories=(folder, folder),
                    limits=ProcessLimits(),
                    timeout_s=10,
                )
                opened = time.perf_counter()
                for command in COMMANDS:
                    await shell.run(
                        command.replace("/app", folder), BoundedOutput(65536), timeout_s=10, quota=Quota((), 1 << 30)
                    )
                commands.append(1e3 * (time.perf_counter() - opened) / len(COMMANDS))
                opens.append(1e3 * (opened - started))
                await shell.close()
    finally:
        nursery.close()
    return {"bare_open_ms": statistics.median(opens), "bare_command_ms": statistics.median(commands)}


def traces() -> dict[str, int]:
    """What there is of this process on the machine, by kind."""
    mine = f"{PREFIX}{os.getpid()}-"
    children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    place = cgroups.find()
    parents = set(place.parents.values()) if place else set()
    return {
        "processes": len(children),
        "mounts": sum(mine in line for line in Path("/proc/self/mounts").read_text().splitlines()),
        "cgroups": sum(1 for parent in parents for _ in parent.glob(f"{mine}*")),
        "directories": sum(1 for _ in default_root().glob(f"{mine}*/s*")),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
    }


async def leaked(task: Task, provider: SandboxProvider, verifier: PristineVerifier, num: int) -> int:
    """Traces of `num` trials in a row beyond those of the first."""
    await trial(task, provider, verifier)
    before = traces()
    for _ in range(num):
        await trial(task, provider, verifier)
    left = {kind: count - before[kind] for kind, count in traces().items()}
    print(f"left by {num} trials: {left}")
    return sum(max(0, count) for count in left.values())


async def in_containers(task: Task, engine: ContainerEngine, num: int) -> float:
    """The median trial in containers, in milliseconds."""
    (task.environment.path / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nWORKDIR /app\nCOPY names.txt /app/\n")
    provider = ContainerProvider(engine=engine)
    try:
        times = [await trial(task, provider, PristineVerifier(provider)) for _ in range(num + 1)]
    finally:
        await provider.close()
        await engine.call("rmi", f"{REPOSITORY}:{context_digest(task.environment.path)}")
    return statistics.median(part["trial"] for part in times[1:])


async def main() -> None:
    """Measure, print, leave nothing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000, help="of the search for leaks")
    parser.add_argument("--rounds", type=int, default=5, help="of every other measurement")
    chosen = parser.parse_args()
    rounds = chosen.rounds
    with tempfile.TemporaryDirectory(prefix="t1-bench-") as folder:
        task = make_task(Path(folder))
        provider = NamespaceProvider(label="bench")
        verifier = PristineVerifier(provider)
        try:
            await together(task, provider, verifier, 16, 4)
            plain = PlainBubblewrap(task, Path(folder) / "plain")
            turns = [(await trial(task, provider, verifier), plain.alone()) for _ in range(10 * rounds)]
            alone = [parts for parts, _ in turns]
            bare_medians = await bare(10 * rounds)
            scripts = [await script_ms(task, provider) for _ in range(4 * rounds)]
            pairs = [(await together(task, provider, verifier, 96, 16), plain.together(96, 16)) for _ in range(rounds)]
            num_leaked = await leaked(task, provider, verifier, chosen.trials)
            plain.close()
        finally:
            await provider.close()
        engine = engine_with_image()
        podman = await in_containers(task, engine, rounds) if engine is not None else None
    medians = {part: statistics.median(times[part] for times in alone) for part in alone[0]}
    rates = [rate for rate, _ in pairs]
    print(f"16 at once, trials per second: {', '.join(f'{rate:.1f}' for rate in rates)}")
    line: dict[str, float | None] = {f"{part}_ms": round(medians[part], 2) for part in ("open", "command")}
    line["pristine_overhead_ms"] = round(medians["verify"] - statistics.median(scripts), 2)
    line["trial_ms"] = round(medians["trial"], 2)
    line["trials_per_s_16"] = round(statistics.median(rates), 1)
    line |= {name: round(value, 2) for name, value in bare_medians.items()}
    line["bubblewrap_trial_ms"] = round(statistics.median(took for _, took in turns), 2)
    line["bubblewrap_trials_per_s_16"] = round(statistics.median(rate for _, rate in pairs), 1)
    line["over_bubblewrap"] = round(statistics.median(parts["trial"] / took for parts, took in turns), 2)
    line["podman_trial_ms"] = None if podman is None else round(podman, 1)
    line["leaked"] = num_leaked
    print(json.dumps(line))


if __name__ == "__main__":
    asyncio.run(main())
