"""Every command of the documentation is one that its program accepts: options, settings, targets and files exist."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from typing import Any

import pytest
import typer

from t1.cli import app
from t1.cli.settings import split_settings
from t1.config import load_config
from t1.errors import UserError
from t1.synthesis.config import load_synth_config

from .pages import FILLED, PAGES, ROOT, Command, commands, simple_commands

FOREIGN = frozenset(
    "cd export git curl echo cat cp mv rm mkdir ls grep jq sed head tail test true sleep kill wait env sudo set printf "
    "apt-get podman docker npm npx node claude codex harbor ray ssh scp rsync srun sbatch torchrun kubectl uv pyenv "
    "vllm chmod touch ln nvidia-smi tmux bash sh source . exit trap timeout nice free nproc modal uvx bwrap".split()
)
"""Programs that are not ours: their syntax is checked, not their options."""
PYTHONS = re.compile(r"(?:\S*/)?python(?:3(?:\.\d+)?)?")
TARGETS = {
    target
    for line in (ROOT / "Makefile").read_text().splitlines()
    if (found := re.match(r"([a-z][a-z .-]*):(?!=)", line))
    for target in found[1].split()
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SHOWN = list(dict.fromkeys(command for page in PAGES for command in commands(page)))


def refusal(command: Command) -> str:
    """Why its program would not take the command; empty where it would."""
    program, *words = command.words
    if program == "t1" or program.endswith("/t1"):
        return refused_by_t1(words, whole=command.whole)
    if program == "make":
        return refused_by_make(words)
    if PYTHONS.fullmatch(program):
        return refused_by_python(words)
    if program in ("pip", "pip3"):
        return refused_by_pip(words)
    if "/" in program and not program.startswith(("/", "$", "~")):
        return "" if (ROOT / program).exists() or program.startswith((".venv", "bin/")) else f"{program} does not exist"
    return "" if program in FOREIGN or program.startswith(("/", "$", "~")) else f"{program} is unknown: see FOREIGN"


def refused_by_t1(words: Sequence[str], *, whole: bool) -> str:
    """What `t1` would say before it did anything: commands, options, their values, and every setting."""
    leaf: Any = typer.main.get_command(app)
    path, rest = ["t1"], list(words)
    while hasattr(leaf, "commands"):
        if not rest or is_blank(rest[0]) or rest[0] in ("--help", "-h"):
            return ""
        if rest[0] not in leaf.commands:
            return f"{' '.join(path)} has no command {rest[0]!r}"
        path.append(rest[0])
        leaf = leaf.commands[rest.pop(0)]
    if "--help" in rest or "-h" in rest:
        return ""
    if not whole:
        options = {name for param in leaf.params for name in (*param.opts, *param.secondary_opts)}
        unknown = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in options]
        return f"{' '.join(path)} has no option {unknown}" if unknown else refused_settings(path, filled(rest))
    try:
        given = leaf.make_context(" ".join(path), list(rest)).params
    except (typer.TyperException, UserError) as error:
        return getattr(error, "message", "") or repr(error)
    return refused_settings(path, given.get("settings") or ())


def refused_settings(path: Sequence[str], words: Sequence[str]) -> str:
    """A configuration that is not there, or a key or value that it does not take."""
    settings = [word for word in words if "=" in word and re.match(r"[a-z_]+\.[a-z_.]+=", word)]
    files = [ROOT / word for word in words if word.endswith(".toml") and not is_blank(word) and "=" not in word]
    if any(not file.is_file() and file.parent.is_relative_to(ROOT / "configs") for file in files):
        return f"no such configuration: {files}"
    known = [file for file in files if file.is_file()]
    load: Any = load_synth_config if list(path[1:]) == ["tasks", "synth"] else load_config
    try:
        load(known[0] if known else None, split_settings(filled(settings))[1])
    except UserError as error:
        return str(error)
    return ""


def is_blank(word: str) -> bool:
    """True for what the reader fills in: COMMAND, RUN, DIR."""
    return FILLED in word or bool(re.fullmatch(r"[A-Z][A-Z0-9_.-]*(?:\.toml)?", word))


def filled(words: Sequence[str]) -> list[str]:
    """Without the words whose value the reader fills in."""
    return [word for word in words if not is_blank(word.partition("=")[2]) and not is_blank(word)]


def refused_by_make(words: Sequence[str]) -> str:
    targets = [word for word in words if "=" not in word and not word.startswith("-")]
    patterns = [re.compile(target.replace("*", "[a-z-]+")) for target in targets]
    missing = [p.pattern for p in patterns if not any(p.fullmatch(target) for target in TARGETS)]
    return f"the Makefile has no target {missing}" if missing else ""


def refused_by_python(words: Sequence[str]) -> str:
    if words[:1] == ["-m"]:
        module = words[1]
        if module == "pip":
            return refused_by_pip(words[2:])
        place = ROOT.joinpath("src", *module.split("."))
        here = [place.with_suffix(".py"), place / "__main__.py", ROOT.joinpath(*module.split(".")).with_suffix(".py")]
        ours = module.split(".")[0] in ("t1", "tests")
        known = any(path.is_file() for path in here) if ours else module.split(".")[0] in sys.stdlib_module_names
        return "" if known or module in ("pytest", "torch.distributed.run") else f"no module {module}"
    if words and words[0].endswith(".py") and words[0].startswith(("bench/", "docs/", "examples/", "tests/")):
        return "" if (ROOT / words[0]).is_file() else f"no such file: {words[0]}"
    return ""


def refused_by_pip(words: Sequence[str]) -> str:
    wanted = {
        extra.strip() for found in re.findall(r"(?:t1|\.)\[([\w, -]+)\]", " ".join(words)) for extra in found.split(",")
    }
    return f"no such extra: {wanted - set(EXTRAS)}" if wanted - set(EXTRAS) else ""


@pytest.mark.parametrize("command", SHOWN, ids=str)
def test_its_program_accepts_every_command_of_the_documentation(command: Command) -> None:
    assert refusal(command) == "", str(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_shell_block_is_shell(page) -> None:
    assert all(command.words for command in commands(page))


@pytest.mark.parametrize(
    "wrong",
    [
        "t1 trian",
        "t1 train configs/nowhere.toml",
        "t1 train ppo.lrr=1",
        "t1 eval --atempts 3",
        "t1 eval --attempts many",
        "t1 audit",
        "t1 tasks synth run.seeds=3",
        "make qickstart",
        "python bench/nothing.py",
        "python -m t1.nothing",
        "pip install 't1[rya]'",
        "frobnicate --now",
        "A=1 t1 verdict --rool x RUN",
    ],
)
def test_a_command_that_no_program_takes_is_found(wrong: str) -> None:
    [(line, words)] = simple_commands(wrong)
    assert refusal(Command(ROOT / "README.md", line, words, whole=True)) != ""
