"""A candidate that fails: the client has what the stable pod alone would give it, and the candidate has a bad request."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from certificates import CertificateAuthority
from handing import CANDIDATE, Conversation, Side, acting, side
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_process import free_port
from rag_server import body
from secret_folder import replace

from tailhold_api.access import Tls
from tailhold_api.spec import Program
from tailhold_server import sse
from tailhold_server.access.access import open_access
from tailhold_server.handover.told import Told

PATH = "/v1/chat/completions"
START = Told(found=0.001, most=100, used=90).header()
ROLE = sse.event({"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
WORD = sse.event({"id": "1", "choices": [{"index": 0, "delta": {"content": "candidate "}}]})
ENDING = Told(outcome="ok", found=0.001, first=0.002, most=100, used=95).line()
FAILED = Told(outcome="failed", most=100, used=95).line()
ERROR = sse.event({"error": {"message": "The model stopped.", "type": "server_error", "param": None, "code": None}})


def head(kind: str, told: bytes = START, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\nx-tailhold-handover-told: %b\r\ntransfer-encoding: chunked\r\n\r\n" % (
        status,
        kind.encode(),
        told,
    )


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def answered(
    status: int, text: bytes = b'{"error": {"message": "no", "type": "x", "param": null, "code": null}}'
) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(text), text)


def says(*parts: bytes) -> Callable[[Conversation], Any]:
    async def act(conversation: Conversation) -> None:
        await conversation.say(*parts)

    return act


async def resets(conversation: Conversation) -> None:
    conversation.writer.transport.abort()


async def hangs(conversation: Conversation) -> None:
    await conversation.closed()


def hangs_after(*parts: bytes) -> Callable[[Conversation], Any]:
    async def act(conversation: Conversation) -> None:
        await conversation.say(*parts)
        await conversation.closed()

    return act


EVENTS, JSON = head("text/event-stream"), head("application/json")
BOTH: dict[str, tuple[Callable[[Conversation], Any], str]] = {
    "resets the connection": (resets, "unreachable"),
    "closes it without a word": (says(), "unreachable"),
    "never answers": (hangs, "timed_out"),
    "answers 500": (says(answered(500)), "failed"),
    "answers 503": (says(answered(503)), "failed"),
    "answers 429": (says(answered(429)), "overloaded"),
    "answers 404, its model has another name": (says(answered(404)), "refused"),
    "answers 401, it does not know the client": (says(answered(401)), "refused"),
    "sends the client elsewhere": (says(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"), "failed"),
    "is no server of ours": (says(answered(200, b"<html>")), "failed"),
    "speaks no HTTP": (says(b"220 smtp.example.com ESMTP\r\n"), "failed"),
    "breaks off in its head": (says(b"HTTP/1.1 200 OK\r\ncontent-ty"), "unreachable"),
    "tells nonsense": (says(head("x", b'{"most": -1}') + chunk(WORD) + b"0\r\n\r\n"), "failed"),
}
WHOLE = {
    "breaks off in its body": (says(JSON, chunk(b' {"id": "cand')), "truncated"),
    "ends without its word": (says(JSON, chunk(b' {"id": "candidate"}'), b"0\r\n\r\n"), "truncated"),
    "fails while it answers": (says(JSON, chunk(b" \n" + FAILED), b"0\r\n\r\n"), "failed"),
}
STREAMED = {
    "breaks off before its first token": (says(EVENTS, chunk(ROLE)), "truncated"),
    "breaks off within its first token": (says(EVENTS, chunk(ROLE + WORD[:20])), "truncated"),
    "fails before its first token": (says(EVENTS, chunk(ROLE + ERROR + sse.DONE + FAILED), b"0\r\n\r\n"), "failed"),
    "fails before its first token, in pieces": (
        says(EVENTS, chunk(ROLE), chunk(ERROR[:9]), chunk(ERROR[9:])),
        "failed",
    ),
    "stands still before its first token": (hangs_after(EVENTS, chunk(ROLE)), "timed_out"),
    "says nothing at all": (says(EVENTS, b"0\r\n\r\n"), "truncated"),
}
FAULTS = [
    pytest.param(*fault, streamed, id=f"{name}, {'streamed' if streamed else 'whole'}")
    for faults, kinds in ((BOTH, (False, True)), (WHOLE, (False,)), (STREAMED, (True,)))
    for name, fault in faults.items()
    for streamed in kinds
]


@pytest.fixture
async def stable(tmp_path: Path) -> AsyncIterator[Side]:
    async with side(tmp_path) as found:
        yield found


def bare(answer: httpx.Response) -> Any:
    """What a client has of an answer, without what is never the same twice."""
    text = re.sub(r'"(id|created|trace)":("[^"]*"|\d+)', "", answer.text)
    text = re.sub(r'"stages":\{[^}]*\}', "", text)
    return answer.status_code, answer.headers.get("content-type"), answer.headers.get("x-tailhold-revision"), text


@pytest.mark.parametrize(("act", "outcome", "streamed"), FAULTS)
async def test_before_the_first_byte_the_client_has_what_the_stable_pod_gives(
    stable: Side, act: Callable[[Conversation], Any], outcome: str, streamed: bool
) -> None:
    alone = await stable.client.post(PATH, json=body(stream=streamed))
    good = await stable.counted(stable.revision)
    async with acting(act) as candidate:
        await stable.hand_to(candidate.port, patience=300)
        answer = await stable.client.post(PATH, json=body(stream=streamed))
    assert bare(answer) == bare(alone)
    assert answer.status_code == 200
    assert await stable.handed() == {outcome: 1}
    assert len(candidate.heard) == 1
    for objective in ("EndToEnd-60000ms", "TimeToFirstToken-60000ms"):
        assert await stable.counted(CANDIDATE, objective) == (0, 1), "one bad for the candidate"
    assert await stable.counted(stable.revision) == good, "nothing for the stable side"
    assert stable.running.service.held == 0


async def test_nobody_listens(stable: Side) -> None:
    await stable.hand_to(free_port())
    assert (await stable.client.post(PATH, json=body())).status_code == 200
    assert await stable.handed() == {"unreachable": 1}


async def test_what_the_stable_pod_refuses_too_is_nobodys_fault(stable: Side) -> None:
    async with acting(says(answered(400))) as candidate:
        await stable.hand_to(candidate.port)
        answer = await stable.client.post(PATH, json=body(logit_bias={"999": 1}))
    assert answer.status_code == 400
    assert await stable.handed() == {"refused": 1}
    assert await stable.counted(CANDIDATE) == (0, 0)
    assert await stable.counted(stable.revision) == (0, 0)


async def test_a_failure_counts_although_the_stable_pod_is_overloaded_then(stable: Side) -> None:
    stable.running.service._pipeline._gate._running_limit = -1000  # type: ignore[union-attr]
    async with acting(says(answered(404))) as candidate:
        await stable.hand_to(candidate.port)
        assert (await stable.client.post(PATH, json=body())).status_code == 429
    assert await stable.counted(CANDIDATE) == (0, 1)
    assert await stable.counted(stable.revision) == (0, 0)


def events_of(text: str) -> list[Any]:
    found = [line[6:] for line in text.split("\n\n") if line.startswith("data: ")]
    return [each if each == "[DONE]" else json.loads(each) for each in found]


BROKEN = {
    "the connection ends": says(EVENTS, chunk(ROLE), chunk(WORD), chunk(WORD)),
    "within an event": says(EVENTS, chunk(ROLE), chunk(WORD), chunk(WORD), chunk(WORD[:-9])),
    "within a chunk": says(EVENTS, chunk(ROLE), chunk(WORD), chunk(WORD), chunk(WORD)[:9]),
    "a clean end, and nothing said": says(EVENTS, chunk(ROLE + WORD + WORD), b"0\r\n\r\n"),
}


@pytest.mark.parametrize("act", BROKEN.values(), ids=BROKEN)
async def test_after_the_first_byte_a_dying_candidate_ends_a_stream_as_a_dying_engine_does(
    stable: Side, act: Callable[[Conversation], Any]
) -> None:
    async with acting(act) as candidate:
        await stable.hand_to(candidate.port)
        answer = await stable.client.post(PATH, json=body(stream=True))
        found = events_of(answer.text)
    assert answer.text.startswith((ROLE + WORD + WORD).decode()), "the candidate's own bytes"
    stable.engine.kill()
    assert found[-1] == "[DONE]"
    assert found[-2]["error"]["message"] == "The model stopped while answering. Try again."
    assert len(found) == 5, "no half of an event"
    assert await stable.handed() == {"broken": 1}
    assert await stable.counted(CANDIDATE) == (0, 1)
    assert await stable.counted(stable.revision) == (0, 0)


async def test_a_candidate_that_tells_of_its_own_end_is_not_told_of_again(stable: Side) -> None:
    parts = (EVENTS, chunk(ROLE), chunk(WORD), chunk(ERROR + sse.DONE), chunk(FAILED), b"0\r\n\r\n")
    async with acting(says(*parts)) as candidate:
        await stable.hand_to(candidate.port)
        answer = await stable.client.post(PATH, json=body(stream=True))
    assert answer.content == ROLE + WORD + ERROR + sse.DONE
    assert await stable.handed() == {"broken": 1}
    assert await stable.counted(CANDIDATE) == (0, 1)


async def test_a_sign_of_life_is_passed_on_and_a_token_is_not_counted_from_it(stable: Side) -> None:
    """C64: a proxy in front cuts a stream that is silent."""
    go_on = asyncio.Event()

    async def act(conversation: Conversation) -> None:
        await conversation.say(EVENTS, chunk(ROLE), chunk(sse.COMMENT))
        await go_on.wait()
        await conversation.say(chunk(WORD), chunk(sse.DONE), chunk(ENDING), b"0\r\n\r\n")

    async with acting(act) as candidate:
        await stable.hand_to(candidate.port)
        async with stable.client.stream("POST", PATH, json=body(stream=True)) as answer:
            pieces = answer.aiter_raw()
            assert await anext(pieces) == ROLE + sse.COMMENT
            (case,) = stable.running.service.objectives._open
            assert case.marks is not None
            assert case.marks.first_token is None
            go_on.set()
            assert b"".join([piece async for piece in pieces]) == WORD + sse.DONE
    assert await stable.counted(CANDIDATE) == (1, 1)


async def test_a_candidate_that_falls_silent_within_a_stream_is_given_up(stable: Side) -> None:
    stable.running.service.comment_seconds = 0.05
    async with acting(hangs_after(EVENTS, chunk(ROLE), chunk(WORD))) as candidate:
        await stable.hand_to(candidate.port, patience=100)
        answer = await stable.client.post(PATH, json=body(stream=True))
    assert "The model stopped" in answer.text
    assert await stable.handed() == {"broken": 1}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "within it"])
async def test_a_client_that_leaves_takes_the_candidate_with_it_at_once(
    stable: Side, streamed: bool, begun: bool
) -> None:
    heard, gone = asyncio.Event(), asyncio.Event()

    async def act(conversation: Conversation) -> None:
        if begun:
            await conversation.say(EVENTS if streamed else JSON, chunk(ROLE + WORD if streamed else b" "))
        heard.set()
        await conversation.closed()
        gone.set()

    async with acting(act) as candidate:
        await stable.hand_to(candidate.port)
        asked = asyncio.ensure_future(stable.client.post(PATH, json=body(stream=streamed)))
        await heard.wait()
        await asyncio.sleep(0.05)
        left = time.monotonic()
        asked.cancel()
        await asyncio.wait_for(gone.wait(), 5)
        assert time.monotonic() - left < 1
    while stable.running.service.held:  # noqa: ASYNC110  a number, no event
        await asyncio.sleep(0.01)
    assert await stable.handed() == {"given_up": 1}
    assert await stable.counted(CANDIDATE) == (0, 0), "it left before it could be called late"


async def test_an_idle_connection_that_was_closed_meanwhile_is_no_failure(stable: Side) -> None:
    kept: list[asyncio.StreamWriter] = []
    answer = JSON + chunk(b' {"ok": 1}\n' + ENDING) + b"0\r\n\r\n"

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.append(writer)
        while text := await reader.readuntil(b"\r\n\r\n"):
            size = re.search(rb"content-length: (\d+)", text.lower())
            await reader.readexactly(int(size[1]) if size else 0)
            if len(kept) == 1 and kept[0].get_extra_info("used"):
                return
            writer.write(answer)
            writer._transport._extra["used"] = True  # type: ignore[attr-defined]

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    await stable.hand_to(server.sockets[0].getsockname()[1])
    for _ in range(3):
        assert (await stable.client.post(PATH, json=body())).json() == {"ok": 1}
        kept[0].transport.abort()
    assert await stable.handed() == {"answered": 3}
    server.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 400), max_size=12), streamed=st.booleans(), at=st.floats(0, 1))
def test_wherever_a_candidates_bytes_break_off_the_client_has_a_whole_answer_or_an_error_event(
    tmp_path: Path, cuts: list[int], streamed: bool, at: float
) -> None:
    """In pieces of any size; never half an event, never an answer that only looks whole."""
    if streamed:
        text = EVENTS + chunk(ROLE) + chunk(WORD) + chunk(WORD + sse.DONE) + chunk(ENDING) + b"0\r\n\r\n"
    else:
        text = JSON + chunk(b" ") + chunk(b'{"id": "candidate"}\n' + ENDING) + b"0\r\n\r\n"
    sent = text[: int(at * len(text))]
    parts = [sent[start : start + size] for start, size in _places(len(sent), cuts)]

    async def play() -> tuple[httpx.Response, dict[str, int]]:
        async with AsyncExitStack() as stack:
            stable = await stack.enter_async_context(side(tmp_path))
            candidate = await stack.enter_async_context(acting(says(*parts)))
            await stable.hand_to(candidate.port)
            return await stable.client.post(PATH, json=body(stream=streamed)), await stable.handed()

    answer, handed = asyncio.run(play())
    assert answer.status_code == 200
    (outcome,) = handed
    if not streamed:
        assert answer.json()["id"].startswith("chatcmpl-") == (outcome != "answered")
        return
    found = events_of(answer.text)
    assert found[-1] == "[DONE]"
    assert ("error" in found[-2]) == (outcome == "broken")
    assert (answer.content == ROLE + WORD + WORD + sse.DONE) == (outcome == "answered")


def _places(size: int, cuts: list[int]) -> list[tuple[int, int]]:
    found, at = [], 0
    for each in [*cuts, size]:
        found.append((at, each))
        at += each
    return found


AUTHORITY, STRANGER = CertificateAuthority(), CertificateAuthority("stranger")
SERVICE = "docs.team.svc"
CERTIFICATES = {
    "of the Service's name": (AUTHORITY.signed("own", SERVICE), "answered"),
    "of another name": (AUTHORITY.signed("other", "evil.team.svc"), "unreachable"),
    "of another authority": (STRANGER.signed("own", SERVICE), "unreachable"),
}


@pytest.mark.parametrize(("pair", "outcome"), CERTIFICATES.values(), ids=CERTIFICATES)
async def test_with_tls_a_candidate_has_to_have_the_name_of_the_service(
    tmp_path: Path, pair: Any, outcome: str
) -> None:
    own = AUTHORITY.signed("stable", SERVICE)
    replace(tmp_path / "tls", {"tls.crt": own.certificate, "tls.key": own.key, "ca.crt": AUTHORITY.pem})
    (tmp_path / "served.crt").write_bytes(pair.certificate)
    (tmp_path / "served.key").write_bytes(pair.key)
    served = {"ssl_certfile": str(tmp_path / "served.crt"), "ssl_keyfile": str(tmp_path / "served.key")}
    async with side(tmp_path) as stable, side(tmp_path, tls=served) as candidate:
        service = stable.running.service
        access = open_access(Program(tls=Tls(secret_name="tls")), tmp_path, service.telemetry, service.tenant_of)
        assert access.certificates is not None
        certificates = access.certificates
        service.peer_context = lambda: certificates.newest.peers
        for streamed in (False, True):
            await stable.hand_to(candidate.handover_port, revision=candidate.revision, name=SERVICE)
            assert (await stable.client.post(PATH, json=body(stream=streamed))).status_code == 200
        assert await stable.handed() == {outcome: 2}


async def test_one_certificate_for_both_pods_needs_no_authority(tmp_path: Path) -> None:
    """Both have the same Secret; who signed it is known to neither."""
    own = STRANGER.signed("both", SERVICE)
    replace(tmp_path / "tls", {"tls.crt": own.certificate, "tls.key": own.key})
    served = {"ssl_certfile": str(tmp_path / "tls" / "tls.crt"), "ssl_keyfile": str(tmp_path / "tls" / "tls.key")}
    async with side(tmp_path) as stable, side(tmp_path, tls=served) as candidate:
        service = stable.running.service
        access = open_access(Program(tls=Tls(secret_name="tls")), tmp_path, service.telemetry, service.tenant_of)
        assert access.certificates is not None
        certificates = access.certificates
        service.peer_context = lambda: certificates.newest.peers
        await stable.hand_to(candidate.handover_port, revision=candidate.revision, name=SERVICE)
        assert (await stable.client.post(PATH, json=body())).status_code == 200
        assert await stable.handed() == {"answered": 1}
