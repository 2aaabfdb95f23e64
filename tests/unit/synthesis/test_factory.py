"""The factory end to end on fakes and in real sandboxes: stages, repair, resumption after kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from t1.errors import ConfigError, RunError
from t1.sandboxes import NamespaceProvider, probe
from t1.synthesis.attacks import Attacks
from t1.synthesis.candidate import EVOLUTIONS, Candidate, Rewrite, Seed, StageResult
from t1.synthesis.config import load_synth_config
from t1.synthesis.factory import Factory, Parts, reread
from t1.synthesis.journal import Journal
from t1.synthesis.mutants import emptied, source_mutants
from t1.synthesis.programmatic.proposer import ProgrammaticProposer, taxonomy
from t1.synthesis.proposer import ProposalRejected
from t1.synthesis.seeds import taxonomy_seeds
from t1.synthesis.selection.discriminating import discriminating
from t1.synthesis.selection.novel import Novelty
from t1.synthesis.selection.solvable import solvable
from t1.synthesis.similarity import Reference
from t1.synthesis.trials import Ground
from t1.synthesis.variations import Circumstances


@pytest.fixture
async def provider() -> AsyncIterator[NamespaceProvider]:
    if probe().confinement is None:
        pytest.skip("no namespaces here")
    made = NamespaceProvider()
    yield made
    await made.close()


def weak(candidate: Candidate) -> Candidate:
    """The same task with a verifier that only looks whether /app is there once something was written."""
    raw = json.loads(candidate.to_json())
    name = "x.txt"
    raw["instruction"] = f"Write the word oak into the file {name}, in /app.\n"
    raw["solution"] = {"solve.sh": f"#!/bin/bash\nset -e\necho oak > {name}\n"}
    head = candidate.tests["test.sh"].split("check '")[0]  # type: ignore[arg-type, str-bytes-safe]
    foot = "summary=" + str(candidate.tests["test.sh"]).split("summary=", 1)[1]
    raw["tests"] = {"test.sh": f"{head}check there '[ -e /app/{name} ]'\n{foot}"}
    return Candidate.from_json(json.dumps(raw))


async def test_every_cell_of_the_taxonomy_and_every_rewrite_makes_the_same_task_twice():
    one, two = ProgrammaticProposer(3), ProgrammaticProposer(3)
    applied = set()
    for index, cell in enumerate(taxonomy()[:128]):
        seed, kind = Seed(index, *cell), (*EVOLUTIONS, Rewrite.REPAIR)[(index + index // 8) % 8]
        try:
            first = await one.rewrite(seed, await one.propose(seed), kind, None)
        except ProposalRejected:
            continue
        assert first == await two.rewrite(seed, await two.propose(seed), kind, None)
        assert Candidate.from_json(first.to_json()) == first
        applied.add(kind)
    assert len(applied) == 8


async def test_a_value_that_has_to_be_looked_up_is_named_once():
    """No "the suffix the suffix given in settings/x.cfg"."""
    proposer, told = ProgrammaticProposer(5), 0
    for index, cell in enumerate(taxonomy()[:128]):
        seed = Seed(index, *cell)
        with contextlib.suppress(ProposalRejected):
            made = await proposer.rewrite(seed, await proposer.propose(seed), Rewrite.OBSERVATION, None)
            told += "given in settings/" in made.instruction
            assert not re.search(r"\b(\w+) the \1 given in", made.instruction), made.instruction
    assert told > 20


async def test_a_verifier_that_looks_for_a_file_alone_is_rejected_as_not_discriminating(provider, tmp_path):
    candidate = weak(await ProgrammaticProposer(0).propose(Seed(0, "text", "text/turned", "easy")))
    task, ground = candidate.write(tmp_path / "weak"), Ground(provider)
    found = await discriminating(candidate, task, ground, max_mutants=6, min_score=0.8, attacks=Attacks.NONE)
    assert (found.passed, found.reason) == (False, "empty-outputs-pass")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("date +%Y > x.txt", "depends-on-clock"),
        ("id -u > x.txt", "depends-on-user"),
        ("printf %.1f 1.5 > x.txt", "depends-on-locale"),
    ],
)
async def test_a_solution_that_depends_on_clock_locale_or_user_is_found_out(provider, tmp_path, line, reason):
    circumstances = Circumstances()
    try:
        offered = [v for v in circumstances.variations if not v.missing]
        if reason.removeprefix("depends-on-") not in {"", *(v.name for v in offered)}:
            pytest.skip("this host cannot vary it")
        candidate = weak(await ProgrammaticProposer(0).propose(Seed(0, "text", "text/turned", "easy")))
        raw = json.loads(candidate.to_json())
        raw["solution"] = {"solve.sh": f"#!/bin/bash\n{line}\n"}
        want = {"depends-on-clock": "$(TZ=UTC0 date -r /proc/self +%Y)", "depends-on-user": "0"}.get(reason, "")
        test = raw["tests"]["test.sh"].replace(
            "[ -e /app/x.txt ]", f'[ -s /app/x.txt ] && [[ "{want}" = "" || "$(cat /app/x.txt)" = "{want}" ]]'
        )
        candidate = Candidate.from_json(json.dumps(raw | {"tests": {"test.sh": test}}))
        ground = Ground(NamespaceProvider(readable=[circumstances.folder]))
        found = await solvable(candidate, candidate.write(tmp_path / "t"), ground, repeats=1, variations=offered)
        await ground._provider.close()
        assert found.reason == reason, found
    finally:
        circumstances.close()


async def test_near_duplicates_and_tasks_of_an_evaluation_set_are_not_novel():
    proposer = ProgrammaticProposer(0)
    first = await proposer.propose(Seed(0, "data", "data/joined", "hard"))
    other = await proposer.propose(Seed(1, "git", "git/branched", "hard"))
    novelty = Novelty(
        max_text=0.7, max_shape=0.85, max_contamination=0.5, held_out={"bench": Reference([("b1", other.instruction)])}
    )
    assert novelty.judge(first).passed
    novelty.admit("first", first)
    assert novelty.judge(first).reason == "near-duplicate-text"
    assert novelty.judge(other).reason == "contaminated"
    novelty.dismiss("first")
    assert novelty.judge(first).passed


def test_mutants_are_wrong_in_one_place_each_and_the_same_every_time():
    script = "#!/bin/bash\nset -e\nhead -n 3 a > b\nsort -r b > c\n"
    made = source_mutants(script, 10, "x")
    assert made == source_mutants(script, 10, "x")
    assert any("head -n 4" in m.script for m in made) and all(m.script != script for m in made)
    assert "/app/b" in emptied(script, ["/app/b"]).script


def test_unknown_keys_name_the_nearest_one_and_a_resumed_run_refuses_another_configuration(tmp_path):
    with pytest.raises(ConfigError, match=r"did you mean run\.num_seeds"):
        load_synth_config(None, ["run.num_seed=3"])
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.hold_to("configuration", "a", "advice")
        with pytest.raises(RunError, match="advice"):
            journal.hold_to("configuration", "b", "advice")
        with pytest.raises(RunError, match="open"):
            Journal(tmp_path / "j.sqlite")


SCRIPT = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from t1.sandboxes import NamespaceProvider
from t1.synthesis.config import load_synth_config
from t1.synthesis.factory import Factory, Parts
from t1.synthesis.journal import Journal
from t1.synthesis.seeds import taxonomy_seeds
from t1.synthesis.trials import Ground
from t1.testing.proposers import FakeProposer

words = [f"run.out={sys.argv[1]}", "run.num_seeds=3", "discriminating.max_mutants=2", "discriminating.attacks=none"]
config = load_synth_config(None, words)

async def main():
    provider = NamespaceProvider()
    with Journal(Path(sys.argv[1]) / "journal.sqlite") as journal:
        put = journal.put
        def killed(*arguments):
            put(*arguments)
            if journal.num_steps() == int(sys.argv[2]):
                # At once, or in the midst of the next step.
                threading.Timer(float(sys.argv[3]), os.kill, (os.getpid(), signal.SIGKILL)).start()
                if float(sys.argv[3]) == 0.0:
                    threading.Event().wait(60)
        journal.put = killed
        parts = Parts(FakeProposer(), Ground(provider))
        await Factory(config, taxonomy_seeds(3), parts, journal).run()
    await provider.close()

asyncio.run(main())
"""


