"""Whatever an author writes into task.toml beside what T1 knows comes back as it was."""

from __future__ import annotations

import shlex
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from t1.tasks import read_document, read_task, write_task
from t1.tasks.demonstrations import inline

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
UNKNOWN = st.dictionaries(st.from_regex(r"x_[a-z]{1,5}", fullmatch=True), VALUES, max_size=4)
SECONDS = st.floats(0.001, 1e6)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A valid task.toml with keys that T1 does not know at every level."""
    config: dict[str, Any] = draw(UNKNOWN)
    config["metadata"] = draw(UNKNOWN) | {"num_assertions": draw(st.integers(1, 99))}
    config["verifier"] = draw(UNKNOWN) | {"timeout_sec": draw(SECONDS), "env": draw(st.dictionaries(TEXT, TEXT))}
    config["agent"] = draw(UNKNOWN) | {"timeout_sec": draw(SECONDS)}
    config["environment"] = draw(UNKNOWN) | {"memory_mb": draw(st.integers(1, 1 << 30))}
    return config


@given(config=configs(), instruction=TEXT.filter(lambda text: text.strip() and "canary" not in text.lower()))
@settings(max_examples=30, deadline=None)
def test_a_task_that_is_read_and_written_again_is_the_same(config: dict[str, Any], instruction: str) -> None:
    files: dict[str, Any] = {"environment": {"Dockerfile": "FROM x\n"}, "tests": {"test.sh": "true\n"}}
    with tempfile.TemporaryDirectory() as folder:
        first = write_task(Path(folder) / "1", config=config, instruction=instruction, **files)
        document = read_document(first.path)
        second = write_task(Path(folder) / "2", config=document, instruction=first.instruction, **files)
        assert second.digest == first.digest
        assert tomllib.loads((second.path / "task.toml").read_text(encoding="utf-8")) == config
        assert dict(read_task(second.path).metadata) == config["metadata"]
        assert (second.instruction, second.verifier.env) == (instruction, config["verifier"]["env"])
        assert second.limits.agent_timeout_s == config["agent"]["timeout_sec"]


@given(printed=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20))
def test_an_inlined_value_is_one_word_of_the_shell(printed: str) -> None:
    assert shlex.split(inline('rm "$(cat list)"', {"cat list": printed})) == ["rm", printed.strip()]
