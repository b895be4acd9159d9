"""Compares the kinds of index on vectors like those of texts: `python -m tailhold_bench.index_kinds --help`.

The vectors are made up (`clustered`); questions are drawn as they are and are none of them. One thread builds and
searches, one question at a time. What a kind finds is compared with what the exact search finds (`exact_search` proves
that one), and its time with the exact search's in the same run. A factor of 1 is IVFPQ without re-scoring.
"""

import argparse
import sys
import time
from collections.abc import Container, Iterator
from typing import NamedTuple

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from tailhold_api.index_kinds import BY_DEFAULT, HNSWStructure, IVFPQStructure, SearchParameters
from tailhold_api.index_memory import index_bytes, vector_bytes
from tailhold_api.sources import Metric
from tailhold_bench.clustered import vectors
from tailhold_bench.exact_search import Times, bandwidth
from tailhold_server.adapters.faiss import searcher_of
from tailhold_server.adapters.faiss_build import build_hnsw, build_ivfpq
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.adapters.threads import limit_threads
from tailhold_server.ingest.structure import recall
from tailhold_server.ports import Searcher

KINDS = ("IVFPQ", "HNSW")
_TOP = 10
_PROBES_AND_FACTORS = ((8, 10), (32, 1), (32, 10), (32, 40), (64, 10), (128, 1), (128, 10), (256, 10))
"""The defaults are 32 and 10."""
_EFFORTS = (16, 64, 256)
"""The default is 64."""

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]


class Row(NamedTuple):
    """A kind with what it was told, and what came of it."""

    kind: str
    told: str
    build_seconds: float
    mebibytes: float
    beside_vectors: float
    """Of `mebibytes`, what is not the vectors themselves."""
    recall: float
    times: Times


class Shape(NamedTuple):
    """What the approximate kinds are built of."""

    ivfpq: IVFPQStructure
    hnsw: HNSWStructure


def compare(stored: Vectors, questions: Vectors, shape: Shape, kinds: Container[str] = KINDS) -> Iterator[Row]:
    """A row for each kind and setting, as they are done; the exact search first, which the others are compared with."""
    count, dimension = stored.shape
    began = time.monotonic()
    exact = FlatSearcher(stored, Metric.COSINE)
    loaded = time.monotonic() - began
    truth, passed = _search(exact, questions, BY_DEFAULT)
    yield Row("Flat", "", loaded, index_bytes(None, dimension, count) / 2**20, 0.0, 1.0, passed)
    del exact
    if "IVFPQ" in kinds:
        began = time.monotonic()
        lists = build_ivfpq(stored, shape.ivfpq, cosine=True)
        searched = _Searched(searcher_of(stored, Metric.COSINE, lists), shape.ivfpq, time.monotonic() - began)
        for probes, factor in _PROBES_AND_FACTORS:
            told = SearchParameters(probes=probes, rescore_factor=factor)
            yield searched.row(questions, truth, told, f"probes {probes}, factor {factor}")
    if "HNSW" in kinds:
        began = time.monotonic()
        graph = build_hnsw(stored, shape.hnsw, cosine=True)
        searched = _Searched(searcher_of(stored, Metric.COSINE, graph), shape.hnsw, time.monotonic() - began)
        for effort in _EFFORTS:
            yield searched.row(questions, truth, SearchParameters(ef_search=effort), f"efSearch {effort}")


class _Searched(NamedTuple):
    """An index with what it was built of, and for how long."""

    searcher: Searcher
    structure: IVFPQStructure | HNSWStructure
    build_seconds: float

    def row(self, questions: Vectors, truth: Ids, told: SearchParameters, words: str) -> Row:
        """What comes of such a search."""
        found, passed = _search(self.searcher, questions, told)
        dimension, count = questions.shape[1], self.searcher.count
        held = index_bytes(self.structure, dimension, count)
        beside = held - vector_bytes(dimension, count)
        kind = "HNSW" if isinstance(self.structure, HNSWStructure) else "IVFPQ"
        share = recall(truth.tolist(), found.tolist())
        return Row(kind, words, self.build_seconds, held / 2**20, beside / 2**20, share, passed)


def _search(searcher: Searcher, questions: Vectors, told: SearchParameters) -> tuple[Ids, Times]:
    found, times = [], []
    for place in range(3):
        searcher.search(questions[place : place + 1], _TOP, told)
    for place in range(len(questions)):
        began = time.perf_counter()
        found.append(searcher.search(questions[place : place + 1], _TOP, told)[1][0])
        times.append(1000 * (time.perf_counter() - began))
    return np.array(found), Times(float(np.median(times)), float(np.percentile(times, 99)))


def shown(row: Row, flat: float) -> str:
    """A line of the table."""
    return (
        f"| `{row.kind}` | {row.told} | {row.build_seconds:.0f} | {row.mebibytes:.0f} | {row.beside_vectors:.0f} | "
        f"{row.recall:.3f} | {row.times.p50:.2f} | {row.times.p99:.2f} | {row.times.p50 / flat:.3f} |"
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="vectors (default: %(default)s)")
    parser.add_argument("--dimension", type=int, default=384, help="numbers in a vector (default: %(default)s)")
    parser.add_argument("--subjects", type=int, default=2000, help="middles they lie around (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=300, help="searches that are timed (default: %(default)s)")
    parser.add_argument("--lists", type=int, default=1024, help="of IVFPQ (default: %(default)s)")
    parser.add_argument("--subquantizers", type=int, default=64, help="of IVFPQ (default: %(default)s)")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="beside Flat (default: all)")
    args = parser.parse_args()
    limit_threads(1)
    stored = vectors(args.count, args.dimension, subjects=args.subjects, seed=1)
    questions = vectors(args.questions, args.dimension, subjects=args.subjects, seed=2)
    shape = Shape(IVFPQStructure(lists=args.lists, subquantizers=args.subquantizers), HNSWStructure())
    speed = bandwidth("cpu")
    print(
        f"{args.count:,} vectors x {args.dimension}, {args.subjects:,} subjects, {args.questions} questions, Cosine, "
        f"one CPU thread; FAISS {faiss.__version__}, torch {torch.__version__}\n"
        f"IVFPQ: {shape.ivfpq!r}; HNSW: {shape.hnsw!r}\n"
        f"memory: {speed / 1e9:.1f} GB/s read; floor of reading all vectors once: "
        f"{1000 * stored.nbytes / speed:.1f} ms\n"
    )
    print("| kind | told | build s | MiB | of them beside the vectors | recall@10 | ms p50 | ms p99 | p50 to Flat |")
    print("|---|---|---|---|---|---|---|---|---|")
    flat = 0.0
    for row in compare(stored, questions, shape, args.kinds):
        flat = flat or row.times.p50
        print(shown(row, flat), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