def steps_of(out: Path) -> list[tuple[int, int, str, float]]:
    """What the journal of a run holds, with the time at which each step was done."""
    with contextlib.closing(sqlite3.connect(out / "journal.sqlite")) as db:
        return db.execute("SELECT lineage, round, step, at FROM steps").fetchall()


@pytest.mark.parametrize("seed", range(int(os.environ.get("T1_KILLS", "1"))))
def test_a_run_that_was_killed_at_random_points_goes_on_each_time_and_ends_the_same(tmp_path, seed):
    if probe().confinement is None:
        pytest.skip("no namespaces here")

    def run(out: Path, kill_at: int, delay_s: float = 0.0) -> int:
        command = [sys.executable, "-c", SCRIPT, str(out), str(kill_at), str(delay_s)]
        return subprocess.run(command, env={**os.environ}, timeout=300, check=False).returncode

    rng, killed, before = Random(seed), tmp_path / "killed", list[tuple[int, int, str, float]]()
    points = sorted(rng.sample(range(1, 14), 3))
    for point, delay_s in zip(points, (0.0, rng.uniform(0.01, 0.3), 0.0), strict=True):
        if point <= len(before):
            continue  # the step that was under way ended before the kill
        assert run(killed, point, delay_s) == -signal.SIGKILL
        now = steps_of(killed)
        assert set(before) <= set(now) and len(now) >= point, "a step was done twice, or lost"
        before = now
    assert run(killed, -1) == 0
    assert run(tmp_path / "whole", -1) == 0
    assert set(before) <= set(steps_of(killed)), "a step was done twice"
    digests = [{task.id: task.digest for task in reread(out)} for out in (killed, tmp_path / "whole")]
    assert digests[0] == digests[1] and digests[0]
    rows = pq.read_table(killed / "index.parquet").to_pylist()
    assert len(rows) == 3 and all((killed / row["path"]).is_dir() for row in rows)


