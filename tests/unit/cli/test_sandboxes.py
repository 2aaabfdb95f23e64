"""`t1 sandboxes` over directories of owners that live and that are gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from t1.cli import main
from t1.sandboxes.harbor.keeping import PREFIX
from t1.sandboxes.harbor.pythons import PYTHON_VARIABLE
from t1.sandboxes.leases import lease


def test_list_names_every_owner_and_sweep_removes_those_that_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case F3."""
    mine, left = lease(tmp_path, label="mine"), lease(tmp_path, label="theirs")
    (left / "s0").mkdir()
    (left / "owner.json").write_text((left / "owner.json").read_text().replace('"started": ', '"started": 1'))
    assert main(["sandboxes", "list", "--root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{mine}\tpid {os.getpid()} running\t0 sandboxes\tmine" in lines
    assert f"{left}\tpid {os.getpid()} gone: sweep\t1 sandboxes\ttheirs" in lines
    assert main(["sandboxes", "sweep", "--root", str(tmp_path)]) == 0
    assert str(left) in capsys.readouterr().out.splitlines()
    assert list(tmp_path.iterdir()) == [mine]


def test_keepers_are_listed_and_those_that_are_gone_are_swept_by_a_keeper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, left = lease(tmp_path, label="mine", prefix=PREFIX), lease(tmp_path, prefix=PREFIX)
    (mine / "t1-1-s0.json").write_text("{}")
    (left / "owner.json").write_text((left / "owner.json").read_text().replace('"started": ', '"started": 1'))
    assert main(["sandboxes", "list", "--root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{mine}\tkeeper {os.getpid()} running\t1 of Harbor's environments\tmine" in lines
    assert f"{left}\tkeeper {os.getpid()} gone: sweep\t0 of Harbor's environments" in lines
    (left / "t1-2-s0.json").write_text("{}")
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "none"))
    assert main(["sandboxes", "sweep", "--root", str(tmp_path)]) == 2
    assert PYTHON_VARIABLE in capsys.readouterr().err
    assert left.exists(), "it still says which machines may live"
    (left / "t1-2-s0.json").unlink()
    assert main(["sandboxes", "sweep", "--root", str(tmp_path)]) == 0
    assert str(left) in capsys.readouterr().out.splitlines()
    assert sorted(tmp_path.iterdir()) == [mine]
