"""Times the exact search and proves it: `python -m tailhold_bench.exact_search --help`.

Clustered vectors, questions that are none of them. What it finds is compared with a brute force in float32 over all
vectors; what it takes, with the time that the device needs to read the bytes once, with torch's plain product and
top-k, and with FAISS's IndexFlatIP on this machine's CPU where FAISS is there. All in one run.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tailhold_api.sources import Metric
from tailhold_bench.clustered import vectors
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.adapters.threads import limit_threads
from tailhold_server.scoring import normalised

_TOP = 10
_BATCHES = (1, 8, 32)
_BLOCK = 1 << 16
_SAME = 2e-6
"""Float32 products that are nearer than this may stand in either order."""

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Search = Callable[[Vectors], object]


class Found(NamedTuple):
    """How a search compares with the brute force."""

    recall: float
    in_order: float
    """Share of the questions whose common ids stand in the same order, equal scores aside."""


class Times(NamedTuple):
    """Milliseconds of one call."""

    p50: float
    p99: float


def brute_force(stored: Vectors, questions: Vectors, device: str) -> tuple[Vectors, Ids]:
    """The best ten by float32 products with every vector; both are of length 1."""
    asked = torch.from_numpy(questions).to(device)
    best = torch.full((len(questions), _TOP), -torch.inf, device=device)
    ids = torch.zeros((len(questions), _TOP), dtype=torch.int64, device=device)
    for start in range(0, len(stored), _BLOCK):
        block = torch.from_numpy(stored[start : start + _BLOCK]).to(device)
        scores = torch.cat([best, asked @ block.T], dim=1)
        known = torch.cat([ids, torch.arange(start, start + len(block), device=device).expand(len(asked), -1)], dim=1)
        best, at = torch.topk(scores, _TOP, dim=1)
        ids = known.gather(1, at)
    return best.cpu().numpy(), ids.cpu().numpy()


def compared(found: Ids, scores: Vectors, truth: Ids) -> Found:
    """Recall and order."""
    hits = sum(len(set(ours) & set(theirs)) for ours, theirs in zip(found.tolist(), truth.tolist(), strict=True))
    ordered = [
        _in_order([each for each in ours if each in theirs], dict(zip(theirs, row, strict=True)))
        for ours, theirs, row in zip(found.tolist(), truth.tolist(), scores.tolist(), strict=True)
    ]
    return Found(hits / truth.size, sum(ordered) / len(ordered))


def _in_order(common: list[int], scores: dict[int, float]) -> bool:
    return all(scores[one] >= scores[two] - _SAME for one, two in pairwise(common))


def timed(search: Search, questions: Vectors, batch: int, seconds: float) -> Times:
    """For so long, at least ten calls."""
    starts = list(range(0, len(questions) - batch + 1, batch))
    for start in starts[:3]:
        search(questions[start : start + batch])
    taken: list[float] = []
    while sum(taken) < 1000 * seconds or len(taken) < 10:
        start = starts[len(taken) % len(starts)]
        began = time.perf_counter()
        search(questions[start : start + batch])
        taken.append(1000 * (time.perf_counter() - began))
    return Times(float(np.median(taken)), float(np.percentile(taken, 99)))


def bandwidth(device: str) -> float:
    """Bytes a second that are read from memory: the best of several sums over what no cache holds."""
    data = torch.ones((1 << 28) if device == "cuda" else (1 << 27), dtype=torch.float32, device=device)
    best = 0.0
    for _ in range(8):
        began = time.perf_counter()
        data.sum()
        _wait(device)
        best = max(best, data.nbytes / (time.perf_counter() - began))
    return best


def rivals(stored: Vectors, device: str) -> Iterator[tuple[str, int, Search]]:
    """Others over the same vectors: name, bytes that one pass reads, and the search."""
    kind = torch.float32 if device == "cpu" else torch.float16
    rows = torch.from_numpy(stored).to(device, kind)

    def plain(questions: Vectors) -> object:
        asked = torch.from_numpy(questions).to(device, kind)
        return torch.topk(asked @ rows.T, _TOP, dim=1).indices.cpu()

    yield f"torch product and topk, {str(kind)[6:]}", rows.nbytes, plain
    if importlib.util.find_spec("faiss") is not None:
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())
        index = faiss.IndexFlatIP(stored.shape[1])
        for start in range(0, len(stored), _BLOCK):
            index.add(stored[start : start + _BLOCK])
        yield "FAISS IndexFlatIP, CPU", stored.nbytes, lambda questions: index.search(questions, _TOP)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _table(stored: Vectors, questions: Vectors, searcher: FlatSearcher, device: str, seconds: float) -> None:
    speed, small = bandwidth(device), searcher.bytes_looked_at
    print(
        f"memory: {speed / 1e9:.1f} GB/s read; floor of one look at {small / 1e6:.0f} MB: {1000 * small / speed:.3f} ms"
    )
    print("\n| search | batch | ms p50 | ms p99 | ms a question | MB a pass | to the floor of its bytes |")
    print("|---|---|---|---|---|---|---|")
    half = np.random.default_rng(3).random(len(stored)) < 0.5

    def row(name: str, held: int, search: Search) -> None:
        for batch in _BATCHES:
            taken, floor = timed(search, questions, batch, seconds), 1000 * held / speed
            print(
                f"| {name} | {batch} | {taken.p50:.3f} | {taken.p99:.3f} | {taken.p50 / batch:.3f} | {held / 1e6:.0f} "
                f"| {taken.p50 / floor:.1f} |",
                flush=True,
            )

    row("ours", small, lambda asked: searcher.search(asked, _TOP))
    row("ours, half of all allowed", small, lambda asked: searcher.search(asked, _TOP, allowed=half))
    for name, held, search in rivals(stored, device):
        row(name, held, search)


def main() -> int:
    """Print the proof and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--count", type=int, default=1_000_000, help="vectors (default: %(default)s)")
    parser.add_argument("--dimension", type=int, default=384, help="numbers in a vector (default: %(default)s)")
    parser.add_argument("--subjects", type=int, default=20_000, help="middles they lie around (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=256, help="that recall is taken over (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of timing for each row (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU (default: %(default)s)")
    args = parser.parse_args()
    limit_threads(args.threads)
    stored = vectors(args.count, args.dimension, subjects=args.subjects, seed=1)
    for start in range(0, len(stored), _BLOCK):
        stored[start : start + _BLOCK] = normalised(stored[start : start + _BLOCK])
    questions = normalised(vectors(args.questions, args.dimension, subjects=args.subjects, seed=2))
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {args.threads} thread(s)"
    print(f"{args.count:,} vectors x {args.dimension}, {args.subjects:,} subjects; {where}; torch {torch.__version__}")
    began = time.perf_counter()
    searcher = FlatSearcher(stored, Metric.COSINE, args.device)
    print(f"opened in {time.perf_counter() - began:.1f} s")
    scores, truth = brute_force(stored, questions, args.device)
    _, found = searcher.search(questions, _TOP)
    proved = compared(found, scores, truth)
    print(f"against float32 brute force, {len(questions)} questions: recall@10 {proved.recall:.5f}, ", end="")
    print(f"order the same (equal scores aside) for {100 * proved.in_order:.2f} %")
    _table(stored, questions, searcher, args.device, args.seconds)
    return 0 if proved.recall >= 0.999 else 1


if __name__ == "__main__":
    sys.exit(main())
