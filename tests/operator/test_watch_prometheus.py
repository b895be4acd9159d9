"""Counters out of a Prometheus: the same as from the pods, or nothing and a sentence."""

import asyncio
import base64
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tailhold_api.scraping import Prometheus
from tailhold_api.slo import Objective, ObjectiveMetric, Slo
from tailhold_operator.errors import RefusedError
from tailhold_operator.judge.reading import Counter
from tailhold_operator.kinds import Manifest, Ref
from tailhold_operator.observe import Pod, read_pod
from tailhold_operator.pods import HttpPods
from tailhold_operator.testing import FakeClock, FakeCluster
from tailhold_operator.watch.memory import Memory, Moment
from tailhold_operator.watch.prometheus import PrometheusSource
from tailhold_operator.watch.querying import AnswerError, query, read_answer
from tailhold_operator.watch.sources import PodSource
from tailhold_operator.watch.target import Target
from tailhold_server.objectives import Counted
from tailhold_server.stages import Marks

OBJECTIVE = Objective(metric=ObjectiveMetric.END_TO_END, threshold_milliseconds=900)
START = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name: str) -> Pod:
    labels = {"tailhold.dev/pod-part": "p"}
    found = read_pod({"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "status": {"podIP": name}})
    return replace(found, ready=True, ready_since=(START - timedelta(hours=1)).isoformat())


def slo(url: str, **more: Any) -> Slo:
    return Slo.model_validate(
        {
            "objectives": [OBJECTIVE.model_dump(by_alias=True)],
            "source": {"prometheus": {"url": url, **more}},
        }
    )


def target(url: str, *pods: str, **more: Any) -> Target:
    every = tuple(map(pod, pods))
    return Target("team", slo(url, **more), every, {each.uid: "r" for each in every})


class Page(ThreadingHTTPServer):
    """Answers each request with what it is told to, and keeps what was asked."""

    daemon_threads = True

    def __init__(self, say: Callable[[str], tuple[int, str]]) -> None:
        self.asked: list[tuple[str, dict[str, str], str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                page.asked.append((self.path, headers, self.rfile.read(length).decode()))
                status, text = say(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

            do_POST = do_GET  # noqa: N815 - as the library wants it

            def log_message(self, *_: Any) -> None:
                return None

        page = self
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def answering() -> Iterator[Callable[[int, str], Page]]:
    made: list[Page] = []

    def make(status: int, text: str) -> Page:
        made.append(Page(lambda path: (status, text)))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()
        each.server_close()


def vector(*samples: tuple[dict[str, str], Any]) -> str:
    result = [{"metric": labels, "value": [1735689600.1, value]} for labels, value in samples]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def bucket(le: str, value: Any, **labels: str) -> tuple[dict[str, str], Any]:
    return ({"pod": "a", "objective": "EndToEnd-900ms", "revision": "r", "le": le, **labels}, value)


COUNTER = Counter("r", "EndToEnd-900ms")


class TestAnswers:
    """C25, C42, C49."""

    @pytest.mark.parametrize(
        ("status", "text", "words"),
        [
            (302, "", "sign-in page"),
            (200, "<html><body>Sign in</body></html>", "sign-in page"),
            (503, "upstream connect error", "status 503"),
            (200, '{"status":"error","errorType":"timeout","error":"query timed out"}', "query timed out"),
            (422, '{"status":"error","errorType":"execution","error":"bad"}', "status 422: bad"),
            (200, '{"status":"success","data":{"resultType":"matrix","result":[]}}', "no vector"),
            (200, '{"status":"success"}', "no vector"),
            (200, "[1]", "sign-in page"),
        ],
    )
    def test_what_is_no_result_is_an_error_with_words(self, status: int, text: str, words: str) -> None:
        with pytest.raises(AnswerError, match=words):
            read_answer(status, text)

    @pytest.mark.parametrize("value", ["NaN", "+Inf", "many", None, []])
    def test_what_is_no_number_is_missing(self, value: Any) -> None:
        found = read_answer(200, vector(bucket("0.9", value), bucket("+Inf", "7")))
        assert found == {"a": {COUNTER: {float("inf"): 7.0}}}

    def test_no_series_is_no_pod(self) -> None:
        assert read_answer(200, vector()) == {}
        assert read_answer(200, vector(({"le": "0.9"}, "3"))) == {}

    def test_two_jobs_that_scrape_one_pod_are_not_mixed(self) -> None:
        old = [bucket("0.9", "8", job="x"), bucket("+Inf", "9", job="x")]
        new = [bucket("0.9", "18", job="y"), bucket("+Inf", "20", job="y")]
        for each in (old + new, new + old):
            assert read_answer(200, vector(*each))["a"][COUNTER] == {0.9: 18.0, float("inf"): 20.0}

    def test_a_query_names_the_pods_and_what_the_user_adds(self) -> None:
        source = Prometheus.model_validate({"url": "http://p", "labels": [{"name": "cluster", "value": 'a"b'}]})
        assert query(source, "team", ["b.c", "a-1"]) == (
            'last_over_time(tailhold_objective_seconds_bucket{namespace="team",pod=~"a-1|b\\\\.c",cluster="a\\"b"}[60s])'
        )


async def read(given: Target, cluster: FakeCluster | None = None) -> Any:
    source = PrometheusSource(cluster or FakeCluster(FakeClock()), lambda: 0.0)
    try:
        return await source.read(given)
    finally:
        await source.close()


async def test_a_path_headers_and_a_token_are_sent(answering: Callable[[int, str], Page]) -> None:
    page = answering(200, vector(bucket("0.9", "8"), bucket("+Inf", "9")))
    cluster = FakeCluster(FakeClock())
    data = {"token": base64.b64encode(b"s3cret\n").decode()}
    cluster.put({"kind": "Secret", "metadata": {"name": "prom", "namespace": "team"}, "data": data})
    headers = [{"name": "X-Scope-OrgID", "value": "team-a"}]
    told = await read(
        target(f"{page.url}/tenants/prometheus/", "a", headers=headers, bearerToken={"secretName": "prom"}), cluster
    )
    ((path, sent, _),) = page.asked
    assert path == "/tenants/prometheus/api/v1/query"
    assert (sent["x-scope-orgid"], sent["authorization"]) == ("team-a", "Bearer s3cret")
    assert told.trouble == ""
    assert told.counters["uid-a"][COUNTER].bad == 1


async def test_a_pod_without_a_fresh_sample_is_not_read_and_named(answering: Callable[[int, str], Page]) -> None:
    page = answering(200, vector(bucket("0.9", "8"), bucket("+Inf", "9")))
    told = await read(target(page.url, "a", "b"))
    assert set(told.counters) == {"uid-a"}
    assert "no sample of the last 60 s of pod b" in told.trouble


async def test_a_server_that_is_not_there_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        told = await read(target(f"http://127.0.0.1:{taken.getsockname()[1]}", "a"))
    assert told.counters == {}
    assert "ConnectError" in told.trouble


class Forbidden(FakeCluster):
    async def read(self, ref: Ref) -> Manifest | None:
        raise RefusedError("secrets is forbidden")


async def test_a_secret_that_may_not_be_read_says_which_role_to_make(answering: Callable[[int, str], Page]) -> None:
    page = answering(200, vector())
    told = await read(target(page.url, "a", bearerToken={"secretName": "prom"}), Forbidden(FakeClock()))
    assert "`resourceNames: [prom]`" in told.trouble
    assert page.asked == []


@pytest.mark.parametrize(
    ("ca", "data", "words"),
    [
        ({"configMapName": "ca"}, None, "is not there"),
        ({"configMapName": "ca"}, {"other": "x"}, "has no key `ca.crt`"),
        ({"configMapName": "ca"}, {"ca.crt": "x"}, "has no certificate"),
    ],
)
async def test_authorities_that_cannot_be_had_are_said(ca: Any, data: Any, words: str) -> None:
    cluster = FakeCluster(FakeClock())
    if data:
        cluster.put({"kind": "ConfigMap", "metadata": {"name": "ca", "namespace": "team"}, "data": data})
    assert words in (await read(target("https://127.0.0.1:1", "a", ca=ca), cluster)).trouble


class Server(Page):
    """Counts as our servers do, and tells it at `/metrics`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counted = Counted(lambda: 0.0)
        self.counted.keep([OBJECTIVE])
        self.counted.know("r")
        registry = CollectorRegistry()
        registry.register(self.counted)
        super().__init__(lambda path: (200, generate_latest(registry).decode()))

    def answer(self, good: int, bad: int) -> None:
        for seconds in (0.3,) * good + (2.0,) * bad:
            case = self.counted.begin("r")
            case.marks = Marks(0.0, first_token=seconds, finished=seconds)
            self.counted.end(case, "ok")


class ByName(HttpPods):
    """Pods of a loopback address each."""

    def __init__(self, client: httpx.AsyncClient, servers: list[Server]) -> None:
        super().__init__(client, lambda audience: "")
        self._urls = {each.name: each.url for each in servers}

    async def metrics(self, pod: Pod) -> str:
        return (await self._client.get(f"{self._urls[pod.name]}/metrics")).text


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made = [Server("a"), Server("b")]
    yield made
    for each in made:
        each.shutdown()
        each.server_close()


@pytest.fixture
def prometheus(servers: list[Server], tmp_path: Path) -> Iterator[str]:
    """A real one that scrapes them, under a path as behind a gateway."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Debian's package prometheus is not installed: run scripts/setup")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    targets = [
        {"targets": [each.url.removeprefix("http://")], "labels": {"namespace": "team", "pod": each.name}}
        for each in servers
    ]
    settings = {"scrape_configs": [{"job_name": "x", "scrape_interval": "500ms", "scrape_timeout": "400ms"}]}
    settings["scrape_configs"][0]["static_configs"] = targets  # type: ignore[assignment]
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    command = (
        f"{program} --config.file={tmp_path}/prometheus.yml --storage.tsdb.path={tmp_path}/data"
        f" --web.listen-address=127.0.0.1:{port} --web.external-url=http://127.0.0.1:{port}/metrics-of/team"
    )
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(command.split(), stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}/metrics-of/team"
        finally:
            running.terminate()
            running.wait(20)


ANSWERED = [((0, 0), (1, 0)), ((5, 1), (9, 0)), ((0, 0), (3, 2)), ((40, 4), (0, 1))]
"""Good and bad requests of each server before each look."""


async def test_a_real_prometheus_gives_the_same_windows_as_the_pods(prometheus: str, servers: list[Server]) -> None:
    given = target(prometheus, "a", "b", staleSeconds=10)
    direct, through = Memory(), Memory()
    queried = PrometheusSource(FakeCluster(FakeClock()), lambda: 0.0)
    async with httpx.AsyncClient() as client:
        asked = PodSource(ByName(client, servers))
        for number, (first, second) in enumerate(
            [((0, 0), (1, 0)), ((5, 1), (9, 0)), ((0, 0), (3, 2)), ((40, 4), (0, 1))]
        ):
            servers[0].answer(*first)
            servers[1].answer(*second)
            told = await asked.read(given)
            found = await _caught_up(queried, given, told.counters)
            for memory, each in ((direct, told), (through, found)):
                moment = Moment(START + timedelta(seconds=number * 5), number * 5.0)
                memory.meet(given.pods, moment)
                memory.take(each.counters, moment)
                assert not each.trouble
    await queried.close()
    end = Moment(START + timedelta(seconds=60), 60.0)
    assert through.watched(end).looks == direct.watched(end).looks
    assert sum(look.windows["r"]["EndToEnd-900ms"].total for look in direct.watched(end).looks) == 65


async def _caught_up(source: PrometheusSource, given: Target, counters: Any) -> Any:
    """Once the next scrapes are through."""
    for _ in range(100):
        found = await source.read(given)
        if found.counters == counters:
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(f"{found} is not {counters}")
