"""No question, answer, document or key is ever logged, whatever goes wrong and however much is logged."""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import grpc
import httpx
import pytest
import uvicorn
from program_process import free_port
from rag_server import DOCUMENTS, body, content_part, pod_part, running

from tailhold_api.observability import LogLevel, Observability
from tailhold_api.rpc import Grpc
from tailhold_api.serving import Overflow, Prompt
from tailhold_server.app import create_app
from tailhold_server.logs import ContentFreeFormatter, unhandled
from tailhold_server.ports import Delta
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.server import RpcServer
from tailhold_server.settings import ServerSettings
from tailhold_server.testing import StandInDocument, StandInEngine, StandInTokenizer

MARKER = "Zanzibarquark"
ASK = "/tailhold.v1.Rag/Ask"
KEY = {"authorization": f"Bearer sk-{MARKER}"}
SECRET = (*DOCUMENTS, StandInDocument(f"Secret {MARKER}", f"The word is {MARKER}."))


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that is logged at DEBUG, as the program writes it."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(ContentFreeFormatter("%(levelname)s %(name)s %(message)s"))
    root, names = logging.getLogger(), ["uvicorn", "uvicorn.error", "uvicorn.access"]
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    ours = ("httpx", "httpcore")
    for name in ours:  # the test's own client
        logging.getLogger(name).propagate = False
    yield text
    for name in (*ours, *names):
        logging.getLogger(name).propagate = True
    root.handlers[:] = before
    root.setLevel(level)


class Quoting(StandInEngine):
    """Fails with the prompt in the words of its error, as libraries do."""

    async def _generated(self, request_id: str, prompt_ids: Any, sampling: Any) -> AsyncGenerator[Delta, None]:
        if request_id == "warm-up":
            yield Delta("", 1, "stop")
            return
        words = StandInTokenizer().decode(prompt_ids)
        yield Delta(f"{MARKER} ", 1)
        try:
            raise KeyError(words)
        except KeyError as error:
            raise ValueError(f"cannot go on with {words}") from error


async def answered(app: Any, *requests: dict[str, Any]) -> list[int]:
    """Status of each, over a real server with its real error log."""
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off", log_level="debug")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110  uvicorn tells nobody
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    statuses = []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        for request in requests:
            try:
                statuses.append((await client.request(headers=KEY, **request)).status_code)
            except httpx.TransportError:
                statuses.append(0)
    server.should_exit = True
    await serving
    return statuses


def chat(**fields: Any) -> dict[str, Any]:
    return {"method": "POST", "url": "/v1/chat/completions", "json": body(**fields)}


async def test_success_and_refusals_log_nothing_of_what_is_asked(log: io.StringIO) -> None:
    content = content_part(prompt=Prompt(system=MARKER, on_overflow=Overflow.REFUSE))
    asked = f"When does {MARKER} close?"
    async with running(documents=SECRET, content=content) as server:
        statuses = await answered(
            create_app(server.service, ServerSettings()),
            chat(content=asked),
            chat(content=asked, stream=True),
            chat(content=asked, **{MARKER: 1}),
            chat(content=asked, temperature=MARKER),
            chat(content=asked, model=MARKER),
            chat(content=f"{MARKER} " * 9000),
            chat(content=f"{MARKER} " * 400_000),
            {"method": "POST", "url": "/v1/chat/completions", "content": f'{{"messages": "{MARKER}'.encode()},
            {"method": "GET", "url": f"/v1/{MARKER}?q={MARKER}"},
        )
    assert statuses == [200, 200, 400, 400, 404, 400, 413, 400, 404]
    assert MARKER not in log.getvalue()


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_error_that_quotes_the_question_is_logged_without_its_words(log: io.StringIO, streamed: bool) -> None:
    async with running(documents=SECRET, engine=Quoting()) as server:
        await answered(
            create_app(server.service, ServerSettings()), chat(content=f"What is {MARKER}?", stream=streamed)
        )
    assert "ValueError (its words are not logged)" in log.getvalue()
    assert "in _generated" in log.getvalue(), "where it came from is"
    assert MARKER not in log.getvalue()


async def test_grpc_logs_an_error_without_its_words_too(log: io.StringIO) -> None:
    async with running(documents=SECRET, engine=Quoting()) as server:
        rpc, port = RpcServer(server.service, Grpc()), free_port()
        await rpc.start("127.0.0.1", port)
        asked = api.AskRequest(messages=[api.Message(role=api.ROLE_USER, text=f"What is {MARKER}?")])
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask = channel.unary_stream(ASK, api.AskRequest.SerializeToString, api.AskResponse.FromString)
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                _ = [part async for part in ask(asked, timeout=20)]
        await rpc.drain(0)
    assert MARKER not in f"{failed.value.details()}{failed.value.debug_error_string()}"
    assert MARKER not in log.getvalue()


async def test_a_task_that_nobody_waits_for_is_logged_without_its_words(log: io.StringIO) -> None:
    async def fails() -> None:
        raise ValueError(MARKER)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(unhandled)
    task = asyncio.ensure_future(fails())
    await asyncio.sleep(0)
    del task
    await asyncio.sleep(0)
    assert "never retrieved" in log.getvalue()
    assert MARKER not in log.getvalue()


def test_the_program_logs_nothing_of_it_either_when_its_engine_dies(start_stand_in: Any) -> None:
    pod = pod_part().model_copy(update={"observability": Observability(log_level=LogLevel.DEBUG)})
    program = start_stand_in(pod=pod)
    url = f"{program.url}/v1/chat/completions"
    for fields in ({}, {"stream": True}, {"tools": [MARKER]}, {MARKER: MARKER}):
        httpx.post(url, json=body(f"What is {MARKER}?", **fields), headers=KEY, trust_env=False)
    program.stop()
    assert "ready:" in program.log.read_text()
    assert MARKER not in program.log.read_text()
