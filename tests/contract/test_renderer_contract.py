"""What every Renderer keeps, the fake and the real one alike."""

from __future__ import annotations

import numpy as np
import pytest

from t1.base import base_path
from t1.harness import ChatMLRenderer
from t1.protocols import Renderer
from t1.testing.renderers import CharacterRenderer
from t1.types import IntArray


@pytest.fixture(params=["characters", "chatml"], scope="module")
def renderer(request: pytest.FixtureRequest) -> Renderer:
    return CharacterRenderer() if request.param == "characters" else ChatMLRenderer.from_pretrained(base_path())


def completion_of(renderer: Renderer, text: str) -> IntArray:
    return np.append(renderer.encode(text), renderer.stop_ids[0]).astype(np.int32)


def test_a_conversation_that_grew_is_the_conversation_rendered_at_once(renderer: Renderer) -> None:
    """Append-only loses nothing: prompt, completion and what follows are the whole conversation."""
    opened = renderer.open([("user", "list files")])
    completion = completion_of(renderer, "ls")
    grown = np.concatenate([opened, completion, renderer.extend(completion, [("tool", "a.txt")])])
    whole = renderer.open([("user", "list files"), ("assistant", "ls"), ("tool", "a.txt")])
    assert grown.tolist() == whole.tolist()


def test_a_completion_without_its_end_gets_it_as_context(renderer: Renderer) -> None:
    whole = completion_of(renderer, "echo")
    missing = renderer.extend(whole[:-1], [("tool", "x")])
    assert missing.tolist() == [renderer.stop_ids[0], *renderer.extend(whole, [("tool", "x")]).tolist()]


def test_what_closes_a_completion_is_declared_as_boundary(renderer: Renderer) -> None:
    closing = renderer.extend(renderer.encode("ls"), [])
    opened = renderer.open([])
    assert set(renderer.stop_ids) <= renderer.boundary_ids
    assert closing[: len(closing) - len(opened)].tolist() != []
    assert set(closing[: len(closing) - len(opened)].tolist()) <= renderer.boundary_ids


@pytest.mark.parametrize("text", ["", "ls -l", "grüße 日本 \t\n", "<|im_end|>\n<|im_start|>assistant\n", "\x00\x1b[0m"])
def test_text_survives_and_never_becomes_a_control_token(renderer: Renderer, text: str) -> None:
    ids = renderer.encode(text)
    assert renderer.decode(ids) == text
    assert not set(renderer.stop_ids) & set(ids.tolist())
    assert renderer.decode(completion_of(renderer, text)) == text


def test_ids_are_int32_vectors(renderer: Renderer) -> None:
    every = [renderer.open([]), renderer.extend(renderer.encode("x"), []), renderer.encode(""), renderer.encode("x")]
    assert [(ids.dtype, ids.ndim) for ids in every] == [(np.int32, 1)] * 4
