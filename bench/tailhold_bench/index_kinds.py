"""Compares the kinds of index on vectors like those of texts: `python -m tailhold_bench.index_kinds --help`.

The vectors are made up (`clustered`); questions are drawn as they are and are none of them. One thread searches, one
question at a time.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailhold_api.index_kinds import BY_DEFAULT, HNSWStructure, IVFPQStructure, SearchParameters
from tailhold_api.index_memory import index_bytes, vector_bytes
from tailhold_api.sources import Metric
from tailhold_bench.clustered import vectors
from tailhold_server.adapters.faiss import searcher_of
from tailhold_server.adapters.faiss_build import build_hnsw, build_ivfpq
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.adapters.threads import limit_threads
from tailhold_server.ingest.structure import recall
from tailhold_server.ports import Searcher

_TOP = 10

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
    milliseconds: float
    """Median of one search."""


def compare(stored: Vectors, questions: Vectors, lists: int, subquantizers: int) -> Iterator[Row]:
    """A row for each kind and setting, as they are done."""
    count, dimension = stored.shape
    began = time.monotonic()
    exact = FlatSearcher(stored, Metric.COSINE)
    loaded = time.monotonic() - began
    truth, passed = _search(exact, questions, BY_DEFAULT)
    yield Row("Flat", "", loaded, index_bytes(None, dimension, count) / 2**20, 0.0, 1.0, passed)
    ivfpq, hnsw = IVFPQStructure(lists=lists, subquantizers=subquantizers), HNSWStructure()
    began = time.monotonic()
    codes = build_ivfpq(stored, ivfpq, cosine=True)
    built = time.monotonic() - began
    searcher = searcher_of(stored, Metric.COSINE, codes)
    for probes, factor in ((8, 10), (32, 1), (32, 10), (32, 40), (128, 10)):
        told = SearchParameters(probes=probes, rescore_factor=factor)
        yield _row(searcher, ivfpq, questions, truth, told, built, f"probes {probes}, factor {factor}", dimension)
    began = time.monotonic()
    graph = build_hnsw(stored, hnsw, cosine=True)
    built = time.monotonic() - began
    searcher = searcher_of(stored, Metric.COSINE, graph)
    for effort in (16, 64, 256):
        told = SearchParameters(ef_search=effort)
        yield _row(searcher, hnsw, questions, truth, told, built, f"efSearch {effort}", dimension)


def _row(
    searcher: Searcher,
    structure: IVFPQStructure | HNSWStructure,
    questions: Vectors,
    truth: Ids,
    told: SearchParameters,
    built: float,
    words: str,
    dimension: int,
) -> Row:
    found, passed = _search(searcher, questions, told)
    held = index_bytes(structure, dimension, searcher.count)
    beside = held - vector_bytes(dimension, searcher.count)
    kind = "HNSW" if isinstance(structure, HNSWStructure) else "IVFPQ"
    share = recall(truth.tolist(), found.tolist())
    return Row(kind, words, built, held / 2**20, beside / 2**20, share, passed)


def _search(searcher: Searcher, questions: Vectors, told: SearchParameters) -> tuple[Ids, float]:
    found, times = [], []
    for place in range(len(questions)):
        began = time.perf_counter()
        found.append(searcher.search(questions[place : place + 1], _TOP, told)[1][0])
        times.append(time.perf_counter() - began)
    return np.array(found), 1000 * float(np.median(times))


def shown(row: Row, flat: float) -> str:
    """A line of the table."""
    return (
        f"| `{row.kind}` | {row.told} | {row.build_seconds:.0f} | {row.mebibytes:.0f} | {row.beside_vectors:.0f} | "
        f"{row.recall:.3f} | {row.milliseconds:.2f} | {row.milliseconds / flat:.2f} |"
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
    args = parser.parse_args()
    limit_threads(1)
    stored = vectors(args.count, args.dimension, subjects=args.subjects, seed=1)
    questions = vectors(args.questions, args.dimension, subjects=args.subjects, seed=2)
    print("| kind | told | build s | MiB | of them beside the vectors | recall@10 | ms a search | to Flat |")
    print("|---|---|---|---|---|---|---|---|")
    flat = 0.0
    for row in compare(stored, questions, args.lists, args.subquantizers):
        flat = flat or row.milliseconds
        print(shown(row, flat), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