class Broken(ProgrammaticProposer):
    """Every second task is broken in a way that only running shows."""

    async def propose(self, seed: Seed) -> Candidate:
        made = await super().propose(seed)
        if seed.index % 2 == 0:
            return made
        raw = json.loads(made.to_json())
        raw["environment"]["Dockerfile"] = "FROM x\nRUN exit 3\n"
        return Candidate.from_json(json.dumps(raw))


async def test_a_broken_task_keeps_its_reason_and_path_and_never_stops_the_run(provider, tmp_path):
    words = [f"run.out={tmp_path}", "discriminating.max_mutants=2", "rewrite.max_repairs=0", "rewrite.max_evolutions=0"]
    config = load_synth_config(None, words)
    with Journal(tmp_path / "journal.sqlite") as journal:
        made = await Factory(config, taxonomy_seeds(4), Parts(Broken(0), Ground(provider)), journal).run()
    assert len(made.accepted) == 2
    rejected = sorted((tmp_path / "rejected").glob("*/reason.json"))
    reasons = [json.loads(file.read_text()) for file in rejected]
    assert [r["reason"] for r in reasons] == ["broken-task"] * 2 and "exit code 3" in reasons[0]["detail"]
    assert json.loads((tmp_path / "datasheet.json").read_text())["accepted"]["tasks"] == 2


class Waiting(Broken):
    """Repairs nothing before the third lineage has begun."""

    def __init__(self) -> None:
        super().__init__(0)
        self.begun = asyncio.Event()
        self.proposed = set[int]()

    async def propose(self, seed: Seed) -> Candidate:
        self.proposed.add(seed.index)
        if seed.index == 2:
            self.begun.set()
        return await super().propose(seed)

    async def rewrite(self, seed: Seed, candidate: Candidate, kind: Rewrite, problem: StageResult | None) -> Candidate:
        async with asyncio.timeout(60):
            await self.begun.wait()
        return await super().rewrite(seed, candidate, kind, problem)


@pytest.mark.parametrize(("num_tasks", "begun"), [(0, {0, 1, 2, 3}), (1, {0, 1})])
async def test_a_batch_begins_while_one_is_repaired_unless_a_number_ends_the_run(provider, tmp_path, num_tasks, begun):
    repairs = 1 if num_tasks == 0 else 0
    words = [f"run.out={tmp_path}", "run.batch=2", f"run.num_tasks={num_tasks}", f"rewrite.max_repairs={repairs}"]
    config = load_synth_config(
        None, [*words, "discriminating.max_mutants=2", "discriminating.attacks=none", "rewrite.max_evolutions=0"]
    )
    proposer = Waiting()
    with Journal(tmp_path / "journal.sqlite") as journal:
        made = await Factory(config, taxonomy_seeds(4), Parts(proposer, Ground(provider)), journal).run()
    assert proposer.proposed == begun
    assert [lineage.seed.index for lineage in made.lineages] == sorted(begun)
    assert made.accepted and all(lineage.accepted or lineage.rejection for lineage in made.lineages)
