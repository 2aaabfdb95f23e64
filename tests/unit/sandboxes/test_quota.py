"""When what a sandbox has written is counted."""

from pathlib import Path

import pytest

from t1.sandboxes.namespaces import quota
from t1.sandboxes.namespaces.quota import Quota


async def test_who_makes_room_is_believed_at_once_and_who_writes_when_counting_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "SHARE", 10**9)  # after one look, none is due for a long time
    (tmp_path / "big").write_bytes(bytes(100_000))
    watched = Quota((tmp_path,), 50_000)
    assert await watched.look()
    (tmp_path / "big").unlink()
    assert not await watched.look_if_due()
    (tmp_path / "big").write_bytes(bytes(100_000))
    assert not await watched.look_if_due()
    assert await watched.look()


async def test_room_in_a_great_many_files_is_found_when_counting_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "SHARE", 10**9)
    monkeypatch.setattr(quota, "INLINE_ENTRIES", 3)
    for name in "abcd":
        (tmp_path / name).write_bytes(bytes(100_000))
    watched = Quota((tmp_path,), 50_000)
    assert await watched.look()
    for name in "abcd":
        (tmp_path / name).unlink()
    assert await watched.look_if_due()
    assert not await watched.look()
