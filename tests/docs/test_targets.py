"""Every `make` target that the pages name is run: by .ci/run, here and small, or as tests that are there to be run."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest

from t1.sandboxes import probe

from .pages import PAGES, ROOT, commands
from .running import run

SMALL: Mapping[str, tuple[list[str], set[str]]] = {
    "bench-sandbox": (
        ["--trials", "8", "--rounds", "1"],
        {"open_ms", "command_ms", "pristine_overhead_ms", "trial_ms", "trials_per_s_16", "podman_trial_ms", "leaked"}
        | {"bubblewrap_trial_ms", "bubblewrap_trials_per_s_16", "over_bubblewrap"},
    ),
    "bench-engine": (["--pairs", "1", "--rows", "1", "--without-vllm"], {"client_ms"}),
    "bench-tito": (["--repeats", "1", "--sessions", "2"], {"assemble_audit_tokens_per_s", "encode_ratio"}),
    "bench-train": (["--pairs", "1", "--rollouts", "8", "--starts", "1"], {"vs_trl"}),
    "bench-scheduler": (["--trials", "320", "--turns", "5"], {"ms_per_turn", "peak_mb_per_1000_trials", "idle_share"}),
    "bench-replay": (["--pairs", "1", "--rollouts", "2", "--turns", "2"], {"step_overhead", "routing_bytes_ratio"}),
    "bench-tasks": (
        ["--static", "8", "--probed", "2", "--seeds", "2"],
        {"static_tasks_per_s", "probe_tasks_per_s", "synth_tasks_per_hour"},
    ),
    "bench-viewer": (["--rollouts", "40", "--repeats", "1"], {"cold_list_ms"}),
    "audit-labelled": (
        ["--static"],
        {"hidden-requirement", "test-leakage", "solution-shortcut", "weak-verifier"},
    ),
}
"""Target → (what makes it end soon, keys that its last line has)."""
ELSEWHERE = {
    "quickstart": "tests/e2e/test_quickstart.py",
    "gap": "tests/docs/test_reference_commands.py",
    "docs": "tests/docs/test_pages.py",
    "test-dataplane": "tests/unit/training/test_dataplane.py",
    "venv": "whoever runs a test",
    "sandbox": "whoever runs a test in a sandbox",
    "bench": "the targets that it is made of",
}
NAMED = sorted(
    {
        word
        for page in PAGES
        for command in commands(page)
        if command.words[0] == "make"
        for word in command.words[1:]
        if "=" not in word and "*" not in word
    }
)
IN_CI = {word for line in re.findall(r"^make (.*)", (ROOT / ".ci" / "run").read_text(), re.M) for word in line.split()}
BOUND_S = 600


def recipe(target: str) -> list[list[str]]:
    """The commands of a target that call Python, as the words after it."""
    shown = subprocess.run(
        ["make", "-n", "--no-print-directory", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = re.findall(r"bin/python3? (-m \S+.*|\S+\.py.*)$", shown.stdout.replace("\\\n", " "), re.M)
    return [words for words in map(shlex.split, lines) if words[:2] not in (["-m", "pip"], ["-m", "venv"])]


@pytest.mark.parametrize("target", NAMED)
def test_a_target_that_the_pages_name_is_run_somewhere(target: str) -> None:
    """What only a target of its own runs are tests: they are there, and have the mark that it asks for."""
    if target in IN_CI or target in SMALL:
        return
    if target in ELSEWHERE:
        place = ELSEWHERE[target]
        assert not place.startswith("tests/") or (ROOT / place).is_file()
        return
    selections = [words for words in recipe(target) if words[:2] == ["-m", "pytest"]]
    assert selections, f"make {target}: nobody runs it"
    for words in selections:
        places = [ROOT / word for word in words if word.startswith("tests/")]
        marks = {m for at in [i for i, w in enumerate(words) if w == "-m"][1:] for m in words[at + 1].split(" or ")}
        files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))]
        assert files, f"make {target}: {places} holds no tests"
        assert not marks or any(f"mark.{mark}" in file.read_text() for mark in marks for file in files), marks


@pytest.mark.slow
@pytest.mark.skipif(probe().confinement is None, reason="this host cannot open sandboxes")
@pytest.mark.parametrize("target", SMALL)
def test_a_bench_runs_and_ends_with_its_line(target: str) -> None:
    if target == "bench-viewer" and not (importlib.util.find_spec("playwright") and shutil.which("chromium")):
        pytest.skip("the page is measured in a Chromium: make test-viewer installs it")
    options, keys = SMALL[target]
    [words] = recipe(target)
    *_, line = run([sys.executable, *words, *options], ROOT, bound_s=BOUND_S).strip().splitlines()
    assert keys <= json.loads(line).keys()
