"""Odd requests, tiny connections, clients that vanish or do not read: the server goes on, and keeps nothing of them."""

import asyncio
from collections.abc import Iterator
from functools import partial

import httpx
import pytest
from hostile import many, odd, open_files, question, resident, sent, statuses, touched, vanished
from program_process import ServerProcess, pace, starter
from rag_server import body

GROWTH_MEBIBYTES = 40
"""What an allocator keeps of a wave of requests; a leak of 1 KiB for each of 100,000 connections would be 100."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with starter(tmp_path_factory.mktemp("hostile")) as start:
        yield start(stand_in=pace(0.01), TAILHOLD_SEND_SECONDS="1", TAILHOLD_RECEIVE_SECONDS="1")


def _well(server: ServerProcess) -> None:
    """It answers, nothing is held, and nobody's connection is left."""
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body(), timeout=20, trust_env=False)
    assert answer.status_code == 200
    server.wait_until(lambda: _held(server) == 0)
    server.wait_until(lambda: open_files(server) < 80)


def _held(server: ServerProcess) -> int:
    return int(httpx.get(f"{server.internal_url}/v1/tuning", trust_env=False).json()["held"])


@pytest.mark.parametrize("count", [1500, pytest.param(20_000, marks=pytest.mark.long)])
def test_odd_requests_are_told_so_and_nothing_breaks(server: ServerProcess, count: int) -> None:
    answers = asyncio.run(many(partial(sent, server.port, odd(seed)) for seed in range(count)))
    seen = statuses(answers)
    print(dict(seen))
    assert {status for status in seen if status[0] == "5"} == set()
    assert seen["400"] > count / 10
    _well(server)


@pytest.mark.parametrize("count", [4000, pytest.param(100_000, marks=pytest.mark.long)])
def test_tiny_connections_leave_nothing(server: ServerProcess, count: int) -> None:
    asyncio.run(many(partial(touched, server.port) for _ in range(500)))
    before = resident(server)
    asyncio.run(many(partial(touched, server.port) for _ in range(count)))
    _well(server)
    print(f"{count} connections: {resident(server) - before:+.1f} MiB")
    assert resident(server) - before < GROWTH_MEBIBYTES


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.long)])
def test_clients_that_vanish_free_their_places(server: ServerProcess, count: int) -> None:
    asyncio.run(many(partial(vanished, server.port) for _ in range(100)))
    before = resident(server)
    asyncio.run(many(partial(vanished, server.port) for _ in range(count)))
    _well(server)
    print(f"{count} clients: {resident(server) - before:+.1f} MiB")
    assert resident(server) - before < GROWTH_MEBIBYTES


async def _unread(port: int, count: int) -> None:
    """Streams that nobody takes anything of, while another client is answered."""
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(question(content="word " * 2000, stream=True, max_tokens=100))
        writers.append(writer)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body())
        assert answer.status_code in (200, 429)
    for writer in writers:
        writer.transport.abort()


def test_slow_readers_hold_up_nobody(server: ServerProcess) -> None:
    asyncio.run(_unread(server.port, 60))
    _well(server)


def test_ten_mebibytes_of_question_are_refused_at_once(server: ServerProcess) -> None:
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body("a" * 10 * 2**20), timeout=20, trust_env=False)
    assert answer.status_code == 413
    assert "larger than" in answer.json()["error"]["message"]
    _well(server)
