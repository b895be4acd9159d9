"""The program as a pod runs it, over real sockets, with stand-ins for the models."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from program_process import pace, termination
from rag_server import body, pod_part

from tailhold.places import ServeFailedError
from tailhold.serve import serve
from tailhold_api.access import Http
from tailhold_api.spec import Program

QUESTION: Any = [{"role": "user", "content": "When does the office close?"}]


def client_of(program: Any) -> openai.OpenAI:
    """OpenAI's own client, unmodified."""
    return openai.OpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0)


def metric(program: Any, name: str) -> float:
    """A sample of the server's metrics."""
    text = httpx.get(f"{program.internal_url}/metrics", trust_env=False).text
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " "))


def test_openais_client_reads_answers_streams_and_errors(shared: Any) -> None:
    program = shared
    client = client_of(program)
    whole = client.chat.completions.create(model="docs", messages=QUESTION)
    message = whole.choices[0].message
    assert message.content == "You asked: When does the office close? [1][2]"
    assert message.annotations is not None
    assert message.annotations[0].url_citation.url == "https://example.org/hours"
    with client.chat.completions.stream(model="docs", messages=QUESTION) as stream:
        for _ in stream:
            pass
        joined = stream.get_final_completion().choices[0].message
    assert joined.content == message.content
    assert [each.model_dump(exclude={"index"}) for each in joined.annotations or []] == [
        each.model_dump() for each in message.annotations
    ]
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(model="docs", messages=QUESTION, tools=[{"type": "function"}])  # type: ignore[list-item]
    assert [model.id for model in client.models.list()] == ["org/assistant", "docs", "docs-embedder"]
    tuning = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False).json()
    assert tuning["engine"]["name"] == "stand-in"
    steps = {row["name"]: row for row in tuning["phases"]}
    assert set(steps) == {
        *("resolve", "readFiles", "import", "loadTokenizer", "loadEncoder", "loadSnapshot", "startEngine", "warmUp"),
    }
    assert steps["warmUp"]["beganMilliseconds"] >= steps["startEngine"]["beganMilliseconds"]
    assert steps["warmUp"]["overlappedMilliseconds"] == 0


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_place(shared: Any, streamed: bool) -> None:
    """C59: within a second, and it is no failure of ours."""
    program = shared
    closed, failed = (f'tailhold_requests_total{{outcome="{each}"}}' for each in ("client_closed", "failed"))
    before = metric(program, closed)
    connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=10)
    connection.request("POST", "/v1/chat/completions", json.dumps(body("word " * 100, stream=streamed)))
    if streamed:
        connection.getresponse().read(10)
    program.wait_until(lambda: tuning(program)["held"] == 1)
    connection.close()
    left = time.monotonic()
    program.wait_until(lambda: tuning(program)["held"] == 0)
    assert time.monotonic() - left < 1
    program.wait_until(lambda: metric(program, closed) == before + 1)
    assert metric(program, failed) == 0


def tuning(program: Any) -> dict[str, Any]:
    """What is in force."""
    said: dict[str, Any] = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False).json()
    return said


def is_refused(program: Any) -> bool:
    """Nobody listens any more, or whoever still does says no."""
    try:
        answer = httpx.post(f"{program.url}/v1/chat/completions", json=body(), trust_env=False)
    except httpx.TransportError:
        return True
    return answer.status_code == 503


def test_a_stopped_server_ends_its_answers_and_takes_no_more(start_stand_in: Any) -> None:
    """C67."""
    program = start_stand_in(stand_in=pace(0.2))
    texts: list[str] = []

    def ask() -> None:
        with httpx.stream("POST", f"{program.url}/v1/chat/completions", json=body(stream=True), trust_env=False) as r:
            texts.append("".join(r.iter_text()))

    asked = threading.Thread(target=ask)
    asked.start()
    program.wait_until(lambda: tuning(program)["held"] == 1)
    program.process.terminate()
    program.wait_until(lambda: program.status("/readyz") == 503)
    assert program.status("/livez") == 200
    program.wait_until(lambda: is_refused(program))
    asked.join(20)
    assert texts[0].endswith("data: [DONE]\n\n")
    assert '"finish_reason":"stop"' in texts[0]
    assert program.process.wait(20) == 0


def asked_on(connection: http.client.HTTPConnection, **fields: Any) -> http.client.HTTPResponse:
    """A question on a connection that is open, or is opened."""
    connection.request("POST", "/v1/chat/completions", json.dumps(body(**fields)))
    return connection.getresponse()


@pytest.mark.parametrize("streamed", [False, True])
def test_an_open_connection_is_answered_once_more_and_told_to_close(start_stand_in: Any, streamed: bool) -> None:
    """C66, C67: a client that reuses its connection in the moment of the stop sees an answer and no reset."""
    program = start_stand_in(TAILHOLD_RETIRE_SECONDS="20")
    connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=10)
    first = asked_on(connection)
    first.read()
    assert first.getheader("connection") != "close"
    program.process.terminate()
    program.wait_until(lambda: program.status("/readyz") == 503)
    last = asked_on(connection, stream=streamed)
    text = last.read()
    assert last.status == 200
    assert last.getheader("connection") == "close"
    assert (b"[DONE]" in text) == streamed
    assert program.process.wait(10) == 0, "the last connection is closed: nothing is waited for"


