import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailhold_api.codec import dump, load
from tailhold_api.index_kinds import IndexKind
from tailhold_api.sources import Metric
from tailhold_server.snapshots import (
    Contents,
    Document,
    Manifest,
    Place,
    Snapshot,
    SnapshotRefused,
    keep_snapshots,
    open_snapshot,
    snapshot_folder,
    write_snapshot,
)
from tailhold_server.snapshots.manifest import FILES, MANIFEST, TOKENS, VECTORS
from tailhold_server.snapshots.store import newest

HASH = hashlib.sha256(b"").hexdigest()
VOCABULARY = 1000


@st.composite
def contents(draw: st.DrawFn) -> Contents:
    count = draw(st.integers(1, 6))
    texts = draw(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=count, max_size=count))
    documents = draw(
        st.lists(st.builds(Document, st.just("source"), st.text(), st.text(), st.none() | st.text()), min_size=1)
    )
    places = st.builds(
        lambda n, start, length: Place(n, start, start + length),
        st.integers(0, len(documents) - 1),
        st.integers(0, 9),
        st.integers(0, 9),
    )
    return Contents(
        kind=IndexKind.FLAT,
        metric=draw(st.sampled_from(Metric)),
        embedder=HASH,
        tokenizer=HASH,
        vocabulary=VOCABULARY,
        build=HASH,
        recall=1.0,
        vectors=np.random.default_rng(draw(st.integers(0, 99))).normal(size=(count, 3)).astype(np.float32),
        texts=texts,
        token_ids=[draw(st.lists(st.integers(0, VOCABULARY - 1))) for _ in range(count)],
        passages=[hashlib.sha256(text.encode()).digest() for text in texts],
        places=[draw(st.lists(places, min_size=1, max_size=3)) for _ in range(count)],
        documents=documents,
    )


def sample(*texts: str) -> Contents:
    texts = texts or ("one", "two é", "three")
    return Contents(
        kind=IndexKind.FLAT,
        metric=Metric.COSINE,
        embedder=HASH,
        tokenizer=HASH,
        vocabulary=VOCABULARY,
        build=HASH,
        recall=1.0,
        vectors=np.eye(len(texts), 4, dtype=np.float32),
        texts=texts,
        token_ids=[[n, n + 1] for n in range(len(texts))],
        passages=[hashlib.sha256(text.encode()).digest() for text in texts],
        places=[[Place(0, n, n + len(text)), Place(1, 0, len(text))] for n, text in enumerate(texts)],
        documents=[
            Document("s", "a.html", "A", "https://example.org/a.html"),
            Document("s", "b.md", "B", None),
        ],
    )


def read_everything(snapshot: Snapshot) -> None:
    assert snapshot.vectors.shape == (snapshot.manifest.count, snapshot.manifest.dimension)
    assert np.isfinite(snapshot.vectors).all()
    for index in range(len(snapshot.chunks)):
        snapshot.chunks.text(index)
        assert all(0 <= token < snapshot.manifest.vocabulary for token in snapshot.chunks.token_ids(index))
        assert snapshot.chunks.sources(index)[0] == snapshot.chunks.source(index)
        assert len(snapshot.chunks.passage(index)) == 32


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(written=contents())
def test_what_is_written_is_read_back(tmp_path: Path, written: Contents) -> None:
    name = write_snapshot(tmp_path, written)
    snapshot = open_snapshot(snapshot_folder(tmp_path, name), name)
    read_everything(snapshot)
    chunks = snapshot.chunks
    assert len(chunks) == len(written.texts) == snapshot.manifest.count
    np.testing.assert_array_equal(snapshot.vectors, written.vectors)
    for index, text in enumerate(written.texts):
        assert chunks.text(index) == text
        assert chunks.token_ids(index) == list(written.token_ids[index])
        sources = [(each.start, each.end, each.document) for each in chunks.sources(index)]
        assert sources == [(s, e, written.documents[n].path) for n, s, e in written.places[index]]
    assert write_snapshot(tmp_path, written) == name


def test_equal_contents_have_one_digest_and_other_contents_another(tmp_path: Path) -> None:
    first = write_snapshot(tmp_path / "one", sample())
    assert write_snapshot(tmp_path / "two", sample()) == first
    assert write_snapshot(tmp_path / "two", sample("one", "two", "other")) != first
    assert not list((tmp_path / "two" / "snapshots").glob(".part-*"))


def test_a_chunk_is_known_by_what_it_is(tmp_path: Path) -> None:
    name = write_snapshot(tmp_path, sample())
    source = open_snapshot(snapshot_folder(tmp_path, name), name).chunks.source(1)
    assert source.key == hashlib.sha256("\0".join(("s", "a.html", "1", "two é")).encode()).hexdigest()
    assert (source.title, source.url, source.start, source.end) == ("A", "https://example.org/a.html", 1, 6)


@pytest.mark.parametrize("index", [-1, 3])
def test_c73_no_id_means_another_chunk(tmp_path: Path, index: int) -> None:
    name = write_snapshot(tmp_path, sample())
    chunks = open_snapshot(snapshot_folder(tmp_path, name), name).chunks
    for read in (chunks.text, chunks.token_ids, chunks.source, chunks.passage):
        with pytest.raises(IndexError):
            read(index)


