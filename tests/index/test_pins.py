"""Several pipelines on one volume."""

from pathlib import Path

from tailhold_server.snapshots import keep_snapshots
from tailhold_server.snapshots.store import SNAPSHOTS, newest, pin


def test_a_build_deletes_nothing_that_another_pipeline_holds(tmp_path: Path) -> None:
    held, spent, own = ("a" * 64, "b" * 64, "c" * 64)
    for name in (held, spent, own):
        (tmp_path / SNAPSHOTS / name).mkdir(parents=True)
    pin(tmp_path, "team/other", [held])
    pin(tmp_path, "team/one", [own])
    keep_snapshots(tmp_path, 0)
    assert set(newest(tmp_path)) == {held, own}


def test_an_owner_holds_what_it_named_last_alone(tmp_path: Path) -> None:
    (tmp_path / SNAPSHOTS / ("a" * 64)).mkdir(parents=True)
    pin(tmp_path, "team/one", ["a" * 64])
    pin(tmp_path, "team/one", [])
    keep_snapshots(tmp_path, 0)
    assert list(newest(tmp_path)) == []
