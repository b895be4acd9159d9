"""Exact search: the question against every vector."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tailhold_api.index_kinds import BY_DEFAULT, SearchParameters
from tailhold_api.sources import Metric
from tailhold_server.adapters.coarse import Coarse
from tailhold_server.adapters.flat_graph import GraphSearch
from tailhold_server.scoring import MOST_NUMBER, best_of, blocks, check_search, compared, normalised, unfilled, usable

_KINDS = {"cpu": torch.int8, "cuda": torch.float16}
_BATCH = 64
"""Questions that are looked up in one pass."""
_BLOCK_SCORES = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Scores held at once: on a CPU so few that they stay in its caches."""
_MOST_ROWS = {"cpu": 1 << 15, "cuda": 1 << 26}
_MOST_NEAR = 1 << 16
"""Vectors that may be among a question's best before they are compared in full."""

_LEAST = float(np.finfo(np.float32).min)
"""Less than any score, and more than that of a vector that is not allowed."""

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Allowed = NDArray[np.bool_]


class FlatSearcher:
    """Finds the true nearest vectors, in an order that depends on neither batch nor machine.

    A first look at small copies of the vectors (`Coarse`) leaves all that may be among the best; float64 ranks those by
    the vectors themselves, which stay where they are: in the snapshot's mapped file. Equal scores stand by id. Cosine
    scores are clipped to [-1, 1]; a zero vector scores 0.
    """

    def __init__(self, vectors: Vectors, metric: Metric, device: str = "cpu") -> None:
        self._cosine = metric is Metric.COSINE
        self._vectors = vectors
        self._coarse = Coarse(self._finite(), *vectors.shape, kind=_KINDS[device], device=device)
        self._device = device
        self._graph = GraphSearch(self._coarse, self._finite(), cosine=self._cosine) if device == "cuda" else None

    @property
    def count(self) -> int:
        """Vectors searched."""
        return len(self._vectors)

    @property
    def bytes_looked_at(self) -> int:
        """By one look at all vectors."""
        return self._coarse.small.nbytes + self._coarse.scales.nbytes

    def search(
        self,
        vectors: Vectors,
        k: int,
        parameters: SearchParameters = BY_DEFAULT,
        *,
        allowed: Allowed | None = None,
    ) -> tuple[Vectors, Ids]:
        """Scores, best first, and ids; a place that nothing fills has id -1 and score -inf.

        There are no parameters that matter. Raises ValueError for a question that is not finite, for more places than
        are given, and for a mask of another length.
        """
        check_search(vectors, k, allowed, self.count)
        questions = compared(vectors, cosine=self._cosine)
        scores, ids = unfilled(len(questions), k)
        wanted = min(k, self.count if allowed is None else int(np.count_nonzero(allowed)))
        if not wanted:
            return scores, ids
        for row, best in self._found(questions, wanted, allowed):
            scores[row, : len(best[0])], ids[row, : len(best[0])] = best
        return scores, ids

    def _found(self, questions: Vectors, k: int, allowed: Allowed | None) -> Iterator[tuple[int, tuple[Vectors, Ids]]]:
        left = np.arange(len(questions))
        if self._graph is not None and (done := self._graph.search(questions, k, allowed)) is not None:
            yield from enumerate(zip(done.scores, done.ids, strict=True))
            left = np.flatnonzero(~done.certain)
        for start in range(0, len(left), _BATCH):
            rows = left[start : start + _BATCH]
            for row, near in zip(rows.tolist(), self._near(questions[rows], k, allowed), strict=True):
                yield row, best_of(self._rows, near.ids, questions[row], k, cosine=self._cosine)

    @torch.inference_mode()
    def _near(self, questions: Vectors, k: int, allowed: Allowed | None) -> "list[_Near]":
        """For each question all that may be among its best."""
        asked = self._coarse.ask(torch.from_numpy(questions).to(self._device))
        sizes = torch.cat([2 * asked.slack, asked.units], dim=1).tolist()
        found = [_Near(k, gap, unit) for gap, unit in sizes]
        closed = None if allowed is None else torch.from_numpy(~allowed).to(self._device)
        step = max(1, min(_MOST_ROWS[self._device], _BLOCK_SCORES[self._device] // len(questions)))
        for number, start in enumerate(range(0, self.count, step), 1):
            highest = self._coarse.highest(asked, start, min(start + step, self.count))
            if closed is not None:
                highest.masked_fill_(closed[start : start + step], -torch.inf)
            self._add(found, highest, start)
            # Often enough that little is kept, and seldom enough to cost nothing.
            if number & (number - 1) == 0 or start + step >= self.count:
                self._prune(found, questions)
        return found

    def _add(self, found: "list[_Near]", highest: torch.Tensor, start: int) -> None:
        if start == 0:
            first_scales = self._coarse.scales[: highest.shape[1]]
            for near, row in zip(found, highest, strict=True):
                near.least = _kth(row - near.gap * first_scales, near.k)
        least = torch.tensor([near.least for near in found], device=highest.device).unsqueeze(1)
        rows, columns = torch.nonzero(highest >= least, as_tuple=True)
        bounds, scales = highest[rows, columns].cpu().numpy(), self._coarse.scales[columns + start].cpu().numpy()
        ends = np.cumsum(np.bincount(rows.cpu().numpy(), minlength=len(found)))
        ids = columns.cpu().numpy() + start
        for near, first, last in zip(found, (0, *ends[:-1]), ends, strict=True):
            near.add(ids[first:last], bounds[first:last], scales[first:last])

    def _prune(self, found: "list[_Near]", questions: Vectors) -> None:
        for near, question in zip(found, questions, strict=True):
            near.prune()
            if len(near.ids) > _MOST_NEAR:
                near.settle(*best_of(self._rows, near.ids, question, near.k, cosine=self._cosine))

    def _rows(self, ids: Ids) -> Vectors:
        rows = self._vectors[ids]
        return normalised(rows) if self._cosine else rows

    def _finite(self) -> Iterator[Vectors]:
        for block in blocks(self._vectors, cosine=False):
            if not usable(block).all():
                raise ValueError(f"the index holds NaN, infinity, or numbers beyond {MOST_NUMBER:g}")
            yield normalised(block) if self._cosine else block


class _Near:
    """What may be among one question's best `k`, with the highest and the lowest that each score can be.

    In the question's units.
    """

    def __init__(self, k: int, gap: float, unit: float) -> None:
        self.k = k
        self.gap = gap
        """Between the two, in units of a vector's scale."""
        self.unit = unit
        self.least = _LEAST
        """So much have the best `k` at least."""
        self.ids: Ids = np.empty(0, dtype=np.int64)
        self._highest = self._lowest = np.empty(0, dtype=np.float32)

    def add(self, ids: Ids, highest: Vectors, scales: Vectors) -> None:
        """Some more."""
        self.ids = np.concatenate([self.ids, ids])
        self._highest = np.concatenate([self._highest, highest])
        self._lowest = np.concatenate([self._lowest, highest - self.gap * scales])

    def prune(self) -> None:
        """Leave out what cannot be among the best any more."""
        if len(self.ids) > self.k:
            self.least = max(self.least, float(np.partition(self._lowest, -self.k)[-self.k]))
            kept = self._highest >= self.least
            self.ids, self._highest, self._lowest = self.ids[kept], self._highest[kept], self._lowest[kept]

    def settle(self, scores: Vectors, ids: Ids) -> None:
        """These are the best so far. What is as good as the last of them comes after it: ids only grow."""
        self.ids, self._highest, self._lowest = ids, np.full_like(scores, np.inf), scores / np.float32(self.unit)
        self.least = max(self.least, float(np.nextafter(scores[-1], np.float32(np.inf))) / self.unit)


def _kth(scores: torch.Tensor, k: int) -> float:
    return max(_LEAST, float(torch.topk(scores, k).values[-1])) if k <= len(scores) else _LEAST
