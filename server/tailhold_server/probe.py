"""Questions of our own, before clients send any: whether all of them are answered, and how well the index is searched.

They are made of passages of the index, go through the pipeline itself and warm it up; nothing counts them.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tailhold_api.index_kinds import IndexKind
from tailhold_api.rollout import Probe
from tailhold_api.sources import Metric
from tailhold_api.status import ProbeStatus
from tailhold_server.content import Content, Index
from tailhold_server.pipeline import Pipeline
from tailhold_server.question import Message, Question, Role
from tailhold_server.scoring import blocks

NEIGHBOURS = 10
_CHARACTERS = 200
"""Of a passage, as a question."""
_ANSWER_TOKENS = 32
_AT_ONCE = 2
_MOST_NUMBERS = 2**31
"""A larger index is not searched exactly: what was measured when it was built stands for it."""
_LONGEST = 300


async def probe(pipeline: Pipeline, asked: Probe) -> ProbeStatus:
    """Ask so many questions, and compare searches with exact ones. Ends in time, whatever the engine does."""
    content = pipeline.contents.current
    rows = sampled(content.index, asked.requests)
    told: list[str] = []
    answered = 0
    try:
        async with asyncio.timeout(asked.max_seconds):
            found = await recall(pipeline, content, rows)
            for start in range(0, asked.requests, _AT_ONCE):
                texts = [_text(content.index, rows, at) for at in range(start, min(start + _AT_ONCE, asked.requests))]
                words = await asyncio.gather(*(_asked(pipeline, text, start + at) for at, text in enumerate(texts)))
                told += [each for each in words if each]
                answered += sum(1 for each in words if not each)
    except TimeoutError:
        told.append(f"{answered} were answered within {asked.max_seconds} s")
        found = content.index.recall if answered else 0.0
    failed = asked.requests - answered
    return ProbeStatus(
        requests=asked.requests,
        failed=failed,
        recall_percent=round(100 * found, 1),
        message=told[0][:_LONGEST] if failed and told else "",
    )


def sampled(index: Index, count: int) -> NDArray[np.int64]:
    """Chunks that are there, spread over the index: equal for equal indexes."""
    live = np.arange(len(index.chunks)) if index.chunks.live is None else np.flatnonzero(index.chunks.live)
    if len(live) == 0:
        return live
    return live[np.linspace(0, len(live) - 1, min(count, len(live))).astype(np.int64)]


def _text(index: Index, rows: NDArray[np.int64], at: int) -> str:
    if len(rows) == 0:
        return "What is this about?"
    return f"What is said about this: {index.chunks.text(int(rows[at % len(rows)]))[:_CHARACTERS]}"


async def _asked(pipeline: Pipeline, text: str, number: int) -> str:
    """What went wrong; empty where an answer came to its end."""
    question = Question((Message(Role.USER, text),), max_tokens=_ANSWER_TOKENS)
    try:
        async with _answering(pipeline, question, f"probe-{number}") as steps:
            reasons = [reason async for reason in steps]
    except Exception as error:  # Whatever it is, a client would have had no answer.
        return str(error) or type(error).__name__
    return "" if any(reasons) else "an answer did not come to its end"


@asynccontextmanager
async def _answering(
    pipeline: Pipeline, question: Question, request_id: str
) -> AsyncIterator[AsyncIterator[str | None]]:
    answering = await pipeline.answer(question, request_id)
    async with aclosing(answering.steps()) as steps:
        yield (step.finish_reason async for step in steps)


async def recall(pipeline: Pipeline, content: Content, rows: NDArray[np.int64]) -> float:
    """Of the best ten that an exact search finds, the share that the index's own search finds."""
    index, vectors = content.index, content.index.vectors
    if index.kind is IndexKind.FLAT or len(rows) == 0:
        return 1.0
    if vectors is None or vectors.size > _MOST_NUMBERS:
        return index.recall
    questions = np.ascontiguousarray(vectors[rows])
    k = min(NEIGHBOURS + 1, index.searcher.count)
    search = partial(index.searcher.search, questions, k, content.part.search, allowed=index.chunks.live)
    _, found = await pipeline.when_idle(search)
    exact = await asyncio.to_thread(neighbours, vectors, questions, k, index.metric, index.chunks.live)
    return share(exact, found.tolist(), rows.tolist())


def share(exact: Sequence[Sequence[int]], found: Sequence[Sequence[int]], own: Sequence[int]) -> float:
    """Of the exact ids, those that were found; 1 where there is nothing to find. That each finds itself counts for
    nothing."""
    wanted = [{each for each in row if each not in (-1, itself)} for row, itself in zip(exact, own, strict=True)]
    hits = sum(len(ours & set(theirs)) for ours, theirs in zip(wanted, found, strict=True))
    return hits / total if (total := sum(map(len, wanted))) else 1.0


def neighbours(
    vectors: NDArray[np.float32],
    questions: NDArray[np.float32],
    k: int,
    metric: Metric,
    allowed: NDArray[np.bool_] | None = None,
) -> list[list[int]]:
    """The ids of the best `k` vectors for each question, in no order, by comparing it with every one."""
    best = np.full((len(questions), 0), -np.inf, np.float32)
    ids = np.full((len(questions), 0), -1, np.int64)
    start = 0
    for block in blocks(vectors, cosine=metric is Metric.COSINE):
        scores = questions @ block.T
        if allowed is not None:
            scores[:, ~allowed[start : start + len(block)]] = -np.inf
        numbers = np.broadcast_to(np.arange(start, start + len(block)), scores.shape)
        best, ids = np.concatenate([best, scores], axis=1), np.concatenate([ids, numbers], axis=1)
        kept = np.argpartition(-best, min(k, best.shape[1]) - 1, axis=1)[:, :k]
        best, ids = np.take_along_axis(best, kept, axis=1), np.take_along_axis(ids, kept, axis=1)
        start += len(block)
    found: list[list[int]] = np.where(np.isfinite(best), ids, -1).tolist()
    return found
