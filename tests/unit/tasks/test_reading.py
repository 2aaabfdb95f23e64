"""What a task directory says, and what is refused: with the file, the key and the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from t1.errors import TaskError
from t1.tasks import read_document, read_task, task_digest
from t1.types import Environment, Healthcheck, Limits

Make = Callable[..., Path]

FULL = """
schema_version = "1.4"
artifacts = ["/app/result.txt"]

[task]
name = "acme/full"

[metadata]
author_name = "A. Author"
difficulty = "hard"
category = "files"
tags = ["a", "b"]
num_assertions = 3
primitives = ["write", "copy"]
reads = true

[verifier]
timeout_sec = 30
env = { MODE = "strict" }

[agent]
timeout_sec = 120.5

[environment]
build_timeout_sec = 60.0
docker_image = "acme/image:1"
workdir = "/srv"
cpus = 2
memory_mb = 512
storage_mb = 1024
network_mode = "no-network"
env = { LANG = "C" }

[environment.healthcheck]
command = "true"
"""


def test_every_key_that_t1_uses_arrives(make: Make) -> None:
    task = read_task(make({"task.toml": FULL, "environment/Dockerfile": None}))
    assert task.environment == Environment(
        path=task.path / "environment",
        docker_image="acme/image:1",
        workdir="/srv",
        cpus=2,
        memory_mb=512,
        storage_mb=1024,
        allow_internet=False,
        build_timeout_s=60.0,
        env={"LANG": "C"},
        healthcheck=Healthcheck("true"),
    )
    assert (task.verifier.path, task.verifier.timeout_s) == (task.path / "tests", 30.0)
    assert task.verifier.env == {"MODE": "strict"}
    assert task.limits == Limits(120.5)
    assert (task.id, task.instruction, task.num_assertions) == ("example", "Make it so.\n", 3)
    assert task.solution == task.path / "solution" / "solve.sh"
    assert task.metadata["tags"] == ["a", "b"]
    assert set(task.metadata) == {
        "author_name", "difficulty", "category", "tags", "num_assertions", "primitives", "reads"
    }  # fmt: skip


def test_what_a_file_leaves_out_has_the_defaults_of_the_format(make: Make) -> None:
    task = read_task(make({"task.toml": "", "solution/solve.sh": None}))
    assert (task.verifier.timeout_s, task.environment.build_timeout_s) == (600.0, 600.0)
    assert task.environment.allow_internet
    assert (task.solution, task.num_assertions, dict(task.metadata)) == (None, None, {})


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3", "1.4"])
@pytest.mark.parametrize("key", ["version", "schema_version"])
def test_every_schema_is_read_under_either_name(make: Make, key: str, version: str) -> None:
    assert read_task(make({"task.toml": f'{key} = "{version}"\n'})).id == "example"


@pytest.mark.parametrize(
    ("lines", "reachable"),
    [
        ("", True),
        ("allow_internet = true", True),
        ("allow_internet = false", False),
        ('network_mode = "public"', True),
        ('network_mode = "no-network"', False),
        ('network_mode = "allowlist"\nallowed_hosts = ["example.org"]', False),
        ('network_mode = "no-network"\nallow_internet = true', False),
        ('network_mode = "public"\nallow_internet = false', True),
        ('[agent]\nnetwork_mode = "no-network"', False),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.org"]', False),
        ('network_mode = "no-network"\n[agent]\nnetwork_mode = "public"', False),
    ],
)
def test_the_network_is_never_opened_wider_than_asked(make: Make, lines: str, reachable: bool) -> None:
    assert read_task(make({"task.toml": f"[environment]\n{lines}\n"})).environment.allow_internet is reachable


@pytest.mark.parametrize(
    ("lines", "hosts"),
    [
        ("", ()),
        ('network_mode = "allowlist"\nallowed_hosts = ["a.org", "b.org"]', ("a.org", "b.org")),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]', ("a.org",)),
        (
            'network_mode = "allowlist"\nallowed_hosts = ["a.org", "b.org"]\n'
            '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["b.org"]',
            ("b.org",),
        ),
        ('network_mode = "no-network"\n[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]', ()),
        ('allow_internet = false\n[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]', ()),
    ],
)
def test_an_allow_list_is_what_every_section_lists(make: Make, lines: str, hosts: tuple[str, ...]) -> None:
    assert read_task(make({"task.toml": f"[environment]\n{lines}\n"})).environment.allowed_hosts == hosts


def test_the_agents_user_arrives(make: Make) -> None:
    assert read_task(make({"task.toml": '[agent]\nuser = "someone"\n'})).environment.user == "someone"
    assert read_task(make({"task.toml": "[agent]\nuser = 1000\n"})).environment.user == "1000"


@pytest.mark.parametrize(
    ("size", "megabytes"),
    [("2G", 2048), ("512M", 512), ("512 mb", 512), ("1.5GiB", 1536), ("1.5M", 1), ("2048k", 2), ("1T", 1 << 20)],
)
def test_older_spellings_of_sizes_are_understood(make: Make, size: str, megabytes: int) -> None:
    environment = read_task(make({"task.toml": f'[environment]\nmemory = "{size}"\nstorage = "{size}"'})).environment
    assert (environment.memory_mb, environment.storage_mb) == (megabytes, megabytes)


def test_canary_lines_are_not_shown_to_the_agent(make: Make) -> None:
    text = "<!-- benchmark canary GUID 1234 -->\n# a second canary\n\nMake it so.\n\nNo canary here.\n"
    assert read_task(make({"instruction.md": text})).instruction == "Make it so.\n\nNo canary here.\n"


def test_windows_line_ends_are_read_as_line_ends(make: Make) -> None:
    assert read_task(make({"instruction.md": b"One.\r\nTwo.\r\n"})).instruction == "One.\nTwo.\n"


def test_a_task_has_the_name_of_its_directory_however_it_is_reached(make: Make) -> None:
    path = make()
    link = path.with_name("link")
    link.symlink_to(path.name)
    assert (read_task(path / "tests" / "..").digest, read_task(link).id) == (read_task(path).digest, "link")


# Multi-step tasks

STEPS = """
[agent]
timeout_sec = 50.0
[[steps]]
name = "first"
min_reward = 0.5
[steps.agent]
timeout_sec = 10.0
[[steps]]
name = "second part"
min_reward = { style = 0.2 }
[steps.verifier]
timeout_sec = 5.0
"""
STEP_FILES = {
    "task.toml": STEPS,
    "instruction.md": None,
    "steps/first/instruction.md": "Begin.\n",
    "steps/first/tests/test.sh": "true\n",
    "steps/first/solution/solve.sh": "true\n",
    "steps/second part/instruction.md": "End.\n",
}


def test_steps_have_their_own_instruction_limits_and_verifier_or_the_tasks(make: Make) -> None:
    task = read_task(make(STEP_FILES))
    first, second = task.steps
    assert (task.instruction, first.instruction, second.instruction) == ("", "Begin.\n", "End.\n")
    assert (first.limits, second.limits) == (Limits(10.0), Limits(50.0))
    assert first.verifier.path == task.path / "steps" / "first" / "tests"
    assert (second.verifier.path, second.verifier.timeout_s) == (task.path / "tests", 5.0)
    assert (first.min_reward, second.min_reward) == (0.5, {"style": 0.2})
    assert (first.solution, second.solution) == (task.path / "steps" / "first" / "solution" / "solve.sh", None)


def refused(path: Path) -> TaskError:
    """The error that reading gives."""
    with pytest.raises(TaskError) as caught:
        read_task(path)
    return caught.value


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../outside", "folder under steps/"),
        ("a/../../../etc", "folder under steps/"),
        ("..", "folder under steps/"),
        ("", "folder under steps/"),
        ("trailing.", "folder under steps/"),
        ("line\\nbreak", "folder under steps/"),
        ("Con.txt", "folder under steps/"),
        ("ä" * 128, "folder under steps/"),
    ],
)
def test_a_step_cannot_be_named_out_of_its_folder(make: Make, name: str, reason: str) -> None:
    error = refused(make({"task.toml": f'[[steps]]\nname = "{name}"\n'}))
    assert (error.path.name, error.key) == ("task.toml", "steps.0.name")
    assert reason in error.reason


def test_steps_that_one_folder_would_serve_are_refused(make: Make) -> None:
    error = refused(make(STEP_FILES | {"task.toml": '[[steps]]\nname = "First"\n[[steps]]\nname = "first"\n'}))
    assert (error.key, "two steps are named" in error.reason) == ("steps", True)


@pytest.mark.parametrize(
    ("lacking", "file"),
    [
        ("steps/first/instruction.md", "instruction.md"),
        ("steps/second part/instruction.md", "second part"),
        ("tests/test.sh", "test.sh"),
    ],
)
def test_a_step_that_lacks_something_is_refused(make: Make, lacking: str, file: str) -> None:
    error = refused(make(STEP_FILES | {lacking: None}))
    assert (error.path.name, "no such" in error.reason) == (file, True)


# What is refused

BAD_KEYS = [
    ('version = "2.0"', "version", "1.4"),
    ('schema_version = "0.9"', "schema_version", "1.4"),
    ("schema_version = 1.0", "schema_version", "string"),
    ("verifier = 3", "verifier", "dictionary"),
    ("[verifier]\ntimeout_sec = -1", "verifier.timeout_sec", "greater than 0"),
    ("[verifier]\ntimeout_sec = 0", "verifier.timeout_sec", "greater than 0"),
    ("[verifier]\ntimeout_sec = inf", "verifier.timeout_sec", "finite"),
    ("[verifier]\ntimeout_sec = nan", "verifier.timeout_sec", "finite"),
    ('[verifier]\ntimeout_sec = "soon"', "verifier.timeout_sec", "number"),
    ("[verifier]\nenv = { A = 1 }", "verifier.env.A", "string"),
    ("[agent]\ntimeout_sec = -5.0", "agent.timeout_sec", "greater than 0"),
    ("[environment]\nbuild_timeout_sec = -5.0", "environment.build_timeout_sec", "greater than 0"),
    ("[environment]\ncpus = 0", "environment.cpus", "greater than 0"),
    ("[environment]\ncpus = inf", "environment.cpus", "finite"),
    ("[environment]\nmemory_mb = -1", "environment.memory_mb", "greater than 0"),
    ("[environment]\nstorage_mb = 1.5", "environment.storage_mb", "integer"),
    ('[environment]\nmemory = "lots"', "environment.memory", "512M or 2G"),
    ('[environment]\nmemory = "1024"', "environment.memory", "512M or 2G"),
    ('[environment]\nstorage = "0G"', "environment.storage", "at least 1M"),
    ('[environment]\nmemory = "1G"\nmemory_mb = 512', "environment", "contradict"),
    ('[environment]\nnetwork_mode = "some"', "environment.network_mode", "no-network"),
    ('[environment]\nallowed_hosts = ["example.org"]', "environment", "allowlist"),
    ('[agent]\nnetwork_mode = "public"\nallowed_hosts = ["example.org"]', "agent", "allowlist"),
    ('[agent]\nnetwork_mode = "some"', "agent.network_mode", "no-network"),
    ('[verifier]\nnetwork_mode = "some"', "verifier.network_mode", "no-network"),
    ('[environment]\nos = "windows"', "environment.os", "linux"),
    ('[environment]\nworkdir = "app"', "environment.workdir", "^/"),
    ('[environment]\nallow_internet = "perhaps"', "environment.allow_internet", "boolean"),
    ("[metadata]\nnum_assertions = 0", "metadata.num_assertions", "equal to 1"),
    ("[metadata]\nnum_assertions = true", "metadata.num_assertions", "integer"),
    ('[metadata]\nprimitives = "write"', "metadata.primitives", "list"),
    ('[metadata]\nreads = "yes"', "metadata.reads", "boolean"),
    ("steps = 2", "steps", "list"),
    ("[[steps]]\nx = 1", "steps.0.name", "required"),
    ('[[steps]]\nname = "a"\nmin_reward = nan', "steps.0.min_reward.float", "finite"),
]


@pytest.mark.parametrize(("text", "key", "reason"), BAD_KEYS, ids=[text.replace("\n", " ") for text, *_ in BAD_KEYS])
def test_a_wrong_value_is_refused_by_its_key(make: Make, text: str, key: str, reason: str) -> None:
    error = refused(make({"task.toml": text}))
    assert (error.path.name, error.key) == ("task.toml", key)
    assert reason in error.reason
    assert str(error) == f"{error.path}: {key}: {error.reason}"


@pytest.mark.parametrize(
    ("files", "path", "reason"),
    [
        ({"task.toml": None}, "task.toml", "no such file"),
        ({"task.toml": "version = "}, "task.toml", "is not TOML"),
        ({"task.toml": b'version = "\xff"'}, "task.toml", "is not UTF-8: byte 11"),
        ({"task.toml": None, "task.toml/x": ""}, "task.toml", "is a directory"),
        ({"instruction.md": None}, "instruction.md", "no such file"),
        ({"instruction.md": " \n\t\n"}, "instruction.md", "is empty"),
        ({"instruction.md": "<!-- canary -->\n"}, "instruction.md", "is empty"),
        ({"instruction.md": b"caf\xe9"}, "instruction.md", "is not UTF-8: byte 3"),
        ({"instruction.md": None, "instruction.md/x": ""}, "instruction.md", "is a directory"),
        ({"tests/test.sh": None}, "tests/test.sh", "needs its verifier"),
        ({"tests/test.sh": None, "tests": "not a folder"}, "tests/test.sh", "needs its verifier"),
        ({"environment/Dockerfile": None}, "environment", "needs a Dockerfile"),
        (
            {"environment/Dockerfile": None, "environment/docker-compose.yaml": ""},
            "environment",
            "docker-compose is not supported",
        ),
        (
            {"environment/Dockerfile": None, "task.toml": '[environment]\ndocker_image = ""'},
            "environment",
            "Dockerfile",
        ),
    ],
)
def test_a_broken_file_is_refused_by_its_path(
    make: Make, files: dict[str, str | bytes | None], path: str, reason: str
) -> None:
    task = make(files)
    error = refused(task)
    assert (error.path, error.key) == (task / path, "")
    assert reason in error.reason


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "no such task" in refused(tmp_path / "none").reason
    assert refused(tmp_path / "file").reason == "is not a directory"


@pytest.mark.parametrize(
    ("target", "reason"),
    [("/etc/passwd", "leaves"), ("../../elsewhere", "leaves"), ("../..", "leaves"), ("link", "circle")],
)
def test_a_link_that_leaves_the_directory_is_refused(make: Make, target: str, reason: str) -> None:
    task = make()
    (task / "tests" / "link").symlink_to(target)
    error = refused(task)
    assert (error.path, reason in error.reason) == (task / "tests" / "link", True)


def test_links_inside_the_directory_are_kept_and_not_followed(make: Make) -> None:
    task = make()
    plain = task_digest(task)
    (task / "tests" / "same").symlink_to("test.sh")
    (task / "tests" / "whole").symlink_to("../tests", target_is_directory=True)
    assert read_task(task).digest != plain


def test_a_pipe_is_refused_and_not_waited_for(make: Make) -> None:
    task = make()
    os.mkfifo(task / "environment" / "pipe")
    assert refused(task).path == task / "environment" / "pipe"
    (task / "task.toml").unlink()
    os.mkfifo(task / "task.toml")
    with pytest.raises(TaskError, match=r"task\.toml: is neither a file"):
        read_document(task)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_listed_is_refused(make: Make) -> None:
    task = make()
    (task / "tests").chmod(0)
    assert refused(task).path == task / "tests"
    (task / "tests").chmod(0o755)


# Digests


def test_the_digest_is_of_names_bytes_and_modes_and_not_of_places_and_times(make: Make) -> None:
    task = make()
    digest = task_digest(task)
    copied = Path(shutil.copytree(task, task.with_name("copy")))
    os.utime(copied / "task.toml", (0, 0))
    assert task_digest(copied) == digest
    (copied / "tests" / "test.sh").chmod(0o755)
    executable = task_digest(copied)
    (copied / "tests" / "test.sh").rename(copied / "tests" / "other.sh")
    renamed = task_digest(copied)
    (copied / "instruction.md").write_text("Make it so!\n")
    assert len({digest, executable, renamed, task_digest(copied)}) == 4


def test_bytes_that_move_from_one_file_to_the_next_change_the_digest(make: Make) -> None:
    one = make({"environment/a": "xy", "environment/b": "z"}, name="one")
    two = make({"environment/a": "x", "environment/b": "yz"}, name="two")
    assert task_digest(one) != task_digest(two)
