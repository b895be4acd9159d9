"""Handover between two real programs, and their end."""

import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from handing import PATH, PIPELINE, handover_to, settings, token
from program_process import ServerProcess, Starter, free_port, pace
from rag_server import body

from tailhold_api.codec import dump
from tailhold_api.serving import Prompt

LONG = "Say all of these words again: " + "word " * 30


def tuning(program: ServerProcess) -> dict[str, Any]:
    told: dict[str, Any] = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False, timeout=10).json()
    return told


@pytest.fixture
def two(start_stand_in: Starter, tmp_path: Path) -> tuple[ServerProcess, ServerProcess]:
    """A stable program that hands everything over, and the candidate. Both speak ten words a second."""
    key, port = str(settings(tmp_path).public_key), free_port()
    common = {"TAILHOLD_PIPELINE": PIPELINE, "TAILHOLD_PUBLIC_KEY": key, "stand_in": pace(0.1)}
    stable = start_stand_in(**common)
    new = {"prompt": Prompt(system="Briefly.")}
    candidate = start_stand_in(content=new, **common, TAILHOLD_HANDOVER_PORT=str(port))
    told = handover_to(port, revision=tuning(candidate)["revision"])
    headers = {"authorization": f"Bearer {token()}"}
    url = f"{stable.internal_url}/internal/handover"
    assert httpx.put(url, content=dump(told), headers=headers, trust_env=False).status_code == 200
    return stable, candidate


@pytest.mark.parametrize("stopped", [0, 1], ids=["the stable pod", "the candidate"])
def test_a_stream_that_was_handed_over_ends_whole_whoever_is_told_to_stop(
    two: tuple[ServerProcess, ServerProcess], stopped: int
) -> None:
    """C67."""
    stable, candidate = two
    with httpx.stream("POST", stable.url + PATH, json=body(LONG, stream=True), trust_env=False, timeout=60) as answer:
        pieces = answer.iter_raw()
        text = next(pieces)
        assert answer.headers["x-tailhold-revision"] == tuning(candidate)["revision"]
        assert tuning(stable)["held"] == 1
        two[stopped].process.send_signal(signal.SIGTERM)
        text += b"".join(pieces)
    events = [each for each in text.decode().split("\n\n") if each.startswith("data: ")]
    assert events[-1] == "data: [DONE]"
    assert json.loads(events[-2][6:])["choices"][0]["finish_reason"] == "stop"
    assert two[stopped].process.wait(30) == 0


def test_a_candidate_that_is_killed_ends_its_streams_with_an_error_and_costs_nobody_else_anything(
    two: tuple[ServerProcess, ServerProcess],
) -> None:
    stable, candidate = two
    revision = tuning(stable)["revision"]
    with httpx.stream("POST", stable.url + PATH, json=body(LONG, stream=True), trust_env=False, timeout=60) as answer:
        pieces = answer.iter_raw()
        text = next(pieces)
        candidate.process.kill()
        text += b"".join(pieces)
    assert b"The model stopped while answering. Try again." in text
    assert text.endswith(b"data: [DONE]\n\n")
    for streamed in (False, True):
        answer = httpx.post(stable.url + PATH, json=body(stream=streamed), trust_env=False, timeout=60)
        assert answer.status_code == 200
        assert answer.headers["x-tailhold-revision"] == revision
    metrics = httpx.get(f"{stable.internal_url}/metrics", trust_env=False).text
    assert 'tailhold_handover_requests_total{outcome="broken"} 1.0' in metrics
    assert 'tailhold_handover_requests_total{outcome="unreachable"} 2.0' in metrics
    assert stable.stop() == 0
