"""The stand-in engine of a manifest: its queue, its faults, and that nobody can take it for a model."""

import asyncio
import heapq
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_process import Starter
from rag_server import body, content_part, pod_part, stood_in, store_snapshot
from virtual_time import in_virtual_time

from tailhold_api.stand_in import StandIn, parsed
from tailhold_server.backends import choose_backend
from tailhold_server.capacity import Limits, Shape, capacity
from tailhold_server.content import Contents
from tailhold_server.errors import ContentRefusedError, EngineDiedError, ServeError, StartError
from tailhold_server.ports import Sampling
from tailhold_server.rates import Meter
from tailhold_server.settings import ServerSettings
from tailhold_server.stand_in.engine import PacedEngine, drawn, mean_pace
from tailhold_server.stand_in.faults import LOOK_SECONDS, Faults
from tailhold_server.stand_in.models import counting_tokenizer
from tailhold_server.testing import StandInEncoder, StandInTokenizer

SAMPLING = Sampling(max_tokens=256, temperature=0.0)


def engine(text: str, draws: Iterator[float] | None = None, **more: Any) -> PacedEngine:
    """On the clock of the loop that runs."""
    draw = (lambda: next(draws)) if draws else (lambda: 0.5)
    return PacedEngine(parsed(text), most_running=4096, draw=draw, clock=asyncio.get_running_loop().time, **more)


