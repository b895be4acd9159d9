"""Deletions outlive snapshots: what was deleted stays so, whatever comes back."""

import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rag_server import content_part
from tests.index.test_snapshots import sample

from tailhold.deletion import DeletionError, delete, deleted, restore
from tailhold_server.backends import Opening
from tailhold_server.content import Contents, Index
from tailhold_server.deletions import take_deletions
from tailhold_server.errors import ContentRefusedError
from tailhold_server.ports import Document
from tailhold_server.retriever import Lookup, Retriever
from tailhold_server.snapshots import Place, Snapshot, open_snapshot, snapshot_folder, write_snapshot
from tailhold_server.snapshots import tombstones as marks
from tailhold_server.snapshots.catalogue import read_catalogue
from tailhold_server.snapshots.tombstones import (
    Tombstones,
    add_tombstone,
    list_tombstones,
    read_tombstones,
    restore_version,
)
from tailhold_server.testing import StandInEncoder, StandInSearcher

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def document(path: str, version: str = "", source: str = "s") -> Document:
    return Document(source, path, path, None, version)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES), max_size=5), NAMES, NAMES)
def test_just_what_was_deleted_is_hidden(
    tmp_path_factory: pytest.TempPathFactory, gone: list[tuple[str, str]], source: str, path: str
) -> None:
    store = tmp_path_factory.mktemp("store")
    for number, each in enumerate(gone):
        add_tombstone(store, *each, at=float(number))
    found = read_tombstones(store)
    assert len(found) == len(set(gone))
    assert all(found.hides(document(name, version, of)) for of, name in gone for version in ("", "any"))
    assert found.hides(document(path, "v", source)) == ((source, path) in gone)


def test_only_the_version_that_was_restored_is_found_again(tmp_path: Path) -> None:
    """An older snapshot with an older version brings nothing back."""
    add_tombstone(tmp_path, "s", "a", at=1.0)
    assert restore_version(tmp_path, "s", "b", "new") is None
    restore_version(tmp_path, "s", "a", "new")
    found = read_tombstones(tmp_path)
    assert not found.hides(document("a", "new"))
    assert found.hides(document("a", "old"))
    assert found.hides(document("a", ""))
    add_tombstone(tmp_path, "s", "a", at=2.0)
    assert read_tombstones(tmp_path).hides(document("a", "new"))
    assert [each.at for each in list_tombstones(tmp_path)] == [1.0]


