"""Snapshots with a structure: written, read back, and never trusted."""

import dataclasses
import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from clustered import clustered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.index.test_snapshots import HASH, VOCABULARY, seal

from tailhold_api.index_kinds import HNSWStructure, IndexKind, IVFPQStructure, SearchParameters
from tailhold_api.sources import Metric
from tailhold_server.adapters.faiss_build import build_hnsw, build_ivfpq
from tailhold_server.backends import searcher
from tailhold_server.errors import StartError
from tailhold_server.ingest.structure import check_size
from tailhold_server.snapshots import (
    Contents,
    Document,
    Place,
    Snapshot,
    SnapshotRefused,
    open_snapshot,
    snapshot_folder,
    write_snapshot,
)
from tailhold_server.snapshots.manifest import INDEX_FILES, LINKS, LIST_IDS

COUNT, DIMENSION = 300, 8
VECTORS = clustered(COUNT, DIMENSION, subjects=12)
GRAPH = HNSWStructure(neighbours=4, ef_construction=20)
LISTS = IVFPQStructure(lists=8, subquantizers=4, bits_per_code=5)
KINDS = tuple(INDEX_FILES)


def contents(kind: IndexKind) -> Contents:
    texts = [f"text {n}" for n in range(COUNT)]
    plain = Contents(
        kind=kind,
        metric=Metric.COSINE,
        embedder=HASH,
        tokenizer=HASH,
        vocabulary=VOCABULARY,
        build=HASH,
        recall=0.9,
        vectors=VECTORS,
        texts=texts,
        token_ids=[[1] for _ in texts],
        passages=[hashlib.sha256(text.encode()).digest() for text in texts],
        places=[[Place(0, 0, 1)] for _ in texts],
        documents=[Document("s", "a.html", "A", None)],
    )
    if kind is IndexKind.FLAT:
        return plain
    if kind is IndexKind.HNSW:
        return dataclasses.replace(plain, hnsw=GRAPH, structure=build_hnsw(VECTORS, GRAPH, cosine=True))
    return dataclasses.replace(plain, ivfpq=LISTS, structure=build_ivfpq(VECTORS, LISTS, cosine=True))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[IndexKind, Path]:
    """A snapshot's folder for each kind."""
    root = tmp_path_factory.mktemp("stores")
    return {kind: snapshot_folder(root, write_snapshot(root, contents(kind))) for kind in KINDS}


def searched(snapshot: Snapshot) -> None:
    """Whatever the arrays hold, a search ends and gives ids in range, each once."""
    for parameters in (SearchParameters(), SearchParameters(probes=1, rescore_factor=1, ef_search=1)):
        scores, ids = searcher(snapshot).search(VECTORS[:4], 20, parameters)
        assert ((ids >= -1) & (ids < COUNT)).all()
        assert np.isfinite(scores[ids >= 0]).all()
        for row in ids:
            assert len(set(row[row >= 0].tolist())) == (row >= 0).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back(kind: IndexKind, tmp_path: Path) -> None:
    written = contents(kind)
    name = write_snapshot(tmp_path, written)
    assert write_snapshot(tmp_path / "again", contents(kind)) == name
    snapshot = open_snapshot(snapshot_folder(tmp_path, name), name)
    for field, value in vars(written.structure).items():
        np.testing.assert_array_equal(vars(snapshot.structure)[field], value)
    searched(snapshot)


def forged(stores: dict[IndexKind, Path], tmp_path: Path, kind: IndexKind) -> Path:
    target = tmp_path / "forged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(stores[kind], target)
    return target


WORDS = st.one_of(
    st.integers(0, 255).map(lambda value: bytes([value])),
    st.sampled_from([-1, 0, 1, COUNT - 1, COUNT, 2**31 - 1, -(2**31)]).map(
        lambda n: n.to_bytes(4, "little", signed=True)
    ),
    st.sampled_from([-1, COUNT, 2**63 - 1, -(2**63)]).map(lambda n: n.to_bytes(8, "little", signed=True)),
    st.sampled_from([np.nan, np.inf, -np.inf, 3e38]).map(lambda x: np.float32(x).tobytes()),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=500, deadline=None)
@given(
    which=st.sampled_from([(kind, name) for kind, names in INDEX_FILES.items() for name in names]),
    edits=st.lists(st.tuples(st.integers(0, 10**6), WORDS), min_size=1, max_size=6),
    cut=st.sampled_from([0, 0, 0, 0, 1, 4, 8]),
)
def test_a_forged_structure_is_refused_or_searched_within_its_bounds(
    stores: dict[IndexKind, Path],
    tmp_path: Path,
    which: tuple[IndexKind, str],
    edits: list[tuple[int, bytes]],
    cut: int,
) -> None:
    """With sizes and hashes that agree again: a crash of FAISS would end this process."""
    kind, file = which
    folder = forged(stores, tmp_path, kind)
    data = bytearray((folder / file).read_bytes())
    for at, word in edits:
        start = at % len(data) // len(word) * len(word)
        data[start : start + len(word)] = word
    (folder / file).write_bytes(bytes(data[: len(data) - cut]))
    try:
        snapshot = open_snapshot(folder, seal(folder))
    except SnapshotRefused:
        return
    searched(snapshot)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(0, 7))
