"""`tailhold load` from end to end, against a server whose faults are chosen."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tailhold_bench.load import command
from tailhold_bench.load.capacity import Search, Window, search
from tailhold_bench.load.check import Bounds
from tailhold_bench.load.command import Files, find_capacity, load
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.hints import with_hint
from tailhold_bench.load.machine import this_machine
from tailhold_bench.load.objectives import Verdict, judge, parse_objective
from tailhold_bench.load.options import Options
from tailhold_bench.load.percentiles import Latency
from tailhold_bench.load.printing import lines
from tailhold_bench.load.queueing import times_in_system
from tailhold_bench.load.report import LoadReport, Setting, read, report_of
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.stand_in import Behaviour, StandIn


class Start:
    """Starts servers on a thread of their own; gives their URL."""

    def __init__(self) -> None:
        self.servers: list[StandIn] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __call__(self, behaviour: Behaviour) -> str:
        self.servers.append(StandIn(behaviour))
        return asyncio.run_coroutine_threadsafe(self.servers[-1].start(), self._loop).result(10)

    def stop(self) -> None:
        for server in self.servers:
            self._loop.call_soon_threadsafe(server.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def start() -> Iterator[Start]:
    started = Start()
    yield started
    started.stop()


@pytest.fixture
def console() -> Console:
    return Console(record=True, width=160, force_terminal=False)


QUICK = Options(rate=50, duration="1s", max_lag="5s")
"""The machine's noise is no matter of these tests."""


def quick(url: str, **changes: object) -> Options:
    return Options(**{**QUICK.__dict__, "url": url, **changes})  # type: ignore[arg-type]


def test_a_run_leaves_three_files_that_need_nothing_else(start: Start, console: Console, tmp_path: Path) -> None:
    url = start(Behaviour(service_seconds=0.002, tokens=3))
    told = {"api_key": "very-secret", "warmup": "200ms", "seed": 7, "objectives": ("ttft=5s@90",)}
    code = load(console, quick(url, **told), Files(tmp_path))
    said = console.export_text()
    assert code == 0, said
    report = read(tmp_path / "load.json")
    assert report.outcomes[Outcome.OK] == len(report.measured()) > 20
    assert report.warmup_requests > 0
    assert report.command["seed"] == 7
    assert report.latency(Latency.TTFT).count == len(report.measured())
    assert "ttft=5s@90: pass" in said
    page = (tmp_path / "load.html").read_text()
    assert not re.search(r"<script|<link|<img[^>]+src=\"http|url\(http|@import", page)
    assert page.count("<svg") == 6
    assert (tmp_path / "load.png").read_bytes()[:4] == b"\x89PNG"
    assert not any(b"very-secret" in path.read_bytes() for path in tmp_path.iterdir())


def test_two_processes_send_the_same_load_as_one(start: Start, console: Console, tmp_path: Path) -> None:
    url = start(Behaviour(service_seconds=0.001))
    for processes in (1, 2):
        assert load(console, quick(url, processes=processes), Files(tmp_path / str(processes))) == 0
    one, two = (read(tmp_path / name / "load.json") for name in "12")
    assert one.columns.due == two.columns.due
    assert one.columns.number == two.columns.number == sorted(one.columns.number)
    assert len(two.generator.cpu_shares) == 2


def test_a_comparison_says_which_run_was_slower(start: Start, console: Console, tmp_path: Path) -> None:
    """The slow one cannot keep up at all: no noise of the machine comes near its queue."""
    load(console, quick(start(Behaviour(service_seconds=0.001))), Files(tmp_path / "fast"))
    slow = quick(start(Behaviour(service_seconds=0.06)), seed=2)
    load(console, slow, Files(tmp_path / "slow", tmp_path / "fast" / "load.json"))
    said = console.export_text()
    assert re.search(r"whole answer p50 .* slower", said)
    assert "Compared with the run of" in (tmp_path / "slow" / "load.html").read_text()
    with pytest.raises(LoadError, match="cannot be read"):
        load(console, slow, Files(None, tmp_path / "none.json"))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(LoadError, match="no report of `tailhold load`"):
        load(console, slow, Files(None, tmp_path / "other.json"))


def test_a_server_that_dies_midway_fails_the_objective_and_says_why(
    start: Start, console: Console, tmp_path: Path
) -> None:
    options = quick(start(Behaviour(service_seconds=0.001, die_after=20)), objectives=("e2e=1s@90",))
    assert load(console, options, Files(tmp_path)) == command.NOT_MET
    report = read(tmp_path / "load.json")
    assert 0 < report.outcomes[Outcome.OK] < 20
    lost = report.outcomes[Outcome.ERROR] + report.outcomes[Outcome.CUT]
    assert lost == len(report.measured()) - report.outcomes[Outcome.OK] > 0
    said = console.export_text()
    assert f"  {report.faults[0].count} x {report.faults[0].outcome}: {report.faults[0].detail}" in said
    assert "e2e=1s@90: fail: " in said