def test_a_mark_that_was_spoiled_still_deletes(tmp_path: Path) -> None:
    add_tombstone(tmp_path, "s", "a", at=1.0)
    restore_version(tmp_path, "s", "a", "new")
    [mark] = (tmp_path / marks.TOMBSTONES).iterdir()
    mark.write_bytes(b"\xff rubbish")
    assert read_tombstones(tmp_path).hides(document("a", "new"))


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_an_entry_that_cannot_be_read_stops_no_deletion(
    make: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_tombstone(tmp_path, "s", "a", at=1.0)
    make(tmp_path / marks.TOMBSTONES / "odd.json")
    add_tombstone(tmp_path, "s", "b", at=2.0)
    found = read_tombstones(tmp_path)
    assert [found.hides(document(path, "v")) for path in "abc"] == [True, True, False]
    assert deleted(tmp_path) == 0
    assert capsys.readouterr().out.count("s/") == 2


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_mark_that_the_volume_does_not_give_still_deletes_and_is_named_once(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add_tombstone(tmp_path, "s", "a", at=1.0)
    restore_version(tmp_path, "s", "a", "new")
    (mark,) = (tmp_path / marks.TOMBSTONES).iterdir()
    read = Path.read_bytes

    def fails(path: Path) -> bytes:
        if path == mark:
            raise OSError(number, os.strerror(number), str(path))
        return read(path)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_bytes", fails)
        for _ in range(3):
            assert read_tombstones(tmp_path).hides(document("a", "new"))
    assert len([each for each in caplog.records if mark.name in each.getMessage()]) == 1
    assert not read_tombstones(tmp_path).hides(document("a", "new"))


def test_a_deletion_where_an_odd_entry_lies_is_refused_by_name(tmp_path: Path) -> None:
    add_tombstone(tmp_path, "s", "a", at=1.0)
    (mark,) = (tmp_path / marks.TOMBSTONES).iterdir()
    mark.unlink()
    mark.mkdir()
    for change in (partial(delete, tmp_path, "s", "a", 2.0), partial(restore, tmp_path, "s", "a", Path(__file__))):
        with pytest.raises(DeletionError, match=rf"{mark.name}.*Is a directory"):
            change()


def test_a_volume_without_marks_deletes_nothing(tmp_path: Path) -> None:
    assert read_tombstones(tmp_path) == Tombstones()


def test_a_volume_that_cannot_say_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / marks.TOMBSTONES).write_text("no folder")
    with pytest.raises(OSError, match="Not a directory"):
        read_tombstones(tmp_path)
    contents = Contents(lambda _: pytest.fail("opened"), StandInEncoder(4), lambda: read_tombstones(tmp_path))
    with pytest.raises(ContentRefusedError, match="what was deleted cannot be read: Not a directory"):
        contents.load(content_part())


# In a snapshot


def snapshot(tmp_path: Path, **changes: Any) -> Snapshot:
    import dataclasses

    name = write_snapshot(tmp_path, dataclasses.replace(sample(), **changes))
    return open_snapshot(snapshot_folder(tmp_path, name), name)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_text_lives_as_long_as_one_of_its_documents(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    documents = [document(f"{n}.txt") for n in range(4)]
    places = data.draw(
        st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=3, max_size=3), label="documents"
    )
    gone = data.draw(st.frozensets(st.integers(0, 3)), label="gone")
    spots = [[Place(n, at, at + 1) for at, n in enumerate(of)] for of in places]
    read = snapshot(tmp_path_factory.mktemp("store"), documents=documents, places=spots)
    chunks = read.chunks.without(gone)
    for index, of in enumerate(places):
        left = [(n, at) for at, n in enumerate(of) if n not in gone]
        assert (chunks.live is None or bool(chunks.live[index])) == bool(left)
        if left:
            assert [(each.document, each.start) for each in chunks.sources(index)] == [
                (f"{n}.txt", at) for n, at in left
            ]
            assert chunks.source(index) == chunks.sources(index)[0]
            assert int(chunks.document_of[index]) == left[0][0]
            assert chunks.text(index) == read.chunks.text(index)
        else:
            for method in (chunks.text, chunks.token_ids, chunks.source, chunks.sources):
                with pytest.raises(IndexError, match="deleted"):
                    method(index)
    assert chunks.without(frozenset()).live is None


# In a server


class Recording:
    """An opener that tells what it opened."""

    def __init__(self, store: Path) -> None:
        self.opened: list[str] = []
        self._open = Opening(partial(snapshot_folder, store), lambda snapshot: StandInSearcher(snapshot.vectors))

    def __call__(self, digest: str) -> Index:
        self.opened.append(digest)
        return self._open(digest)


TEXTS = {"a.txt": "The office closes at six.", "b.txt": "Badges are renewed in May.", "c.txt": "Lunch is at noon."}


def stored(store: Path, texts: dict[str, str]) -> str:
    import dataclasses

    encoder = StandInEncoder(16)
    contents = dataclasses.replace(
        sample(*texts.values()),
        embedder="e" * 64,
        vectors=encoder.encode(list(texts.values())),
        documents=[document(path, digest(text)) for path, text in texts.items()],
        places=[[Place(n, 0, len(text))] for n, text in enumerate(texts.values())],
    )
    return write_snapshot(store, contents)


@pytest.fixture
def opener(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


@pytest.fixture
def contents(tmp_path: Path, opener: Recording) -> Contents:
    return Contents(opener, StandInEncoder(16, fingerprint=""), lambda: read_tombstones(tmp_path))


def put(contents: Contents, snapshot: str) -> None:
    contents.put(contents.load(content_part(snapshot)))


def found(contents: Contents, *questions: str) -> list[set[str]]:
    retriever = Retriever(StandInEncoder(16), "")
    answers = retriever.work([Lookup(each, contents.current) for each in questions])
    chunks = contents.current.index.chunks
    return [{chunks.source(passage.index).document for passage in each.passages} for each in answers]


async def test_a_deletion_holds_live_and_through_every_rollback(tmp_path: Path, contents: Contents) -> None:
    old, new = stored(tmp_path, TEXTS), stored(tmp_path, TEXTS | {"d.txt": "Parking is free."})
    put(contents, old)
    put(contents, new)
    keys = [contents.current.index.chunks.source(n).key for n in range(3)]
    assert found(contents, "office") == [{"a.txt", "b.txt", "c.txt", "d.txt"}]

    assert not await take_deletions(contents)
    add_tombstone(tmp_path, "s", "a.txt", at=1.0)
    assert await take_deletions(contents)
    assert not await take_deletions(contents)
    for back in (new, old, new, old):
        put(contents, back)
        assert "a.txt" not in found(contents, "when does the office close")[0]
        assert [contents.current.index.find(key) is None for key in keys] == [True, False, False]


async def test_a_deletion_frees_its_place_for_the_next_best(tmp_path: Path, contents: Contents) -> None:
    put(contents, stored(tmp_path, TEXTS))
    add_tombstone(tmp_path, "s", "a.txt", at=1.0)
    await take_deletions(contents)
    [passages] = Retriever(StandInEncoder(16), "").work([Lookup("office", contents.current, top_k=2)])
    assert len(passages.passages) == 2


async def test_all_documents_deleted_is_an_empty_answer(tmp_path: Path, contents: Contents) -> None:
    put(contents, stored(tmp_path, TEXTS))
    for path in TEXTS:
        add_tombstone(tmp_path, "s", path, at=1.0)
    await take_deletions(contents)
    assert found(contents, "office") == [set()]


async def test_a_volume_that_fails_brings_nothing_back(tmp_path: Path, contents: Contents) -> None:
    put(contents, stored(tmp_path, TEXTS))
    add_tombstone(tmp_path, "s", "a.txt", at=1.0)
    await take_deletions(contents)
    folder = tmp_path / marks.TOMBSTONES
    folder.rename(tmp_path / "aside")
    folder.write_text("no folder")
    assert not await take_deletions(contents)
    assert found(contents, "office") == [{"b.txt", "c.txt"}]


def test_going_back_reads_nothing_again(tmp_path: Path, contents: Contents, opener: Recording) -> None:
    one, two, three = (stored(tmp_path, TEXTS | {"d.txt": text}) for text in ("1", "2", "3"))
    for snapshot in (one, two, one, two, one):
        put(contents, snapshot)
    assert opener.opened == [one, two]
    put(contents, three)
    assert contents.held == (three, one)
    put(contents, two)
    assert opener.opened == [one, two, three, two]


def test_a_deletion_shares_the_vectors(tmp_path: Path, contents: Contents, opener: Recording) -> None:
    snapshot = stored(tmp_path, TEXTS)
    put(contents, snapshot)
    before = contents.current.index.searcher
    add_tombstone(tmp_path, "s", "a.txt", at=1.0)
    put(contents, snapshot)
    assert contents.current.index.searcher is before
    assert opener.opened == [snapshot]
    np.testing.assert_array_equal(contents.current.index.chunks.live, [False, True, True])


# By hand


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], Sequence[str]]:
    return lambda: capsys.readouterr().out.splitlines()


