"""Two indexes fit, or the second is refused by name before it is read."""

import dataclasses
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rag_server import content_part, store_snapshot

from tailhold_api.index_kinds import HNSWStructure, IndexKind, IVFPQStructure
from tailhold_server.backends import Opening
from tailhold_server.content import Contents
from tailhold_server.headroom import Free, Need, NoRoomError, check_room, free_host_bytes, need_of
from tailhold_server.snapshots import snapshot_folder
from tailhold_server.snapshots.manifest import DOCUMENTS, VECTORS, Manifest, StoredFile
from tailhold_server.testing import StandInDocument, StandInEncoder, StandInSearcher

MEBIBYTE = 1 << 20
HASH = "0" * 64


def manifest(kind: IndexKind, count: int, dimension: int) -> Manifest:
    return Manifest(
        format=1,
        kind=kind,
        metric="Cosine",
        count=count,
        dimension=dimension,
        vocabulary=9,
        embedder=HASH,
        tokenizer=HASH,
        build=HASH,
        recall=1.0,
        ivfpq=IVFPQStructure(lists=16, subquantizers=8) if kind is IndexKind.IVFPQ else None,
        hnsw=HNSWStructure() if kind is IndexKind.HNSW else None,
        files={DOCUMENTS: StoredFile(bytes=1000, sha256=HASH)},
    )


COUNTS = st.integers(1, 10**7)


@given(st.sampled_from([IndexKind.FLAT, IndexKind.HNSW, IndexKind.IVFPQ]), COUNTS, COUNTS, st.booleans())
def test_more_vectors_need_more(kind: IndexKind, one: int, other: int, on_card: bool) -> None:
    fewer, more = sorted((one, other))
    needs = [need_of(manifest(kind, count, 64), on_card=on_card) for count in (fewer, more)]
    assert needs[0].host <= needs[1].host
    assert needs[0].card <= needs[1].card
    assert (needs[1].card > 0) == (on_card and kind is IndexKind.FLAT)


def test_what_lies_in_the_mapped_file_is_not_counted() -> None:
    million = {
        kind: need_of(manifest(kind, 10**6, 384), on_card=False).host for kind in (IndexKind.FLAT, IndexKind.HNSW)
    }
    assert 384 * 10**6 < million[IndexKind.FLAT] < 2 * 384 * 10**6
    assert million[IndexKind.HNSW] > 4 * 384 * 10**6


@given(st.integers(0, 2**40), st.none() | st.integers(0, 2**40), st.integers(0, 2**40), st.none() | st.integers(0))
def test_what_fits_is_taken_and_nothing_else(host: int, there: int | None, card: int, free: int | None) -> None:
    fits = (there is None or host <= there) and (free is None or card <= free)
    try:
        check_room(HASH, Need(host, card), Free(there, free))
    except NoRoomError:
        assert not fits
    else:
        assert fits


def test_the_refusal_names_place_numbers_and_next_step() -> None:
    with pytest.raises(
        NoRoomError, match=r"needs 600 MiB of host memory .* 512 MiB are free: raise `placement.memoryMebibytes`"
    ):
        check_room(HASH, Need(600 * MEBIBYTE, 0), Free(512 * MEBIBYTE))
    with pytest.raises(NoRoomError, match=r"needs 2 MiB of GPU memory .* 1 MiB are free: lower `engine"):
        check_room(HASH, Need(1, MEBIBYTE + 1), Free(10, MEBIBYTE))


# The reader


def machine(root: Path, *, available_kibibytes: int = 10**6, groups: dict[str, tuple[str, int, int]]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable: {available_kibibytes} kB\n")
    (root / "proc/self/cgroup").write_text("0::/pod/box\n")
    for name, (limit, used, cache) in groups.items():
        folder = root / "sys/fs/cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\nactive_file 7\n")


@pytest.mark.parametrize(
    ("groups", "free"),
    [
        ({}, 10**6 * 1024),
        ({"pod/box": ("max", 100, 0)}, 10**6 * 1024),
        ({"pod/box": ("1000", 400, 50)}, 657),
        ({"pod/box": ("1000", 400, 50), "pod": ("700", 600, 0)}, 107),
        ({"pod/box": ("1000", 2000, 0)}, 0),
        ({"": ("5000", 1000, 0)}, 4007),
    ],
)
def test_the_tightest_limit_counts_and_page_cache_is_free(
    tmp_path: Path, groups: dict[str, tuple[str, int, int]], free: int
) -> None:
    machine(tmp_path, groups=groups)
    assert free_host_bytes(tmp_path) == free


def test_a_machine_that_says_nothing_refuses_nothing(tmp_path: Path) -> None:
    assert free_host_bytes(tmp_path) is None


def test_this_machine_says_something() -> None:
    assert (free_host_bytes() or 0) > 0


# In a server


def snapshot(store: Path, text: str) -> str:
    return store_snapshot(store, [StandInDocument("News", text)])


def test_a_snapshot_without_room_is_refused_before_its_vectors_are_read(tmp_path: Path) -> None:
    name = snapshot(tmp_path, "one")
    (snapshot_folder(tmp_path, name) / VECTORS).unlink()
    opening = Opening(
        partial(snapshot_folder, tmp_path), lambda each: StandInSearcher(each.vectors), lambda: Free(MEBIBYTE)
    )
    with pytest.raises(NoRoomError, match=f"snapshot {name[:10]} needs"):
        opening(name)


def test_without_room_for_three_the_way_back_is_given_up_for_the_way_forward(tmp_path: Path) -> None:
    """And without room for two, what serves goes on serving."""
    one, two, three = (snapshot(tmp_path, text) for text in ("one", "two", "three"))
    room = {1: 2**30, 2: 2**30, 3: 0}
    contents: Contents

    def measure() -> Free:
        return Free(room[1 + len(contents.held)])

    opening = Opening(partial(snapshot_folder, tmp_path), lambda each: StandInSearcher(each.vectors), measure)
    contents = Contents(opening, StandInEncoder(64, fingerprint=""))
    for name in (one, two, three):
        contents.put(contents.load(content_part(name)))
    assert contents.held == (three, two)
    room[2] = 0
    with pytest.raises(NoRoomError):
        contents.load(content_part(one))
    assert contents.current.part.snapshot == three


def test_an_opening_without_a_measure_refuses_nothing(tmp_path: Path) -> None:
    opening = Opening(partial(snapshot_folder, tmp_path), lambda each: StandInSearcher(each.vectors))
    assert dataclasses.replace(opening)(snapshot(tmp_path, "one")).searcher.count == 1
