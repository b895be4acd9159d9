"""Snapshots of every kind with bits flipped and hashes that agree again, opened and searched as a server does.

A child process does it: if native code crashed, the test would see its end, and not end itself. It is no copy of ours:
a lock that a thread of native code holds at the fork would be held for ever.
"""

import hashlib
import multiprocessing
import random
import resource
import shutil
from collections import Counter
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.index.test_snapshots import VOCABULARY, seal
from tests.index.test_structure import COUNT, DIMENSION, VECTORS, contents

from tailhold_api.index_kinds import IndexKind, SearchParameters
from tailhold_server.backends import Opening, searcher
from tailhold_server.content import Index, check_encoder
from tailhold_server.errors import ContentRefusedError
from tailhold_server.ports import Document
from tailhold_server.snapshots import snapshot_folder, write_snapshot
from tailhold_server.snapshots.manifest import MANIFEST
from tailhold_server.snapshots.tombstones import Tombstones
from tailhold_server.testing import StandInEncoder

KINDS = (IndexKind.FLAT, IndexKind.HNSW, IndexKind.IVFPQ)
MEMORY_BYTES = 6 << 30
"""More than the process has when it begins: a length that a file chose would run into it."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[IndexKind, Path]:
    root = tmp_path_factory.mktemp("stores")
    return {kind: snapshot_folder(root / kind, write_snapshot(root / kind, contents(kind))) for kind in KINDS}


def flip(folder: Path, draw: random.Random) -> str:
    """One to four bits of one file, the manifest among them; returns the name that agrees with it."""
    file = draw.choice(sorted(each.name for each in folder.iterdir()))
    data = bytearray((folder / file).read_bytes())
    for _ in range(draw.choice((1, 1, 2, 4))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    (folder / file).write_bytes(bytes(data))
    return seal(folder) if file != MANIFEST else _named(folder, bytes(data))


def _named(folder: Path, manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()


def serve(index: Index) -> None:
    """All that a server does with an index: every answer is in range."""
    chunks = index.chunks
    for parameters in (SearchParameters(), SearchParameters(probes=1, rescore_factor=1, ef_search=1)):
        for allowed in (None, np.arange(len(chunks)) % 3 > 0):
            scores, ids = index.searcher.search(VECTORS[:4], 12, parameters, allowed=allowed)
            assert ((ids >= -1) & (ids < len(chunks))).all()
            assert np.isfinite(scores[ids >= 0]).all()
            assert allowed is None or allowed[ids[ids >= 0]].all()
    for number in range(0, len(chunks), 37):
        assert isinstance(chunks.text(number), str)
        assert all(0 <= token < VOCABULARY * 2**31 for token in chunks.token_ids(number))
        assert index.find(chunks.source(number).key) is not None
    deleted = Tombstones({}).hides(Document("s", "a", "", None))
    assert not deleted
    index.after(Tombstones({}))


def mutate(source: str, store: str, kind: str, seeds: range, pipe: Connection) -> None:
    """In the child: counts of what came of it, or the seed and the error that must not be."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = psutil.Process().memory_info().vms + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    seen: Counter[str] = Counter()
    opening, root = Opening(partial(snapshot_folder, Path(store)), searcher), Path(store) / "snapshots"
    for seed in seeds:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(source, root / "copy")
        name = flip(root / "copy", random.Random(f"{kind} {seed}"))  # noqa: S311  seeded
        (root / "copy").rename(root / name)
        pipe.send(seed)
        try:
            index = opening(name)
            check_encoder(index, StandInEncoder(DIMENSION, fingerprint=""))
        except ContentRefusedError:
            seen["refused"] += 1
            continue
        except BaseException as error:
            pipe.send(f"seed {seed}: {type(error).__name__} on opening: {error}")
            return
        try:
            serve(index)
        except BaseException as error:
            pipe.send(f"seed {seed}: {type(error).__name__}: {error}")
            return
        seen["served"] += 1
    pipe.send(seen)


@pytest.mark.parametrize("flips", [340, pytest.param(3400, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_in_a_snapshot_it_is_refused_or_served_within_its_bounds(
    stores: dict[IndexKind, Path], tmp_path: Path, kind: IndexKind, flips: int
) -> None:
    ours, theirs = multiprocessing.Pipe()
    given = (str(stores[kind]), str(tmp_path), kind.value, range(flips), theirs)
    child = multiprocessing.get_context("spawn").Process(target=mutate, args=given)
    child.start()
    theirs.close()
    last: object = None
    try:
        while not isinstance(last, Counter):
            last = ours.recv()
            assert not isinstance(last, str), last
    except EOFError:
        pytest.fail(f"the process ended with {child.exitcode} at seed {last}")
    finally:
        child.join(30)
    assert sum(last.values()) == flips
    assert last["refused"] > flips / 20
    assert last["served"] > flips / 20
    print(f"{kind.value}: {flips} mutated snapshots: {dict(last)}")


def test_the_untouched_ones_are_served(stores: dict[IndexKind, Path]) -> None:
    for folder in stores.values():
        index = Opening(partial(snapshot_folder, folder.parent.parent), searcher)(folder.name)
        assert (len(index.chunks), index.dimension) == (COUNT, DIMENSION)
        serve(index)
