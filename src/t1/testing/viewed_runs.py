"""Runs to look at: a lifelike one with hostile trajectories in it, and one with very many rollouts.

Boundary: made-up rollouts, written by the real writers with the shipped tokenizer; no model and no sandbox.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from t1.config import load_config, write_config
from t1.evaluation.verdict import judge, write_verdict
from t1.rollouts.store import write_step
from t1.rollouts.token_stats import TokenStats, tokens_crc, write_token_stats
from t1.testing.runs import STEP, example_failure
from t1.tito import assemble
from t1.tracking import JsonLinesTracker
from t1.types import (
    AssertionResult,
    AssertionStatus,
    FinishReason,
    IntArray,
    Outcome,
    RewardSource,
    Rollout,
    RolloutId,
    RolloutTimings,
    SampleTimings,
    StopReason,
    TamperEvidence,
    Trajectory,
    Turn,
    Verdict,
)

MARKUP = '<script>window.pwned=1</script><img src=x onerror="window.pwned=1">\'"><svg onload=window.pwned=1>'
ESCAPES = (
    "\x1b]0;a new title\x07\x1b]8;;javascript:window.pwned=1\x1b\\a link\x1b]8;;\x1b\\ \x1b]52;c;cHduZWQ=\x07"
    "\x1b[30;40mblack on black\x1b[0m \x1b[8mconcealed\x1b[0m \u202egnp.exe\u202c zero\u200bwidth \x00\x9b31m \ud800"
)
FLOOD = "z" * 300_000 + "\n" + "y\n" * 20_000
HOSTILE_TASK = f"hostile/{MARKUP}"
LAYERS, EXPERTS = 4, 8

Script = Sequence[tuple[str, str]]
"""(action, observation) of each turn."""
HONEST: Script = (
    (
        "ls -la --color=always",
        "total 12\n\x1b[01;34m.\x1b[0m\n\x1b[01;34m..\x1b[0m\n\x1b[01;32mrun.sh\x1b[0m  notes.txt\n",
    ),
    ("cat notes.txt | sort -u > sorted.txt && wc -l sorted.txt", "14 sorted.txt\n"),
    (
        "pip install ./wheel",
        "Collecting wheel\n\rdownloading  10%\rdownloading  55%\rdownloading 100%\n\x1b[32mInstalled\x1b[0m wheel\n",
    ),
    ("python -m pytest -q", "\x1b[31mFAILED\x1b[0m tests/test_sort.py::test_is_unique\n1 failed, 3 passed in 0.42s\n"),
    ("sort -u notes.txt | tee sorted.txt | head -2; python -m pytest -q", "alpha\nbeta\n4 passed in 0.40s\n"),
)
HOSTILE: Script = (
    (f"echo {MARKUP!r}", MARKUP + "\n" + ESCAPES + "\n"),
    ("cat flood.txt", FLOOD),
    (
        "top -b",
        "".join(f"\x1b[H\x1b[2J\x1b[1mframe {i}\x1b[0m\nload {i / 7:.2f}\n" for i in range(30)) + "\x1b[999@" * 50,
    ),
)


def policy_tokenizer() -> Path:
    """The tokenizer of the base model that ships with the package."""
    return Path(str(resources.files("t1.base"))) / "qwen3-moe-shell" / "tokenizer.json"


def acted(ident: RolloutId, script: Script, outcome: Outcome, *, version: int = 0, seed: int = 0) -> Rollout:
    """A rollout of these turns, as the shipped tokenizer reads them; what was likely is drawn from `seed`."""
    tokenizer, rng = _tokenizer(), np.random.default_rng(seed)
    prompt, start, turns = _ids(tokenizer, f"Task {ident.task}: sort the notes and make the tests pass.\n$ "), 0, []
    for action, observation in script:
        completion = _ids(tokenizer, action.encode("utf-8", "replace").decode() + "\n")
        fed = np.concatenate([prompt, completion])[:-1]
        first = (fed[start:, None] + np.arange(LAYERS)) % (EXPERTS // 2)
        turns.append(
            Turn(
                prompt,
                completion,
                -rng.gamma(0.5, 0.6, len(completion)).astype(np.float32),
                np.full(len(completion), version, np.int32),
                FinishReason.STOP,
                np.stack([first, first + EXPERTS // 2], axis=-1).astype(np.uint8),
                start,
                action=action,
                observation=observation,
                timings=SampleTimings(0.01, 0.02, 0.2, cached_tokens=start),
                sandbox_s=float(rng.gamma(2, 0.05)),
            )
        )
        start = len(fed)
        seen = observation[:1500].encode("utf-8", "replace").decode() + "$ "
        prompt = np.concatenate([prompt, completion, _ids(tokenizer, seen)])
    timings = RolloutTimings(2.4 + seed % 7, 0.2, 1.1, 0.6, 0.4)
    return Rollout(ident, "d" * 64, tuple(turns), outcome, timings)


def scored(passed: int, of: int, *, tamper: tuple[TamperEvidence, ...] = (), message: str = "") -> Outcome:
    """An outcome of assertions; those that failed carry the message."""
    names = ("sorted.txt is there", "every line is unique", "order is bytewise", "tests pass", "nothing else changed")
    results = tuple(
        AssertionResult(names[i % 5], AssertionStatus.PASSED)
        if i < passed
        else AssertionResult(names[i % 5], AssertionStatus.FAILED, message or "expected 14 lines, got 13")
        for i in range(of)
    )
    reward = 0.0 if tamper else passed / of
    source = RewardSource.TAMPERED if tamper else RewardSource.ASSERTIONS
    return Outcome(StopReason.SUBMITTED, Verdict(results, passed == of, tamper), reward, source)


def write_viewed_run(path: Path, *, num_steps: int = 3, group_size: int = 4) -> Path:
    """A run with curves, a verdict, stats of tokens, and a hostile task among honest ones in its first step."""
    _begin(path)
    for step in range(num_steps):
        write_viewed_step(path, step, group_size=group_size)
    write_verdict(judge(path))
    return path


def write_viewed_step(path: Path, step: int, *, group_size: int = 4) -> None:
    """One more step of such a run: its rollouts, its stats, its metrics."""
    rollouts = [
        acted(
            RolloutId(f"shell/{name}", group, member),
            HONEST[: 2 + (member + group + step) % 4],
            scored((member + group + step) % 6, 5),
            version=step,
            seed=step * 100 + group * 10 + member,
        )
        for group, name in enumerate(("sort-notes", "count-lines", "unpack-and-rename-the-archive"))
        for member in range(group_size)
    ]
    if step == 0:
        evidence = TamperEvidence("planted-conftest", f"/tests/{MARKUP}", ESCAPES)
        tampered = scored(5, 5, tamper=(evidence,), message=MARKUP)
        rollouts.append(acted(RolloutId(HOSTILE_TASK, 9, 0), HOSTILE, tampered))
        rollouts.append(acted(RolloutId(HOSTILE_TASK, 9, 1), HOSTILE[:1], scored(1, 3, message=MARKUP + ESCAPES)))
        rollouts.append(example_failure("shell/sort-notes", member=group_size))
    _store(path, step, rollouts)
    tracker = JsonLinesTracker(path / "metrics.jsonl")
    tracker.log(_metrics(step))
    tracker.close()


def write_crowded_run(path: Path, *, num_rollouts: int = 10_000, per_step: int = 200) -> Path:
    """A run with very many small rollouts."""
    _begin(path)
    for step in range(math.ceil(num_rollouts / per_step)):
        rollouts = [
            acted(
                RolloutId(f"shell/task-{(step * 37 + i) % 997:03d}", i, 0),
                HONEST[:2],
                scored((i + step) % 6, 5),
                version=step,
                seed=i,
            )
            for i in range(min(per_step, num_rollouts - step * per_step))
        ]
        _store(path, step, rollouts)
        tracker = JsonLinesTracker(path / "metrics.jsonl")
        tracker.log(_metrics(step))
        tracker.close()
    return path


def _begin(path: Path) -> None:
    (path / "rollouts").mkdir(parents=True)
    checkpoint = path / "checkpoints" / "rl"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text(
        json.dumps({"vocab_size": _tokenizer().get_vocab_size(), "num_experts": EXPERTS})
    )
    shutil.copy(policy_tokenizer(), checkpoint / "tokenizer.json")
    write_config(load_config(None, ["cost.output_per_million=2.0", "cost.sandbox_per_hour=0.1"]), path / "config.toml")
    (path / "environment.json").write_text('{"git_commit": "0123456789abcdef", "packages": {"t1": "0.1.0"}}')


def _store(path: Path, step: int, rollouts: Sequence[Rollout]) -> None:
    trajectories = [part for rollout in rollouts if rollout.turns for part in assemble(rollout.id, rollout.turns)]
    write_step(path / "rollouts" / f"rl-{step:05d}.parquet", rollouts, trajectories)
    stats = list(_stats(trajectories))
    write_token_stats(path / "token_stats" / f"rl-{step:05d}.parquet", stats, max_bytes=1 << 24)


def _stats(trajectories: Sequence[Trajectory]) -> Iterator[TokenStats]:
    """What a trainer might have said: log-probabilities close to the engine's, values that rise towards the end."""
    for part in trajectories:
        rng = np.random.default_rng(part.rollout.member)
        size = part.num_actions
        logprobs = np.minimum(part.logprobs[part.mask] + rng.normal(0, 0.01, size), 0).astype(np.float32)
        values = (0.3 + 0.4 * np.arange(size) / max(size, 1) + rng.normal(0, 0.05, size)).astype(np.float32)
        returns = np.full(size, 0.2 * (part.rollout.member + 1), np.float32)
        yield TokenStats(part.rollout, part.segment, tokens_crc(part), logprobs, values, returns - values, returns)


def _metrics(step: int) -> dict[str, Any]:
    wave = math.sin(step * 1.7) / 20
    return {
        **STEP,
        "step": step,
        "reward": 0.4 + 0.4 * (1 - math.exp(-step / 20)) + wave,
        "solve_rate": 0.3 + 0.4 * (1 - math.exp(-step / 25)) + wave,
        "tokens_per_s": 900 + 100 * wave,
        "wall_s": 8 + wave,
        "findings": 0,
        "failures": int(step == 0),
    }


def _ids(tokenizer: Tokenizer, text: str) -> IntArray:
    return np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)


@lru_cache(maxsize=1)
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(policy_tokenizer()))
