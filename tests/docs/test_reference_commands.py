"""Every `t1` command of the pages runs, small: over a run, tasks and servers that lie where the pages say.

The tutorial and docs/cluster.md are run whole by tests of their own; here is the rest, README included. A command runs
as it is written, with settings after it that make it small, in one directory and in the order of a reader's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from t1.inference import TorchEngine, load_model
from t1.inference.captures import ModelShape
from t1.sandboxes import probe
from t1.synthesis.audit.labels import write_labels
from t1.testing.chat_servers import ChatServer
from t1.testing.containers import BASE_IMAGE, engine_with_image
from t1.testing.dialects import FakeVllm
from t1.testing.serving import listening

from .loaded import T1, loaded
from .pages import FILLED, PAGES, ROOT, Command, commands
from .running import answer_of

OWN_TESTS = ("tutorial.md", "cluster.md")
"""Pages whose commands are run by test_tutorial.py, and by tests/cluster (`make test-ray`)."""
ORDER = (
    "tasks make", "tasks", "quickstart", "sft", "train", "train --resume", "eval", "rollout", "audit", "verdict", "gap",
    "doctor", "redteam", "sandboxes", "plan", "ablate", "gateway", "view",
)  # fmt: skip
SETTINGS = (
    "run.steps=1 run.threads=1 run.checkpoint_every=1 tasks.num_train=8 tasks.num_heldout=2 tasks.max_requirements=2 "
    "rollouts.tasks_per_step=4 rollouts.max_concurrent=4 sft.steps=2 sft.batch_size=4 ppo.critic_warmup_steps=0 "
    "evaluation.num_tasks=2 harness.max_turns=3"
).split()
SMALLER: Mapping[str, list[str]] = {
    **dict.fromkeys(("quickstart", "sft", "train", "rollout"), SETTINGS),
    "train --resume": [],
    "eval": ["--attempts", "1", "harness.max_turns=3", "run.threads=1"],
    "rollout": ["-n", "1", *SETTINGS],
    "gap": ["-n", "2"],
    "ablate": ["--seeds", "1", *(word for word in SETTINGS if "requirements" not in word)],
    "redteam --sandbox containers": ["racing-writer"],
    "tasks synth": ["run.num_seeds=2"],
    "tasks make": ["--train", "8", "--heldout", "8", "--max-requirements", "2"],
    "tasks check": ["-n", "2"],
}
"""What is added to a command so that it ends soon; the longest beginning that fits it counts."""
MAY_BE_UNWELL = ("audit", "verdict", "doctor", "tasks audit")
"""They say by 1 that what they looked at is not well: a policy after two steps is not."""
CONTEXT = 1024
BOUND_S = 600

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes"),
]


def shown() -> dict[tuple[str, ...], Command]:
    """The `t1` commands of the pages that say what they work on, each once, in the order of a reader's work."""
    found: dict[tuple[str, ...], Command] = {}
    for command in (command for page in PAGES if page.name not in OWN_TESTS for command in commands(page)):
        program, *words = command.words
        named = len(words) > 1 + (words[:1] in (["tasks"], ["sandboxes"])) or command.whole
        if program == "t1" and named and "[OPTIONS]" not in words and FILLED not in command.words:
            found.setdefault(command.words, command)
    return dict(sorted(found.items(), key=lambda item: place_in_order(list(item[0][1:]))))


def place_in_order(words: list[str]) -> int:
    """Where a reader's work comes to this command."""
    fitting = begins(words, ORDER)
    return ORDER.index(max(fitting, key=len)) if fitting else 0


def smaller(words: list[str]) -> list[str]:
    """What is to be added to these words."""
    fitting = begins(words, SMALLER)
    return SMALLER[max(fitting, key=len)] if fitting else []


def begins(words: list[str], starts: Mapping[str, object] | tuple[str, ...]) -> list[str]:
    """The beginnings that fit these words."""
    return [start for start in starts if words[: len(start.split())] == start.split()]


def made_real(words: tuple[str, ...], vllm: str, endpoint: str) -> list[str]:
    """With what the reader fills in, servers that are here, and no redirection."""
    given = {
        "RUN": "runs/quickstart", "DIR": "suites/dir", "SUITE": "suites/basics", "KIND": "reward", "COMMAND": "train",
        "MY-TASK": "suites/basics/train/train-00000", "URL": vllm, "terminal-bench-2.1": "suites/basics",
        "IMAGE": BASE_IMAGE,
    }  # fmt: skip
    words = words[: words.index(">")] if ">" in words else words
    there = (given.get(word, word) for word in words[1:])
    return [
        word.replace("http://127.0.0.1:8000", vllm)
        .replace("http://127.0.0.1:9000/v1", endpoint)
        .replace("model.path=models/policy", "model.path=runs/sft/checkpoints/sft")
        .replace("max_context=96000", f"max_context={CONTEXT}")
        for word in there
    ]


@contextmanager
def vllm_of(checkpoint: Path) -> Iterator[str]:
    """The URL of a fake vLLM that serves a checkpoint."""
    engine = TorchEngine(load_model(checkpoint), max_context=CONTEXT, num_threads=1)
    fake = FakeVllm(engine, model=ModelShape.from_pretrained(checkpoint))
    fake.served = str(checkpoint)
    try:
        with listening(fake.app) as url:
            yield url
    finally:
        asyncio.run(engine.aclose())


@pytest.fixture
def t1() -> Iterator[T1]:
    """Runs commands."""
    with loaded() as run:
        yield run


@pytest.mark.timeout(1800)
@pytest.mark.long
def test_every_command_of_the_reference_and_the_readme_runs(t1: T1, tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    code, printed = t1(["quickstart", *SETTINGS], tmp_path, bound_s=BOUND_S)
    assert code == 0, printed[-3000:]
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "public").symlink_to(tmp_path / "suites" / "basics")
    with vllm_of(tmp_path / "runs/quickstart/checkpoints/sft") as vllm, ChatServer(lambda request: "ls") as other:
        for command in shown().values():
            words = made_real(command.words, vllm, other.url)
            if "containers" in words and engine_with_image() is None:
                continue  # .ci/run has built the image before
            if "--labelled" in words:
                write_labels(tmp_path / "suites/basics", {})
            with subtests.test(str(command)):
                words += smaller(words)
                if words[0] == "ablate" and not any(word.endswith(".toml") for word in words):
                    words += ["--out", "runs/without-a-file"]  # one place holds arms of one configuration
                if words[0] in ("gateway", "view"):
                    assert answer_of([*words, "--port", "0"], tmp_path)
                    continue
                code, printed = t1(words, tmp_path, bound_s=BOUND_S)
                assert code in ((0, 1) if begins(words, MAY_BE_UNWELL) else (0,)), printed[-3000:]
                assert printed.strip()
