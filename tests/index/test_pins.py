"""Several pipelines on one volume."""

import json
from pathlib import Path

import pytest

from tailhold_server.snapshots import keep_snapshots
from tailhold_server.snapshots.store import SNAPSHOTS, YOUNG_SECONDS, newest, owned, spent

A, B, C, D, E = (letter * 64 for letter in "abcde")
LATER = 4e9
"""A time at which all snapshots of a test are old."""


def publish(store: Path, *names: str) -> None:
    for name in names:
        (store / SNAPSHOTS / name).mkdir(parents=True)


def pins(store: Path, name: str) -> object:
    return json.loads((store / "pins" / name).read_text())


@pytest.mark.parametrize(
    ("new", "pinned", "before", "keep", "held"),
    [
        (A, [], [], 2, [A]),
        (A, [], [B, C, D], 2, [A, B, C]),
        (A, [D], [B, C, D], 1, [A, B, D]),
        (A, [E], [B, C], 1, [A, B, E]),
        (B, [B], [A, B, C], 1, [B, A]),
    ],
)
def test_an_owner_holds_the_new_the_pinned_and_some_before(
    new: str, pinned: list[str], before: list[str], keep: int, held: list[str]
) -> None:
    assert owned(new, pinned, before, keep) == held


def test_only_what_nobody_holds_and_is_not_young_is_spent() -> None:
    published = {A: 0.0, B: 0.0, C: 1.0}
    assert spent(published, {A}, YOUNG_SECONDS) == (B,)


def test_a_build_deletes_nothing_that_another_pipeline_holds(tmp_path: Path) -> None:
    publish(tmp_path, A, B)
    keep_snapshots(tmp_path, "team/other", A, keep=0, now=0)
    for name in (C, D):
        publish(tmp_path, name)
        gone = keep_snapshots(tmp_path, "team/one", name, keep=0, now=LATER)
    assert gone == (C,)
    assert set(newest(tmp_path)) == {A, D}
    assert (pins(tmp_path, "team.other.json"), pins(tmp_path, "team.one.json")) == ([A], [D])


def test_what_is_pinned_from_outside_is_held_and_what_is_no_digest_is_not_written(tmp_path: Path) -> None:
    publish(tmp_path, A, B)
    assert keep_snapshots(tmp_path, "local", B, keep=0, pinned=[A, "../x"], now=LATER) == ()
    assert pins(tmp_path, "local.json") == [B, A]


@pytest.mark.parametrize("text", ["", "{", "[1]", '["../x"]'])
@pytest.mark.parametrize("name", ["team.other.json", "team.one.json"])
def test_pins_that_cannot_be_read_stop_the_deleting(
    tmp_path: Path, name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, A, B)
    (tmp_path / "pins").mkdir()
    (tmp_path / "pins" / name).write_text(text)
    assert keep_snapshots(tmp_path, "team/one", B, keep=0, now=LATER) == ()
    assert name in caplog.text
    assert pins(tmp_path, "team.one.json") == [B]
