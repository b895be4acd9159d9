"""What a pod finds when it asks itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_key import allowing, token, written_key
from rag_server import SNAPSHOT, Running, running

from tailhold_api.codec import dump
from tailhold_api.index_kinds import IndexKind
from tailhold_api.rollout import Probe
from tailhold_api.sources import Metric
from tailhold_server.probe import neighbours, share
from tailhold_server.testing import StandInEngine, StandInSearcher


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return written_key(tmp_path)


async def probed(server: Running, **asked: Any) -> dict[str, Any]:
    headers = {"authorization": token()}
    answer = await server.internal.post("/internal/probe", content=dump(Probe(**asked)), headers=headers)
    return dict(answer.raise_for_status().json())


async def test_all_questions_are_answered_and_none_is_counted(key_file: Path) -> None:
    engine = StandInEngine()
    async with running(engine=engine, settings=allowing(key_file)) as server:
        before = len(engine.prompts)
        found = await probed(server, requests=6)
        metrics = (await server.internal.get("/metrics")).text
        assert len(engine.prompts) == before + 6
    assert (found["requests"], found["failed"], found["recallPercent"], found["message"]) == (6, 0, 100, "")
    assert 'tailhold_requests_total{outcome="ok"' not in metrics or 'outcome="ok"} 0.0' in metrics


async def test_an_engine_that_died_answers_nothing(key_file: Path) -> None:
    engine = StandInEngine()
    async with running(engine=engine, settings=allowing(key_file)) as server:
        pipeline = server.service._pipeline
        assert pipeline is not None
        engine.kill()
        headers = {"authorization": token()}
        answer = await server.internal.post("/internal/probe", content=dump(Probe(requests=4)), headers=headers)
    assert answer.status_code == 503 or answer.json()["failed"] == 4


async def test_an_engine_that_hangs_ends_the_probe_in_time(key_file: Path) -> None:
    engine = StandInEngine()
    async with running(engine=engine, settings=allowing(key_file)) as server:
        engine.freeze()
        found = await probed(server, requests=4, max_seconds=5)
        engine.thaw()
        assert not server.service.held
    assert found["failed"] == 4
    assert "within 5 s" in found["message"]


async def test_nobody_else_may_ask(key_file: Path) -> None:
    async with running(settings=allowing(key_file)) as server:
        answer = await server.internal.post("/internal/probe", content=dump(Probe()))
    assert answer.status_code == 401


async def test_a_search_that_finds_little_is_found_out(key_file: Path) -> None:
    """An index whose walk ends too early."""

    class Poor(StandInSearcher):
        def search(self, vectors: Any, k: int, *given: Any, **more: Any) -> Any:
            scores, ids = super().search(vectors, k, *given, **more)
            ids[:, 1:] = -1
            return scores, ids

    async with running(settings=allowing(key_file)) as server:
        contents = server.service.contents
        current = contents.current
        vectors = (
            np.random.default_rng(1)
            .normal(size=(len(current.index.chunks), current.index.dimension))
            .astype(np.float32)
        )
        poor = replace(current.index, kind=IndexKind.HNSW, vectors=vectors, searcher=Poor(vectors))
        contents.put(replace(current, index=poor))
        found = await probed(server, requests=1)
        assert current.index.snapshot == SNAPSHOT
    assert found["recallPercent"] < 50


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(Metric), st.integers(0, 1000))
def test_the_nearest_are_the_nearest(count: int, k: int, metric: Metric, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, 5)).astype(np.float32)
    questions = vectors[: min(3, count)]
    allowed = random.random(count) < 0.7
    found = neighbours(vectors, questions, min(k, count), metric, allowed)
    lengths = np.linalg.norm(vectors, axis=1) if metric is Metric.COSINE else np.ones(count)
    for row, question in zip(found, questions, strict=True):
        scores = np.where(allowed, vectors @ question / lengths, -np.inf)
        best = sorted((score for score in scores if np.isfinite(score)), reverse=True)[: min(k, count)]
        assert sorted((scores[each] for each in row if each >= 0), reverse=True) == pytest.approx(
            best, rel=1e-4, abs=1e-5
        )


def test_what_finds_itself_alone_finds_nothing() -> None:
    assert share([[0, 1, 2]], [[0]], [0]) == 0
    assert share([[0, 1, 2]], [[0, 2, 1]], [0]) == 1
    assert share([[0]], [[0]], [0]) == 1