async def ask(asked: PacedEngine, at: float, number: int = 0) -> tuple[float, float, int]:
    """First token, end and number of tokens of an answer to what was asked then."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(at - loop.time())
    times = [loop.time() async for _ in asked.generate(f"r-{number}", [], SAMPLING)]
    return times[0], times[-1], len(times)


def queued(arrivals: Sequence[float], slots: int, first: float, whole: float) -> list[tuple[float, float]]:
    """When each has its first token and its end, by Kiefer's and Wolfowitz's recursion: first come first served."""
    free, found = [0.0] * slots, []
    for arrival in arrivals:
        began = max(arrival, heapq.heappop(free))
        heapq.heappush(free, began + whole)
        found.append((began + first, began + whole))
    return found


@given(
    gaps=st.lists(st.integers(0, 200), min_size=1, max_size=30),
    slots=st.integers(1, 5),
    first=st.integers(1, 300),
    gap=st.integers(0, 50),
    tokens=st.integers(1, 8),
)
def test_load_makes_latency_as_a_queue_with_so_many_servers(
    gaps: list[int], slots: int, first: int, gap: int, tokens: int
) -> None:
    arrivals = [sum(gaps[: at + 1]) / 1000 for at in range(len(gaps))]
    text = f"firstTokenMilliseconds={first} tokenMilliseconds={gap} answerTokens={tokens} slots={slots}"

    async def asked() -> list[tuple[float, float, int]]:
        paced = engine(text)
        await paced.start()
        return await asyncio.gather(*(ask(paced, at, number) for number, at in enumerate(arrivals)))

    found = in_virtual_time(asked())
    whole = (first + gap * (tokens - 1)) / 1000
    expected = queued(arrivals, slots, first / 1000, whole)  # of those that come at once any is the first
    for (began, ended, count), (expected_first, expected_end) in zip(sorted(found), expected, strict=True):
        assert (began, ended) == (pytest.approx(expected_first), pytest.approx(expected_end))
        assert count == tokens


def test_who_leaves_gives_the_slot_to_the_next() -> None:
    async def asked() -> float:
        paced = engine("firstTokenMilliseconds=1000 slots=1 answerTokens=1")
        await paced.start()
        leaves = asyncio.ensure_future(ask(paced, 0.0))
        stays = asyncio.ensure_future(ask(paced, 0.1))
        await asyncio.sleep(0.5)
        leaves.cancel()
        return (await stays)[0]

    assert in_virtual_time(asked()) == pytest.approx(1.5)


@given(
    st.floats(0, 100), st.floats(0, 100), st.floats(1, 50), st.floats(0, 100), st.lists(st.floats(0, 0.999), min_size=3)
)
def test_shares_and_bounds_are_those_that_were_told(
    jitter: float, slow: float, times: float, fails: float, draws: list[float]
) -> None:
    told = StandIn(jitter_percent=jitter, slow_percent=slow, slow_times=times, fail_percent=fails)
    pace = drawn(told, iter(draws).__next__)
    assert (pace is None) == (100 * draws[0] < fails)
    if pace:
        scale = pace.first * 1000 / told.first_token_milliseconds
        usual = times if 100 * draws[2] < slow else 1.0
        assert usual * (1 - jitter / 100) - 1e-9 <= scale <= usual * (1 + jitter / 100) + 1e-9
        assert pace.gap == pytest.approx(scale * told.token_milliseconds / 1000)


def test_the_mean_over_all_draws_is_the_mean_that_rates_are_told_by() -> None:
    told = StandIn(first_token_milliseconds=100, jitter_percent=50, slow_percent=10, slow_times=5)
    steps = [(each + 0.5) / 100 for each in range(100)]
    paces = [drawn(told, iter((0.0, jitter, slow)).__next__) for jitter in steps for slow in steps]
    mean = sum(pace.first for pace in paces if pace) / len(paces)
    assert mean == pytest.approx(mean_pace(told).first)


@pytest.mark.parametrize("slots", [1, 3, 6, 8, 64])
def test_the_capacity_that_is_told_is_that_of_the_queue(slots: int) -> None:
    """Before any answer: slots over the time that each takes one."""

    async def taught() -> Meter:
        meter = Meter()
        engine(f"firstTokenMilliseconds=40 tokenMilliseconds=8 slots={slots}").teach(meter, 200)
        return meter

    shape = Shape(prompt_tokens=200, fresh_tokens=200, answer_tokens=16)
    found = capacity(in_virtual_time(taught()).rates(), shape, Limits(slots, prompts=slots))
    assert found is not None
    assert found.requests_per_second == pytest.approx(slots / (0.040 + 16 * 0.008), rel=0.01)


def test_requests_fail_at_once_and_the_first_never_does() -> None:
    """A revision that fails its own first question never serves, and is nothing to be judged by its requests."""

    async def asked() -> tuple[float, float]:
        loop, paced = asyncio.get_running_loop(), engine("failPercent=100 firstTokenMilliseconds=20 answerTokens=1")
        await paced.start()
        first = (await ask(paced, 0.0))[1]
        with pytest.raises(ServeError, match="failPercent"):
            await ask(paced, 1.0)
        return first, loop.time()

    assert in_virtual_time(asked()) == (pytest.approx(0.02), pytest.approx(1.0))


def test_it_dies_when_it_was_told_to_and_takes_what_runs_with_it() -> None:
    async def asked() -> PacedEngine:
        paced = engine("diesAfter=2 firstTokenMilliseconds=1000")
        await paced.start()
        running = [asyncio.ensure_future(ask(paced, 0.0, number)) for number in range(2)]
        await asyncio.sleep(0.5)
        assert paced.is_alive()
        with pytest.raises(EngineDiedError, match="after 2 requests"):
            await ask(paced, 0.5)
        for each in running:
            with pytest.raises(EngineDiedError):
                await each
        return paced

    assert not in_virtual_time(asked()).is_alive()


def test_one_that_never_gets_ready_never_does() -> None:
    async def waited() -> bool:
        starting = asyncio.ensure_future(engine("neverReady=true").start())
        await asyncio.sleep(7 * 24 * 3600)
        done = starting.done()
        starting.cancel()
        return done

    assert in_virtual_time(waited()) is False


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_faults_hold_while_their_file_is_there_the_pods_over_the_nodes(tmp_path: Path) -> None:
    node, pod, clock = tmp_path / "node", tmp_path / "pod", Clock()
    stated = parsed("firstTokenMilliseconds=40")
    faults = Faults(stated, (node, pod), clock)

    def later() -> StandIn:
        clock.now += LOOK_SECONDS
        return faults()

    assert faults() == stated
    node.write_text("times=3")
    assert faults() == stated, "no look before it is time"
    assert later() == parsed("firstTokenMilliseconds=40 times=3")
    pod.write_text("times=9 failPercent=5")
    assert later() == parsed("firstTokenMilliseconds=40 times=9 failPercent=5")
    node.unlink()
    pod.unlink()
    assert later() == stated


def test_a_mistake_in_a_file_is_logged_and_what_held_before_holds_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod, clock = tmp_path / "pod", Clock()
    faults = Faults(StandIn(), (pod,), clock)
    pod.write_text("times=3")
    held = faults()
    assert held.times == 3
    pod.write_text("slots=1")
    clock.now += LOOK_SECONDS
    assert faults() == held
    assert "`slots` cannot change while it runs" in caplog.text
    assert str(pod) in caplog.text


@given(st.text(), st.integers(1, 3))
def test_tokens_of_several_bytes_are_the_text_again_and_no_two_are_alike(text: str, width: int) -> None:
    tokenizer = StandInTokenizer(width)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == -(-len(text.encode()) // width)


def test_documents_are_cut_by_words() -> None:
    tokenizer = counting_tokenizer()
    assert len(tokenizer.encode("A lost card, blocked at once.").ids) == 8
    assert len(tokenizer.encode("internationalisation").ids) == 3


def test_an_index_of_a_real_embedder_is_refused_and_its_own_is_taken(tmp_path: Path) -> None:
    """Its vectors would be compared with others, and every answer be about nothing."""
    own = store_snapshot(tmp_path / "snapshots")
    backend = choose_backend(stood_in(pod_part()), ServerSettings(claims=tmp_path))
    assert Contents(backend.opener, backend.load_encoder()).load(content_part(own)).index.snapshot == own
    with pytest.raises(ContentRefusedError, match="rebuild the index with this embedder"):
        Contents(backend.opener, StandInEncoder(64, "f" * 64)).load(content_part(own))


def test_a_misspelt_key_ends_the_start_for_good() -> None:
    with pytest.raises(StartError, match=r"TAILHOLD_STAND_IN.*`slot`: unknown field, did you mean `slots`") as caught:
        choose_backend(stood_in(pod_part(), "slot=3"), ServerSettings())
    assert caught.value.final


def test_no_variable_from_elsewhere_makes_answers_up(start_stand_in: Starter) -> None:
    """Only the pod part does, which is in the revision's name: a ConfigMap in `envFrom` is not seen in a manifest."""
    program = start_stand_in(wait=False, stand_in=None, TAILHOLD_STAND_IN="", TAILHOLD_ENGINE="stand-in")
    assert program.process.wait(60) == 2
    assert json.loads(program.termination_log.read_text())["reason"] == "ModelNotFound"


