"""Bounded output: head, tail and the count of what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1.sandboxes.output import BoundedOutput


@given(st.lists(st.binary(max_size=60)), st.integers(2, 200))
def test_what_fits_is_kept_whole(chunks: list[bytes], max_bytes: int) -> None:
    output = BoundedOutput(max_bytes)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    text, cut = output.text()
    assert output.total == len(whole)
    if len(whole) <= max_bytes:
        assert (text, cut) == (whole.decode("utf-8", "replace"), 0)
    else:
        assert cut >= len(whole) - max_bytes


@given(st.text(max_size=300), st.integers(8, 64), st.integers(1, 7))
def test_a_cut_never_splits_a_character(text: str, max_bytes: int, step: int) -> None:
    data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    output = BoundedOutput(max_bytes)
    for start in range(0, len(data), step):
        output.add(data[start : start + step])
    kept, cut = output.text()
    whole = data.decode()
    assert len(kept.encode()) + cut == len(data)
    assert any(whole.startswith(kept[:i]) and whole.endswith(kept[i:]) for i in range(len(kept) + 1))


def test_memory_is_bounded_however_long_the_stream() -> None:
    output = BoundedOutput(100)
    for _ in range(1000):
        output.add(b"x" * 1000)
    assert output.total == 1_000_000
    assert len(output.text()[0]) == 100


def test_a_bound_below_two_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2, got 1"):
        BoundedOutput(1)