def test_the_command_line_deletes_lists_and_restores(tmp_path: Path, said: Callable[[], Sequence[str]]) -> None:
    snapshot = stored(tmp_path, TEXTS)
    assert delete(tmp_path, "s", "a.txt", 0.0) == 0
    assert any(snapshot[:10] in line for line in said())
    assert read_catalogue(tmp_path).holders("s", "a.txt") == (snapshot,)
    assert deleted(tmp_path) == 0
    assert said() == ["1970-01-01T00:00:00+00:00 s/a.txt"]
    version = tmp_path / "new.txt"
    version.write_text("The office closes at seven.")
    assert restore(tmp_path, "s", "a.txt", version) == 0
    with pytest.raises(DeletionError, match=r"s/aa\.txt is not deleted at .*: did you mean s/a\.txt\?"):
        restore(tmp_path, "s", "aa.txt", version)
    with pytest.raises(DeletionError, match=r"none\.txt cannot be read: No such file"):
        restore(tmp_path, "s", "a.txt", tmp_path / "none.txt")
    found = read_tombstones(tmp_path)
    assert not found.hides(document("a.txt", digest("The office closes at seven.")))
    assert found.hides(document("a.txt", digest(TEXTS["a.txt"])))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("s", "a.tx"), "no document 'a.tx' of source 's' in the one snapshot at STORE: did you mean a.txt"),
        (("s", "of another kind"), "none is named like it"),
        (("other", "a.txt"), "no source 'other' in the one snapshot at STORE: it is in source s"),
        (("other", "x"), "the sources are s"),
    ],
)
def test_a_name_that_no_snapshot_holds_is_not_deleted_by_mistake(
    tmp_path: Path, names: tuple[str, str], words: str
) -> None:
    stored(tmp_path, TEXTS)
    with pytest.raises(DeletionError) as caught:
        delete(tmp_path, *names, 0.0)
    assert words.replace("STORE", str(tmp_path)) in str(caught.value)
    assert "Nothing was deleted." in str(caught.value)
    assert "--also-if-absent" in str(caught.value)
    assert not (tmp_path / marks.TOMBSTONES).exists()
    assert delete(tmp_path, *names, 0.0, also_if_absent=True) == 0
    assert read_tombstones(tmp_path).hides(document(names[1], source=names[0]))
    assert delete(tmp_path, *names, 1.0) == 0, "what is deleted may be deleted again"