def test_where_nothing_was_answered_there_is_a_report_all_the_same(
    start: Start, console: Console, tmp_path: Path
) -> None:
    options = quick(start(Behaviour(die_after=2)))
    assert load(console, options, Files(tmp_path)) == command.NONE_ANSWERED
    assert read(tmp_path / "load.json").outcomes[Outcome.OK] == 0
    assert "none" in console.export_text()


def test_a_generator_that_was_too_slow_makes_the_run_invalid(start: Start, console: Console) -> None:
    options = quick(start(Behaviour()), max_lag="0.001ms")
    assert load(console, options, Files(None)) == command.TOO_SLOW
    assert "the generator was too slow: results invalid" in console.export_text()
    assert load(console, options, Files(None), accept_slow=True) == 0


def test_a_wrong_address_is_found_before_the_load(start: Start, console: Console) -> None:
    with pytest.raises(LoadError, match=r"first question was not answered: no connection: .*refused; is the server up"):
        load(console, quick("http://127.0.0.1:9/v1"), Files(None))
    refusing = start(Behaviour(status=404)).removesuffix("/v1")
    with pytest.raises(LoadError, match=r"404: the stand-in refuses; the URL of an OpenAI surface ends in /v1"):
        load(console, quick(refusing), Files(None))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objectives": ("p99",)}, "METRIC=TIME@PERCENT"),
        ({"duration": "5"}, "--duration '5': write a time"),
        ({"warmup": "2s"}, "no request is due after it"),
        ({"rate": 0.001}, "no request falls into this time"),
        ({"rate": 1e9}, "at most 5000000 in a run"),
        ({"ca_file": Path("/none.pem")}, "--ca-file /none.pem: no such file"),
        ({"questions": Path("a"), "corpus": Path("b")}, "name one of them"),
        ({"trace": Path("a"), "max_tokens": "1-5"}, "--max-tokens is one number then"),
    ],
)
def test_a_mistake_is_named_before_anything_is_sent(changes: dict[str, object], said: str, console: Console) -> None:
    with pytest.raises(LoadError) as caught:
        load(console, quick("http://127.0.0.1:9/v1", **changes), Files(None))
    assert said in str(caught.value)