def test_it_says_what_it_is_wherever_it_shows(start_stand_in: Starter, tmp_path: Path) -> None:
    """Tuning, log, the list of models and the answer itself; and what a fault makes of it."""
    faults = tmp_path / "faults"
    program = start_stand_in(
        stand_in="firstTokenMilliseconds=0 tokenMilliseconds=0", TAILHOLD_STAND_IN_FAULTS=str(faults)
    )
    client = httpx.Client(trust_env=False)

    def tuning() -> dict[str, Any]:
        return dict(client.get(f"{program.internal_url}/v1/tuning").json()["engine"])

    assert tuning() == {
        "name": "stand-in",
        "behaviour": "firstTokenMilliseconds=0 tokenMilliseconds=0",
        "slots": 4,
    }
    models = client.get(f"{program.url}/v1/models").json()["data"]
    assert {each["owned_by"] for each in models} == {"tailhold-stand-in"}
    answer = client.post(f"{program.url}/v1/chat/completions", json=body()).json()
    assert "No model wrote this, a stand-in did" in answer["choices"][0]["message"]["content"]
    assert answer["tailhold"]["engine"] == "stand-in"
    assert "TAILHOLD_STAND_IN: answers are made up" in program.log.read_text()
    faults.write_text("failPercent=100")
    program.wait_until(lambda: "faults" in tuning())
    assert "failPercent=100" in tuning()["faults"]
    refused = client.post(f"{program.url}/v1/chat/completions", json=body())
    assert (refused.status_code, "failPercent" in refused.text) == (500, True)
    assert 'requests_total{outcome="failed"} 1.0' in client.get(f"{program.internal_url}/metrics").text


def test_neither_torch_nor_vllm_is_loaded_for_it(tmp_path: Path) -> None:
    store_snapshot(tmp_path / "snapshots")
    code = (
        "import sys, asyncio; from pathlib import Path; from rag_server import *; "
        "from tailhold_server.start import start; from tailhold_server.service import Service; "
        "from tailhold_server.snapshots.store import newest; "
        f"folder = Path({str(tmp_path)!r}); "
        "content = content_part(next(newest(folder / 'snapshots'))); pod = stood_in(pod_part()); "
        "settings = ServerSettings(claims=folder); "
        "asyncio.run(start(Service(pod), content, settings)); "
        "print(sorted({'torch', 'vllm', 'faiss', 'transformers'} & set(sys.modules)))"
    )
    path = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert re.search(r"^\[\]$", done.stdout, re.MULTILINE), done.stdout + done.stderr
