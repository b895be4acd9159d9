"""Exact search: the question against every vector."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tailhold_api.index_kinds import BY_DEFAULT, SearchParameters
from tailhold_api.sources import Metric
from tailhold_server.scoring import check_questions, compared, ranked, unfilled

_BLOCK_SCORES = 1 << 24
"""Scores held at once: 64 MiB."""
_ROUNDING = float(np.finfo(np.float32).eps)


class FlatSearcher:
    """Finds the true nearest vectors, in an order that depends on neither batch nor machine.

    A float32 product shortlists all that its rounding lets be among the best; float64 ranks the shortlist.
    Equal scores stand by id. Cosine scores are clipped to [-1, 1]; a zero vector scores 0.
    """

    def __init__(self, vectors: NDArray[np.float32], metric: Metric, device: str = "cpu") -> None:
        if not np.isfinite(vectors).all():
            raise ValueError("the index holds NaN or infinity")
        self._cosine = metric is Metric.COSINE
        rows = compared(vectors, cosine=self._cosine)
        self._rows = torch.from_numpy(rows).to(device)
        self._longest = float(np.linalg.norm(rows, axis=1).max(initial=0.0))

    @property
    def count(self) -> int:
        """Vectors searched."""
        return self._rows.shape[0]

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        parameters: SearchParameters = BY_DEFAULT,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores, best first, and ids; a place that nothing fills has id -1 and score -inf.

        There are no parameters that matter. Raises ValueError for a question that is not finite.
        """
        check_questions(vectors)
        questions = compared(vectors, cosine=self._cosine)
        scores, ids = unfilled(len(questions), k)
        among = self.count if allowed is None else int(np.count_nonzero(allowed))
        for row, (question, found) in enumerate(self._shortlists(questions, min(k, among), allowed)):
            best_scores, best_ids = self._rank(question, found, k)
            scores[row, : len(best_ids)], ids[row, : len(best_ids)] = best_scores, best_ids
        return scores, ids

    @torch.inference_mode()
    def _shortlists(
        self, questions: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        step = max(1, _BLOCK_SCORES // max(1, self.count))
        left_out = None if allowed is None else torch.from_numpy(~allowed).to(self._rows.device)
        for start in range(0, len(questions) if k else 0, step):
            block = questions[start : start + step]
            scores = torch.from_numpy(block).to(self._rows.device) @ self._rows.T
            if left_out is not None:
                scores.masked_fill_(left_out, -torch.inf)
            kth = torch.topk(scores, k, dim=1).values[:, -1]
            for question, row, least in zip(block, scores, kth.tolist(), strict=True):
                near = torch.nonzero(row >= least - self._margin(question))
                yield question, near.flatten().cpu().numpy()

    def _margin(self, question: NDArray[np.float32]) -> float:
        # Twice the worst rounding of a float32 product: the k-th score and its rival may err opposite ways.
        return 2 * len(question) * _ROUNDING * float(np.linalg.norm(question)) * self._longest

    def _rank(
        self, question: NDArray[np.float32], found: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        rows = self._rows[torch.from_numpy(found).to(self._rows.device)].cpu().numpy()
        return ranked(rows, found, question, k, cosine=self._cosine)
