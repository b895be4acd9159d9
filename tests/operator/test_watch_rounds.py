"""Looks at many pipelines: none waits for another's pods, and none goes on once somebody else leads."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from test_watch_memory import pod
from worlds import PROMISED, page

from tailhold_api.slo import Slo
from tailhold_operator.kinds import Ref
from tailhold_operator.observe import Pod
from tailhold_operator.pods import HttpPods, Unanswered
from tailhold_operator.testing import FakeClock, FakeCluster, FakePods
from tailhold_operator.watch.rounds import PERIOD_SECONDS, Watch
from tailhold_operator.watch.sources import PodSource
from tailhold_operator.watch.target import Target

SLO = Slo.model_validate(PROMISED["slo"])
GOOD = page({"r": (9, 1)})


def key(number: int = 0) -> Ref:
    return Ref("RagPipeline", "team", f"p{number}")


def target(*pods: Pod, slo: Slo = SLO) -> Target:
    return Target("team", slo, pods)


class SlowPods(FakePods):
    """Some hang, until they are let go."""

    def __init__(self) -> None:
        super().__init__(FakeCluster(FakeClock()))
        self.hangs: Callable[[str], bool] = lambda name: False
        self.let_go = asyncio.Event()
        self.asked: list[str] = []

    async def metrics(self, pod: Pod) -> str | Unanswered:
        self.asked.append(pod.name)
        if self.hangs(pod.name):
            await self.let_go.wait()
            return Unanswered("no answer within 3 s")
        return GOOD


@pytest.fixture
def pods() -> SlowPods:
    return SlowPods()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def watch(pods: SlowPods, clock: FakeClock) -> Watch:
    return Watch(PodSource(pods), clock, lambda: clock.now.timestamp())


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_pods_that_hang_cost_nobody_else_anything(watch: Watch, pods: SlowPods, clock: FakeClock) -> None:
    """A hundred pipelines of eight pods, a tenth of which hang: all others are read in each round, by and by even in
    the first one."""
    pods.hangs = lambda name: name.startswith(("p0-", "p1-")) or name.endswith("-7")
    for number in range(100):
        watch.saw(key(number), target(*(pod(f"p{number}-{at}") for at in range(8))))
    for _ in range(3):
        clock.pass_by(seconds=2 * PERIOD_SECONDS)
        pods.asked.clear()
        watch._begin_due()
        await turns(200)
        pods.let_go.set()
        await turns(400)
        pods.let_go.clear()
    healthy = {f"p{number}-{at}" for number in range(2, 100) for at in range(7)}
    watch._begin_due()
    clock.pass_by(seconds=2 * PERIOD_SECONDS)
    pods.asked.clear()
    watch._begin_due()
    await turns(200)
    assert healthy <= set(pods.asked)
    watch.forget_all()


async def test_a_pipeline_that_promises_nothing_is_not_looked_at(watch: Watch, pods: SlowPods) -> None:
    watch.saw(key(), target(pod("a"), slo=Slo()))
    await watch.look(key())
    assert pods.asked == []
    watch.saw(key(), target(pod("a")))
    await watch.look(key())
    watch.saw(key(), target(pod("a"), slo=Slo()))
    assert watch.watched(key()).looks == ()
    assert watch.watched(key()).read_at is None


async def test_who_leads_no_more_stops_and_forgets(watch: Watch, pods: SlowPods, clock: FakeClock) -> None:
    pods.hangs = lambda name: True
    watch.saw(key(), target(pod("a")))
    clock.pass_by(seconds=PERIOD_SECONDS)
    leads = True
    running = asyncio.create_task(watch.run(lambda: leads))
    await turns()
    assert pods.asked == ["a"]
    leads = False
    await asyncio.sleep(0.6)
    assert watch._kept == {}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_looks_of_one_pipeline_do_not_pile_up(watch: Watch, pods: SlowPods, clock: FakeClock) -> None:
    pods.hangs = lambda name: True
    watch.saw(key(), target(pod("a")))
    for _ in range(5):
        clock.pass_by(seconds=2 * PERIOD_SECONDS)
        watch._begin_due()
        await turns()
    assert pods.asked == ["a"]
    watch.forget_all()


async def test_an_old_server_counts_for_the_revision_that_it_said_it_runs(watch: Watch, clock: FakeClock) -> None:
    pods = FakePods(FakeCluster(clock))
    old = Watch(PodSource(pods), clock, lambda: clock.now.timestamp())
    given = Target("team", SLO, (pod("a"),), {"a": "ours"})
    for good in (10, 30):
        pods.pages["a"] = page({"": (good, 0), "other": (good * 2, 0)})
        old.saw(key(), given)
        clock.pass_by(seconds=5)
        await old.look(key())
    windows = old.watched(key()).looks[-1].windows
    assert {name: found["EndToEnd-900ms"].total for name, found in windows.items()} == {"ours": 20, "other": 40}


async def test_what_is_no_metrics_is_a_pod_that_was_not_read(watch: Watch, clock: FakeClock) -> None:
    pods = FakePods(FakeCluster(clock))
    told = Watch(PodSource(pods), clock, lambda: clock.now.timestamp())
    told.saw(key(), target(*map(pod, "abcde")))
    pods.pages = dict.fromkeys("abcd", "<html>Sign in</html>") | {"e": GOOD}
    await told.look(key())
    trouble = told.watched(key()).trouble
    assert trouble.startswith("pod a: what it says at /metrics is no metrics; ")
    assert trouble.endswith("; and 1 more")


class TestHttp:
    """What a pod may do to who reads it."""

    @staticmethod
    async def asked(serve: Callable[[asyncio.StreamWriter], object]) -> str | Unanswered:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            serve(writer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = httpx.AsyncHTTPTransport()

        class Elsewhere(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                request.url = request.url.copy_with(port=port, host="127.0.0.1")
                return await transport.handle_async_request(request)

        async with server, httpx.AsyncClient(transport=Elsewhere()) as client:
            return await HttpPods(client, lambda audience: "").metrics(replace(pod("a"), ip="127.0.0.1"))

    async def test_a_page_without_end_is_given_up(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n"
        told = await self.asked(lambda writer: writer.write(head + b"x" * 5_000_000))
        assert isinstance(told, Unanswered)
        assert "longer than" in told.words

    async def test_an_error_is_said(self) -> None:
        told = await self.asked(lambda writer: writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"))
        assert told == Unanswered("status 503")
        told = await self.asked(lambda writer: None)
        assert isinstance(told, Unanswered)

    async def test_a_page_is_read_whole(self) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(GOOD)}\r\n\r\n"
        assert await self.asked(lambda writer: writer.write((head + GOOD).encode())) == GOOD