def test_a_damaged_snapshot_hides_no_name_and_stops_no_deletion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = stored(tmp_path, TEXTS), stored(tmp_path, TEXTS | {"d.txt": "Parking is free."})
    (snapshot_folder(tmp_path, good) / "vectors.f32").write_bytes(b"no vectors")
    (snapshot_folder(tmp_path, bad) / "documents.json").write_bytes(b"[]")
    with pytest.raises(DeletionError, match="; 1 more cannot be read, and may hold it"):
        delete(tmp_path, "s", "d.txt", 0.0)
    assert delete(tmp_path, "s", "a.txt", 0.0) == 0
    printed = capsys.readouterr()
    assert good[:10] in printed.out
    assert f"its text may be in snapshot {bad[:10]}, which cannot be read" in printed.err


def test_a_folder_that_is_no_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    store = tmp_path / "claims" / "snapshots"
    store.mkdir(parents=True)
    stored(store, TEXTS)
    (tmp_path / "claims" / "documents").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for wrong, words in {
        tmp_path / "claims" / "snapshot": f"snapshot is not there: .* as {store}$",
        tmp_path / "claims": f"claims holds no index snapshots: .* as {store}$",
        tmp_path / "claims" / "documents": f"as {store}$",
        store / "snapshots": f"as {store}$",
        tmp_path / "none" / "at" / "all": "once an index was built into it$",
    }.items():
        for command in (
            lambda: delete(wrong, "s", "a.txt", 0.0, also_if_absent=True),  # noqa: B023  called here
            lambda: deleted(wrong),  # noqa: B023
            lambda: restore(wrong, "s", "a.txt", Path(__file__)),  # noqa: B023
        ):
            with pytest.raises(DeletionError, match=words):
                command()
    assert sorted(tmp_path.rglob("*")) == before
