"""The whole factory by its command, with a model on loopback: what is retried, capped, remembered and refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from t1.cli import main
from t1.sandboxes import probe
from t1.testing.chat_servers import ChatServer, Request

pytestmark = pytest.mark.skipif(probe().confinement is None, reason="no namespaces here")

TASKS = (
    ("Sort the harbour list ships.txt by bytes into arrivals.txt.", "ships.txt", "arrivals.txt", "LC_ALL=C sort"),
    ("Turn beds.txt of the garden upside down: its last line comes first in plan.txt.", "beds.txt", "plan.txt", "tac"),
    ("The kitchen wants loud.txt: everything that menu.txt says, in capital letters (a to z).", "menu.txt", "loud.txt",
     "LC_ALL=C tr a-z A-Z"),
)  # fmt: skip
WORDS = (
    "run.num_seeds=3", "run.at_once=2", "rewrite.max_evolutions=0", "discriminating.max_mutants=2",
    "discriminating.attacks=none", "solvable.repeats=1", "solvable.vary=false", "useful.audit=false",
    "proposer.kind=llm", "proposer.model=m", "proposer.completion_price=2000", "proposer.max_tokens=1000",
    'seeds.domains=["archives", "data", "files"]',
)  # fmt: skip
"""Offline and small; 500 tokens at 2 000 a million cost 1, and a call may cost 2."""


def reply(request: Request) -> str:
    """One of three sound tasks, by the domain that the prompt asks for."""
    asked = request["messages"][1]["content"]
    domain = re.search(r"Domain: (\w*)", asked)
    assert domain is not None, asked
    instruction, source, target, command = TASKS[{"archives": 0, "data": 1, "files": 2}[domain[1]]]
    given = "oak 3\nelm 1\nfir 2\nbay 9\n"
    wanted = f"{command} < /app/{source}"
    test = {"name": target, "command": f'[ -s /app/{target} ] && [ "$(cat /app/{target})" = "$({wanted})" ]'}
    return json.dumps(
        {
            "instruction": instruction,
            "difficulty": "easy",
            "files": [{"path": source, "content": given}],
            "tests": [test],
            "solution": f"{command} < {source} > {target}",
        }
    )


def synth(out: Path, server: ChatServer, *words: str) -> int:
    return main(["tasks", "synth", f"run.out={out}", f"proposer.base_url={server.url}", *WORDS, *words])


def sheet(out: Path) -> dict[str, object]:
    return json.loads((out / "datasheet.json").read_text())  # type: ignore[no-any-return]


def test_a_model_that_stumbles_makes_tasks_and_a_second_run_pays_for_nothing(tmp_path):
    stumbles: list[int | str] = [503, "no JSON at all"]
    with ChatServer(lambda request: stumbles.pop(0) if stumbles else reply(request)) as server:
        assert synth(tmp_path / "out", server) == 0
        asked = len(server.requests)
        made = sorted(path.name for path in (tmp_path / "out" / "tasks").iterdir())
        assert asked == 5 and len(made) == 3, sheet(tmp_path / "out")
        assert synth(tmp_path / "out", server) == 0
        assert len(server.requests) == asked
    assert sorted(path.name for path in (tmp_path / "out" / "tasks").iterdir()) == made


def test_the_cost_cap_stops_the_run_and_what_was_made_stays(tmp_path):
    with ChatServer(reply) as server:
        assert synth(tmp_path / "out", server, "proposer.max_cost=2.5", "run.at_once=1") == 0
        assert len(server.requests) == 1
        assert "max_cost" in str(sheet(tmp_path / "out")["run"])
        assert synth(tmp_path / "out", server, "proposer.max_cost=100") == 0
        assert len(server.requests) == 3


def test_an_evaluation_set_is_stayed_away_from_and_the_datasheet_says_so(tmp_path):
    from t1.tasks import write_task

    for number, (instruction, *_) in enumerate(TASKS[:2]):
        write_task(
            tmp_path / "held" / f"bench-{number}",
            config={"version": "1.0"},
            instruction=instruction + "\n",
            environment={"Dockerfile": "FROM x\n"},
            tests={"test.sh": "#!/bin/bash\n"},
        )
    with ChatServer(reply) as server:
        assert synth(tmp_path / "out", server, f'novel.held_out=["{tmp_path / "held"}"]', "rewrite.max_repairs=0") == 0
    reasons = [json.loads(path.read_text()) for path in sorted((tmp_path / "out" / "rejected").glob("*/reason.json"))]
    assert [reason["reason"] for reason in reasons] == ["contaminated"] * 2
    assert "bench-" in reasons[0]["detail"]
    assert (tmp_path / "out" / "datasheet.md").read_text().count("contaminat") > 0


def test_a_run_begins_from_existing_tasks_and_leaves_out_those_that_cannot_be_read(tmp_path, capsys):
    from t1.tasks import write_task

    write_task(
        tmp_path / "mine" / "one",
        config={"version": "1.0", "metadata": {"difficulty": "hard", "category": "data"}},
        instruction="Count the ships of harbour seven.\n",
        environment={"Dockerfile": "FROM x\n"},
        tests={"test.sh": "#!/bin/bash\n"},
    )
    (tmp_path / "mine" / "broken").mkdir()
    (tmp_path / "mine" / "broken" / "task.toml").write_text("version = [")
    with ChatServer(reply) as server:
        words = (f'seeds.tasks=["{tmp_path / "mine"}"]', "run.num_seeds=1")
        assert synth(tmp_path / "out", server, *words) == 0
        assert "Count the ships of harbour seven." in str(server.requests[0])
    assert f"left out: {tmp_path / 'mine' / 'broken'}" in capsys.readouterr().err