def test_ctrl_c_keeps_what_was_measured_and_writes_the_report(start: Start, tmp_path: Path) -> None:
    url = start(Behaviour(service_seconds=0.001))
    arguments = ["load", "--url", url, "--rate", "50", "--duration", "60s", "-o", str(tmp_path)]
    process = subprocess.Popen(
        # As in a terminal: a shell has what it runs in the background ignore Ctrl-C.
        ["env", "--default-signal=INT", sys.executable, "-m", "tailhold.main", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while start.servers[0].requests < 50 and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the children as well
    out, _ = process.communicate(timeout=60)
    assert process.returncode == command.STOPPED, out
    assert "stopped by Ctrl-C" in out
    report = json.loads((tmp_path / "load.json").read_text())
    assert report["interrupted"] is True
    assert report["outcomes"]["ok"] > 10


@given(st.floats(0.3, 300))
def test_the_search_ends_close_around_the_capacity(capacity: float) -> None:
    rates: list[float] = []

    def measure(rate: float) -> Window:
        rates.append(rate)
        return Window(rate, rate <= capacity)

    found = search(Search(1.0, 1000.0, windows=30), measure)
    assert found.holds is not None
    assert found.breaks is not None
    assert found.holds <= capacity < found.breaks <= 1.1 * found.holds + 1e-9
    assert len(rates) == len(set(rates)) == found.windows


def test_the_search_says_what_ended_it() -> None:
    assert str(search(Search(1, 8), lambda rate: Window(rate, True))).startswith(
        "capacity: at least 8.00 requests a second, the most that was tried"
    )
    assert "below 0.12" in str(search(Search(1, 8, windows=4), lambda rate: Window(rate, False)))
    slow = search(Search(1, 8), lambda rate: Window(rate, True, is_valid=rate < 4))
    assert (slow.holds, slow.too_fast) == (2, 4)
    assert "the generator itself did not keep up" in str(slow)


@pytest.mark.parametrize("service", [0.005, 0.02, 0.3])
def test_the_capacity_of_a_known_queue_is_found(service: float) -> None:
    """In exact times: at even gaps a queue stays empty up to its capacity, and beyond it grows while it is fed."""
    objective = parse_objective("e2e=1s@90")

    def measure(rate: float) -> Window:
        return Window(rate, judge(objective, queued(rate, 60, service)).verdict is Verdict.PASS)

    found = search(Search(0.4 / service, 100 / service, precision=0.01, windows=30), measure)
    assert found.holds is not None
    assert found.breaks is not None
    assert found.holds <= 1.05 / service, "a second of queue takes a while to grow"
    assert found.breaks >= 1 / service


def answered(number: int, due: float, seconds: float) -> Sample:
    ended = due + seconds
    return Sample(
        number, due, 1, begun=due, first_byte=ended, first_token=ended, last_token=ended, ended=ended, messages=1,
        output_tokens=3, outcome=Outcome.OK,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "code", "said"),
    [
        ("e2e=1h@90", 0, "capacity: at least 40.00 requests a second, the most that was tried (2 windows"),
        ("e2e=0.001ms@90", command.NOT_MET, "capacity: below 10.00 requests a second, the least that was tried"),
    ],
)
def test_the_search_runs_windows_until_it_knows(
    objective: str, code: int, said: str, start: Start, console: Console
) -> None:
    options = quick(start(Behaviour()), duration="600ms", arrivals="constant", objectives=(objective,))
    assert find_capacity(console, options, Search(20.0, 40.0, windows=2)) == code
    assert said in console.export_text()
    with pytest.raises(LoadError, match="--find-capacity needs an objective"):
        find_capacity(console, quick(options.url), Search(1.0, 2.0))


def report_on(samples: list[Sample], warmup_seconds: float = 0.0) -> LoadReport:
    setting = Setting(
        version="0", began="", command={}, machine=this_machine(), distinct_questions=1, interrupted=False,
        warmup_seconds=warmup_seconds, cpu_shares=[0.1], bounds=Bounds(),
    )  # fmt: skip
    return report_of(samples, setting, ())


def queued(rate: float, seconds: float, service: float) -> list[Sample]:
    due = [number / rate for number in range(int(rate * seconds))]
    times = times_in_system(due, service)
    return [answered(place, at, took) for place, (at, took) in enumerate(zip(due, times, strict=True))]


@pytest.mark.parametrize(
    ("rate", "service", "reached", "seconds"),
    [
        (10, 0.02, 10, 10.0),
        (50, 0.02, 50, 10.0),
        (100, 0.02, 50, 20.0),
        (400, 0.02, 50, 80.0),
        (2, 5.0, 0.2, 100.0),
    ],
)
def test_an_overloaded_server_is_not_said_to_keep_up(
    rate: float, service: float, reached: float, seconds: float
) -> None:
    """One queue that serves 1 / service a second, however much is offered within ten seconds."""
    report = report_on(queued(rate, 10, service))
    assert report.rates.due == pytest.approx(rate)
    assert report.rates.due_seconds == pytest.approx(10)
    assert report.rates.answered == pytest.approx(reached)
    assert report.rates.output_tokens == pytest.approx(3 * reached)
    assert report.rates.seconds == pytest.approx(seconds)
    said = "\n".join(lines(report))
    assert f"offered: {10 * rate} requests in 10.0 s: {rate:.2f} a second" in said
    until = ", until the last answer came" if seconds > 10 else ""
    assert f"answered: {10 * rate} in {seconds:.1f} s{until}: {reached:.2f} a second" in said
    read_again = LoadReport.model_validate_json(report.model_dump_json(by_alias=True))
    assert read_again.rates == report.rates


def test_rates_leave_the_warm_up_out() -> None:
    report = report_on(queued(100, 10, 0.02), warmup_seconds=5)
    assert report.rates.due == pytest.approx(100)
    assert report.rates.seconds == pytest.approx(15)
    assert report.rates.answered == pytest.approx(500 / 15)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 50), st.sampled_from(Outcome)), max_size=30))
def test_no_more_is_answered_than_was_offered(requests: list[tuple[float, float, Outcome]]) -> None:
    ordered = sorted(requests, key=lambda each: each[0])
    samples = [answered(place, at, took) for place, (at, took, _) in enumerate(ordered)]
    for sample, (_, _, outcome) in zip(samples, ordered, strict=True):
        sample.outcome = outcome
    rates = report_on(samples).rates
    assert rates.seconds >= rates.due_seconds
    assert rates.due is None or rates.answered <= rates.due * (1 + 1e-9)


@pytest.mark.parametrize(
    ("said", "url", "hint"),
    [
        ("401: No key.", "http://h/v1", "401: No key; give a key that it knows in TAILHOLD_API_KEY or --api-key"),
        ("403: No.", "http://h/v1", "403: No; the key in TAILHOLD_API_KEY or --api-key may not ask"),
        ("404: Not Found", "http://h/", "404: Not Found; the URL of an OpenAI surface ends in /v1"),
        ("404: no such model", "http://h/v1", "404: no such model"),
        ("503: It starts.", "http://h/v1", "503: It starts."),
        ("no connection: ConnectionResetError", "https://h/v1", "has it TLS there"),
        ("no connection: [SSL: CERTIFICATE_VERIFY_FAILED] x", "https://h/v1", "--ca-file names"),
        ("no connection: certificate verify failed", "https://h/v1", "--ca-file names"),
        ("the connection ended before an answer", "http://h/v1", "has it TLS (https://"),
    ],
)
def test_a_first_question_without_an_answer_has_a_next_step(said: str, url: str, hint: str) -> None:
    assert hint in with_hint(said, url)