def seal(folder: Path, change: Callable[[dict[str, object]], None] | None = None) -> str:
    """Make sizes, hashes and name agree with the files again, as one does who forges a snapshot."""
    import json

    facts = json.loads((folder / MANIFEST).read_text())
    for name in facts["files"]:
        data = (folder / name).read_bytes()
        facts["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if change is not None:
        change(facts)
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    (folder / MANIFEST).write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


def copy_of(tmp_path: Path) -> tuple[Path, str]:
    name = write_snapshot(tmp_path / "store", sample())
    target = tmp_path / "copy"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(snapshot_folder(tmp_path / "store", name), target)
    return target, name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(
    file=st.sampled_from((MANIFEST, *FILES)),
    at=st.integers(0, 10**6),
    bit=st.integers(0, 7),
)
def test_any_flipped_bit_is_refused(tmp_path: Path, file: str, at: int, bit: int) -> None:
    folder, name = copy_of(tmp_path)
    data = bytearray((folder / file).read_bytes())
    data[at % len(data)] ^= 1 << bit
    (folder / file).write_bytes(bytes(data))
    with pytest.raises(SnapshotRefused, match=file):
        open_snapshot(folder, name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(
    file=st.sampled_from(FILES),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 3),
)
def test_a_forged_file_is_refused_or_read_within_its_bounds(
    tmp_path: Path, file: str, edits: list[tuple[int, int]], cut: int
) -> None:
    folder, _ = copy_of(tmp_path)
    data = bytearray((folder / file).read_bytes())
    for at, value in edits:
        data[at % len(data)] = value
    (folder / file).write_bytes(bytes(data[: len(data) - cut]))
    name = seal(folder)
    try:
        snapshot = open_snapshot(folder, name)
    except SnapshotRefused:
        return
    assert (snapshot.manifest.count, snapshot.manifest.dimension) == (3, 4)
    read_everything(snapshot)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(
    field=st.sampled_from(["count", "dimension", "vocabulary", "format", "kind", "files", "recall"]),
    value=st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=5), st.none(), st.floats(), st.just({})),
)
def test_a_forged_manifest_is_refused_or_read_within_its_bounds(tmp_path: Path, field: str, value: object) -> None:
    folder, _ = copy_of(tmp_path)
    name = seal(folder, lambda facts: facts.__setitem__(field, value))
    try:
        snapshot = open_snapshot(folder, name)
    except SnapshotRefused:
        return
    read_everything(snapshot)


def remove(folder: Path) -> None:
    (folder / TOKENS).unlink()


def link(folder: Path) -> None:
    (folder / TOKENS).rename(folder / "elsewhere")
    (folder / TOKENS).symlink_to(folder / "elsewhere")


def pipe(folder: Path) -> None:
    (folder / TOKENS).unlink()
    os.mkfifo(folder / TOKENS)


def nest(folder: Path) -> None:
    (folder / TOKENS).unlink()
    (folder / TOKENS).mkdir()


def shorten(folder: Path) -> None:
    (folder / TOKENS).write_bytes((folder / TOKENS).read_bytes()[:-4])


@pytest.mark.parametrize("harm", [remove, link, pipe, nest, shorten])
def test_a_file_that_is_no_plain_whole_file_is_refused(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    folder, name = copy_of(tmp_path)
    harm(folder)
    with pytest.raises(SnapshotRefused):
        open_snapshot(folder, name)


def test_a_folder_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SnapshotRefused, match="No such file"):
        open_snapshot(tmp_path / HASH, HASH)


def test_a_refusal_says_file_expected_and_got(tmp_path: Path) -> None:
    folder, name = copy_of(tmp_path)
    shorten(folder)
    with pytest.raises(SnapshotRefused, match=r"tokens\.i32: expected 24 bytes, got 20"):
        open_snapshot(folder, name)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_c79_a_vector_that_is_not_finite_is_refused(number: float, tmp_path: Path) -> None:
    folder, _ = copy_of(tmp_path)
    vectors = np.frombuffer((folder / VECTORS).read_bytes(), "<f4").copy()
    vectors[5] = number
    (folder / VECTORS).write_bytes(vectors.tobytes())
    with pytest.raises(SnapshotRefused, match=r"expected numbers up to 1e\+17, got NaN, infinity"):
        open_snapshot(folder, seal(folder))


def test_writing_again_repairs_a_damaged_snapshot(tmp_path: Path) -> None:
    name = write_snapshot(tmp_path, sample())
    folder = snapshot_folder(tmp_path, name)
    (folder / VECTORS).write_bytes(b"rubbish")
    assert write_snapshot(tmp_path, sample()) == name
    read_everything(open_snapshot(folder, name))


def test_what_a_killed_build_left_is_cleared_after_a_day(tmp_path: Path) -> None:
    name = write_snapshot(tmp_path, sample())
    old, new = (tmp_path / "snapshots" / f".part-{age}" for age in ("old", "new"))
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    assert keep_snapshots(tmp_path, "local", name, keep=1, now=time.time()) == ()
    assert {path.name for path in (tmp_path / "snapshots").iterdir()} == {name, ".part-new"}


def test_one_that_is_written_again_counts_as_the_newest(tmp_path: Path) -> None:
    first, second = (write_snapshot(tmp_path, sample(text)) for text in ("a", "b"))
    for name in (first, second):
        os.utime(snapshot_folder(tmp_path, name), ns=(0, 10**18 + (name == second)))
    write_snapshot(tmp_path, sample("a"))
    assert next(newest(tmp_path)) == first


def test_the_manifest_stands_in_its_canonical_text(tmp_path: Path) -> None:
    name = write_snapshot(tmp_path, sample())
    text = (snapshot_folder(tmp_path, name) / MANIFEST).read_text()
    assert dump(load(Manifest, text)) == text
    assert hashlib.sha256(text.encode()).hexdigest() == name