def test_no_request_of_twenty_clients_fails_when_the_server_is_told_to_stop(start_stand_in: Any) -> None:
    """C67: each goes on over its connection until it is told to close it, and would go to another pod then."""
    program = start_stand_in(stand_in=pace(0.02))
    answered: list[bytes] = []
    told_to_close: list[int] = []

    def use(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=30)
        while True:
            response = asked_on(connection, stream=number % 2 == 0)
            answered.append(response.read())
            assert response.status == 200
            if response.getheader("connection") == "close":
                told_to_close.append(number)
                return

    with ThreadPoolExecutor(20) as pool:
        users = [pool.submit(use, number) for number in range(20)]
        program.wait_until(lambda: len(answered) >= 40)
        program.process.terminate()
        for user in users:
            user.result(30)
    assert sorted(told_to_close) == list(range(20))
    assert program.process.wait(20) == 0


def test_an_idle_server_that_nobody_is_connected_to_stops_at_once(start_stand_in: Any) -> None:
    program = start_stand_in(TAILHOLD_RETIRE_SECONDS="60")
    began = time.monotonic()
    assert program.stop() == 0
    assert time.monotonic() - began < 30


def test_a_server_whose_engine_stands_still_ends_its_streams_leaves_word_and_ends(start_stand_in: Any) -> None:
    program = start_stand_in(stand_in=pace(2), TAILHOLD_STALL_SECONDS="0.5", TAILHOLD_LOOK_SECONDS="0.1")
    texts: list[str] = []
    asked = threading.Thread(
        target=lambda: texts.append(
            httpx.post(f"{program.url}/v1/chat/completions", json=body(stream=True), timeout=30, trust_env=False).text
        )
    )
    asked.start()
    program.wait_until(lambda: program.status("/livez") == 503)
    assert program.process.wait(20) == 1
    asked.join(10)
    assert '"error":{"message"' in texts[0]
    assert "stands still" in termination(program)["message"]


def test_an_answer_longer_than_the_drain_ends_with_an_error_event(start_stand_in: Any) -> None:
    """C67."""
    pod = pod_part().model_copy(update={"server": Program(drain_seconds=1)})
    program = start_stand_in(pod=pod, stand_in=pace(1.5))
    url = f"{program.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body(stream=True), timeout=30, trust_env=False) as answer:
        lines = answer.iter_text()
        first = next(lines)
        program.process.terminate()
        rest = "".join(lines)
    assert "tailhold" in first
    assert '"error":{"message"' in rest
    assert program.process.wait(20) == 0


def rest_of(program: Any, *pieces: bytes) -> bytes:
    """What a connection gives until the server closes it."""
    with socket.create_connection(("127.0.0.1", program.port), timeout=10) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_connection_whose_body_is_not_read_to_its_end_is_closed_with_the_answer(start_stand_in: Any) -> None:
    small = pod_part().model_copy(update={"server": Program(http=Http(max_body_mebibytes=1))})
    program = start_stand_in(pod=small, TAILHOLD_RECEIVE_SECONDS="0.2")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: docs\r\n"
    chunked, piece = head + b"transfer-encoding: chunked\r\n\r\n", b"7a120\r\n" + b" " * 500_000 + b"\r\n"
    for status, sent in (
        (413, (chunked, piece, piece, piece)),
        (413, (head + b"content-length: 1048577\r\n\r\n",)),
        (408, (chunked, piece)),
        (408, (head + b"content-length: 200\r\n\r\n", b"{")),
    ):
        answer, _, said = rest_of(program, *sent).partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert answer.lower().count(b"connection: close") == 1
        assert set(json.loads(said)["error"]) == {"message", "type", "param", "code"}
    connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=10)
    connection.request("POST", "/v1/chat/completions", b" " * 16_000_000)
    assert connection.getresponse().status == 413, "also for a client that reads only once all is sent"
    assert httpx.post(f"{program.url}/v1/chat/completions", json=body(), trust_env=False).status_code == 200


@pytest.mark.long
def test_an_idle_connection_is_kept_longer_than_proxies_keep_theirs(shared: Any) -> None:
    """C66: more than uvicorn's 5 s; the setting is what the server is given."""
    assert Program().http.keep_alive_seconds >= 75
    program = shared
    connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=10)
    connection.request("GET", "/v1/models")
    connection.getresponse().read()
    own = connection.sock
    began = time.monotonic()
    program.wait_until(lambda: time.monotonic() > began + 6)
    connection.request("GET", "/v1/models")
    assert connection.getresponse().status == 200
    assert connection.sock is own


def test_a_port_in_use_is_said_at_once(shared: Any) -> None:
    program, folder = shared, shared.log.parent
    with pytest.raises(ServeFailedError, match=f"127.0.0.1:{program.port}: Address already in use"):
        serve(None, folder / "pod.json", folder / "content.json", "127.0.0.1", program.port, 0)


def test_a_start_that_fails_leaves_its_reason(start_stand_in: Any) -> None:
    program = start_stand_in(wait=False, stand_in="startFails=true")
    assert program.process.wait(30) == 1
    assert json.loads(program.termination_log.read_text()) == {
        "reason": "StartFailed",
        "message": "the stand-in engine was told to fail its start (`startFails`)",
    }


def test_a_model_that_is_not_there_ends_the_start_for_good(start_stand_in: Any) -> None:
    program = start_stand_in(wait=False, stand_in=None)
    assert program.process.wait(60) == 2
    left = json.loads(program.termination_log.read_text())
    assert left["reason"] == "ModelNotFound"
    assert "/models/none" in left["message"]


def test_a_loading_server_answers_its_probes_and_stops_when_told(start_stand_in: Any) -> None:
    """C100."""
    program = start_stand_in(wait=False, stand_in="startSeconds=60")
    program.wait_until(lambda: program.status("/livez") == 200)
    program.wait_until(lambda: tuning(program)["phase"] == "startEngine")
    started = httpx.get(f"{program.internal_url}/startupz", trust_env=False)
    assert (started.status_code, started.json()["phase"]) == (503, "startEngine")
    assert program.status("/readyz") == 503
    assert program.stop() == 0