def test_any_flipped_bit_is_refused(
    stores: dict[IndexKind, Path], tmp_path: Path, kind: IndexKind, at: int, bit: int
) -> None:
    folder = forged(stores, tmp_path, kind)
    file = INDEX_FILES[kind][at % len(INDEX_FILES[kind])]
    data = bytearray((folder / file).read_bytes())
    data[at % len(data)] ^= 1 << bit
    (folder / file).write_bytes(bytes(data))
    with pytest.raises(SnapshotRefused, match=file):
        open_snapshot(folder, stores[kind].name)


def test_a_link_that_leads_out_of_its_layer_is_refused(stores: dict[IndexKind, Path], tmp_path: Path) -> None:
    folder = forged(stores, tmp_path, IndexKind.HNSW)
    snapshot = open_snapshot(stores[IndexKind.HNSW], stores[IndexKind.HNSW].name)
    graph = snapshot.structure
    assert graph is not None
    levels, starts = vars(graph)["levels"], graph.starts()  # type: ignore[union-attr]
    top, low = int(np.argmax(levels)), int(np.argmin(levels))
    links = np.frombuffer((folder / LINKS).read_bytes(), "<i4").copy()
    links[starts[top] + 2 * GRAPH.neighbours] = low
    (folder / LINKS).write_bytes(links.tobytes())
    with pytest.raises(SnapshotRefused, match="leads out"):
        open_snapshot(folder, seal(folder))


def test_a_vector_that_stands_twice_is_refused(stores: dict[IndexKind, Path], tmp_path: Path) -> None:
    folder = forged(stores, tmp_path, IndexKind.IVFPQ)
    ids = np.frombuffer((folder / LIST_IDS).read_bytes(), "<i8").copy()
    ids[0] = ids[1]
    (folder / LIST_IDS).write_bytes(ids.tobytes())
    with pytest.raises(SnapshotRefused, match="each vector once"):
        open_snapshot(folder, seal(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.__setitem__("kind", "Flat"),
        lambda facts: facts.__setitem__("kind", "CAGRA"),
        lambda facts: facts.__setitem__("kind", "HNSW"),
        lambda facts: facts.pop("ivfpq"),
        lambda facts: facts["ivfpq"].__setitem__("lists", 9),
        lambda facts: facts["ivfpq"].__setitem__("subquantizers", 3),
        lambda facts: facts["ivfpq"].__setitem__("bitsPerCode", 99),
        lambda facts: facts.__setitem__("dimension", 16),
        lambda facts: facts["files"].pop(LIST_IDS),
    ],
)
def test_a_manifest_that_says_another_kind_or_size_is_refused(
    stores: dict[IndexKind, Path], tmp_path: Path, change: Callable[[dict[str, object]], None]
) -> None:
    folder = forged(stores, tmp_path, IndexKind.IVFPQ)
    with pytest.raises(SnapshotRefused):
        open_snapshot(folder, seal(folder, change))


@pytest.mark.parametrize(
    ("lists", "bits", "count", "words"),
    [
        (1024, 8, 500, "needs at least 1024 passages, the corpus has 500.* lower `index.ivfpq.lists` to at most 500$"),
        (16, 8, 100, "needs at least 256 passages, the corpus has 100.* lower `index.ivfpq.bitsPerCode` to at most 6$"),
        (1024, 8, 99, "lower `index.ivfpq.lists` to at most 99 and `index.ivfpq.bitsPerCode` to at most 6$"),
        (4, 4, 7, "use `index.kind: Flat`$"),
    ],
)
def test_c03_the_way_out_that_is_named_is_one(lists: int, bits: int, count: int, words: str) -> None:
    with pytest.raises(StartError, match=words):
        check_size(IVFPQStructure(lists=lists, subquantizers=8, bits_per_code=bits), count)
    if "lower" in words:
        check_size(IVFPQStructure(lists=min(lists, count), subquantizers=8, bits_per_code=6), count)


def test_c03_as_many_passages_as_are_needed_are_enough(caplog: pytest.LogCaptureFixture) -> None:
    """And a poor training is told with its numbers."""
    with caplog.at_level(logging.WARNING):
        check_size(LISTS, 39 * 8)
        assert caplog.text == ""
        check_size(LISTS, 32)
    assert "32 passages for 8 lists: 312 would train better" in caplog.text
    assert build_ivfpq(VECTORS[:32], LISTS, cosine=True).codes.shape == (32, 3)
