"""Exact search on a GPU without a word from the CPU between question and answer: one CUDA graph a batch.

Shapes are fixed, so what may be among the best is fixed in number too. Where more might be, the answer says that it is
not certain, and the question is searched again the long way.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tailhold_server.adapters.coarse import Coarse

BATCHES = (1, 2, 4, 8, 16, 32)
"""Questions in a graph."""
PLACES = (16, 64, 256)
"""Places for the best in a graph."""
_GROUP = 64
"""Vectors of which the best stands for all: the best k vectors are in the best k groups."""
_MOST_SCORES = 1 << 28
"""In one graph: 1 GiB, and about as much again between its steps."""


@dataclass(frozen=True)
class Answers:
    """Best first, a row for each question."""

    scores: NDArray[np.float32]
    ids: NDArray[np.int64]
    certain: NDArray[np.bool_]
    """Whether nothing else can be among the best."""


class GraphSearch:
    """Searches all of `coarse` at once and ranks in float64 on the device, where it holds the vectors as well."""

    def __init__(self, coarse: Coarse, rows: Iterable[NDArray[np.float32]], *, cosine: bool) -> None:
        self._coarse = coarse
        self._cosine = cosine
        self._rows = torch.empty(coarse.small.shape, dtype=torch.float32, device=coarse.small.device)
        start = 0
        for block in rows:
            self._rows[start : start + len(block)] = torch.from_numpy(block)
            start += len(block)
        self._graphs: dict[tuple[int, int, bool], _Graph] = {}
        self._pool: Any = None

    def search(self, questions: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Answers | None:
        """The best k of each; None where no graph has so many places, or would need too much memory."""
        places = next((most for most in PLACES if most >= k), 0)
        batches = [size for size in BATCHES if size * len(self._coarse) <= _MOST_SCORES]
        if not places or not batches or groups_for(places) * _GROUP > len(self._coarse):
            return None
        parts = []
        for start in range(0, len(questions), batches[-1]):
            part = questions[start : start + batches[-1]]
            size = next(each for each in batches if each >= len(part))
            parts.append(self._graph(size, places, allowed is not None).answer(part, k, allowed))
        return Answers(*(np.concatenate([getattr(each, name) for each in parts]) for name in vars(parts[0])))

    def _graph(self, size: int, places: int, masked: bool) -> "_Graph":
        known = self._graphs.get((size, places, masked))
        if known is None:
            known = self._graphs[size, places, masked] = _Graph(self, size, places, masked)
        return known

    def step(self, questions: torch.Tensor, k: torch.Tensor, places: int, closed: torch.Tensor | None) -> torch.Tensor:
        """Scores, ids and certainty side by side in float64, so that one copy brings them to the host."""
        asked = self._coarse.ask(questions)
        highest = self._coarse.highest(asked, 0, len(self._coarse))
        if closed is not None:
            highest.masked_fill_(closed, -torch.inf)
        ids, bound = _candidates(highest, places)
        rows = self._rows[ids].double()
        scores = (rows * questions.double().unsqueeze(1)).sum(dim=2).float()
        if self._cosine:
            scores.clamp_(-1, 1)
        scores.masked_fill_(highest.gather(1, ids) == -torch.inf, -torch.inf)
        scores, ids = _ranked(scores, ids)
        kth = scores.gather(1, (k - 1).expand(len(scores), 1))
        certain = (kth > bound * asked.units).double()
        return torch.cat([scores[:, :places].double(), ids[:, :places].double(), certain], dim=1)


class _Graph:
    """One batch size with its buffers."""

    def __init__(self, search: GraphSearch, size: int, places: int, masked: bool) -> None:
        device, (count, dimension) = search._rows.device, search._rows.shape
        self._places = places
        self._asked = torch.zeros((size, dimension), device=device)
        self._k = torch.ones(1, dtype=torch.int64, device=device)
        self._closed = torch.zeros(count, dtype=torch.bool, device=device) if masked else None
        self._mask: NDArray[np.bool_] | None = None
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            for _ in range(2):  # what libraries set up at first must not be captured
                search.step(self._asked, self._k, places, self._closed)
            self._stream.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(
                self._graph, pool=search._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                self._found = search.step(self._asked, self._k, places, self._closed)
        search._pool = search._pool or self._graph.pool()
        self._host = torch.empty(self._found.shape, dtype=self._found.dtype, pin_memory=True)
        self._question = torch.zeros((size, dimension), pin_memory=True)

    def answer(self, questions: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None) -> Answers:
        """Of as many questions as there are; the other places of the batch hold earlier ones."""
        self._question[: len(questions)] = torch.from_numpy(questions)
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            self._asked.copy_(self._question, non_blocking=True)
            self._k.fill_(k)
            if self._closed is not None and allowed is not self._mask:
                self._closed.copy_(torch.from_numpy(~allowed))  # type: ignore[operator]  # a mask, or no buffer for it
                self._mask = allowed
            self._graph.replay()
            self._host.copy_(self._found, non_blocking=True)
            self._stream.synchronize()
        found = self._host[: len(questions)].numpy()
        scores, ids = found[:, :k].astype(np.float32), found[:, self._places : self._places + k].astype(np.int64)
        return Answers(scores, ids, found[:, -1] > 0)


def groups_for(places: int) -> int:
    """Groups that are looked into for so many places."""
    return 2 * places + 64


def _candidates(highest: torch.Tensor, places: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each question the ids of the highest, and the highest that anything else can be."""
    count, groups = highest.shape[1], groups_for(places)
    whole = count // _GROUP * _GROUP
    best = highest[:, :whole].reshape(highest.shape[0], -1, _GROUP).amax(dim=2)
    if whole < count:
        best = torch.cat([best, highest[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    tops, chosen = torch.topk(best, min(groups + 1, best.shape[1]), dim=1)
    others = (
        tops[:, groups:].amax(dim=1, keepdim=True)
        if tops.shape[1] > groups
        else torch.full_like(tops[:, :1], -torch.inf)
    )
    members = (chosen[:, :groups].unsqueeze(2) * _GROUP + torch.arange(_GROUP, device=highest.device)).flatten(1)
    bounds = highest.gather(1, members.clamp(max=count - 1)).masked_fill(members >= count, -torch.inf)
    kept = 8 * places + 128
    values, at = torch.topk(bounds, min(kept + 1, bounds.shape[1]), dim=1)
    left_out = values[:, kept:].amax(dim=1, keepdim=True) if values.shape[1] > kept else others
    return members.gather(1, at[:, :kept]).clamp(max=count - 1), torch.maximum(others, left_out)


def _ranked(scores: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Best first, equal scores by id."""
    by_id = torch.argsort(ids, dim=1)
    scores, ids = scores.gather(1, by_id), ids.gather(1, by_id)
    best = torch.argsort(scores, dim=1, descending=True, stable=True)
    return scores.gather(1, best), ids.gather(1, best)
