"""The gRPC target over real sockets: against the real server with stand-in models, and a scripted one."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import CertificateAuthority
from program_process import Starter, free_port, starter
from rag_server import Running, content_part, pod_part, running
from rich.console import Console
from secret_folder import replace, swap

from tailhold_api.access import ApiKeys, Auth, Tls
from tailhold_api.rpc import Grpc
from tailhold_api.serving import Admission, AdmissionPolicy
from tailhold_api.spec import Program
from tailhold_bench.load.addresses import endpoint
from tailhold_bench.load.command import Files, load
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.generator import Generator, Limits
from tailhold_bench.load.hints import with_hint
from tailhold_bench.load.options import Options
from tailhold_bench.load.questions import Asked
from tailhold_bench.load.rag_grpc import GrpcSettings
from tailhold_bench.load.report import read
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.schedule import Due
from tailhold_server.access.access import open_access
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.server import RpcServer
from tailhold_server.testing import StandInEngine

QUESTION = "When does the office close?"
KEY = "ada-0123456789abcdef"
AUTHORITY = CertificateAuthority()


async def asked(
    url: str, times: Sequence[float] = (0.0,), timeout_seconds: float = 20.0, **settings: str
) -> list[Sample]:
    target = GrpcSettings(endpoint(url, is_own=False), **settings).open()  # type: ignore[arg-type]
    samples: list[Sample] = []
    generator = Generator(target, Limits(timeout_seconds), asyncio.get_running_loop().time(), samples.append)
    await generator.send([Due(number, at, Asked(QUESTION, 40)) for number, at in enumerate(times)])
    await generator.drain()
    await target.close()
    return sorted(samples, key=lambda sample: sample.number)


@asynccontextmanager
async def serving(
    program: Program | None = None, folder: Path = Path(), **parts: Any
) -> AsyncIterator[tuple[Running, str]]:
    """The real server; its URL."""
    async with running(**parts) as server:
        access = open_access(program or Program(), folder, server.service.telemetry, server.service.tenant_of)
        rpc, port = RpcServer(server.service, Grpc(), access.authenticator, access.certificates), free_port()
        await rpc.start("127.0.0.1", port)
        try:
            yield server, f"grpc{'s' * bool(access.certificates)}://127.0.0.1:{port}"
        finally:
            await rpc.drain(0)


async def test_a_whole_answer_has_its_times_tokens_and_stages() -> None:
    async with serving(engine=StandInEngine(seconds_per_token=0.01)) as (server, url):
        (sample,) = await asked(url, model="docs")
        whole = (await server.ask(QUESTION, max_tokens=40)).json()["usage"]
    assert sample.outcome is Outcome.OK
    assert (sample.prompt_tokens, sample.output_tokens) == (whole["prompt_tokens"], whole["completion_tokens"])
    assert 1 < sample.messages <= whole["completion_tokens"]
    assert 0 < sample.stages["total"] / 1000 <= (sample.ended or 0) - (sample.begun or 0)
    stamps = [sample.begun, sample.first_byte, sample.first_token, sample.last_token, sample.ended]
    assert stamps == sorted(stamps, key=lambda stamp: stamp or 0.0)
    assert sample.first_token is not None
    assert sample.last_token is not None
    assert 0 < sample.worst_gap <= sample.last_token - sample.first_token


async def test_a_full_server_sheds() -> None:
    parts = {
        "engine": StandInEngine(running_limit=1),
        "pod": pod_part(max_running_requests=1),
        "content": content_part(admission=Admission(policy=AdmissionPolicy.BOUNDED, max_queued=0)),
    }
    async with serving(**parts) as (server, url):
        server.engine.freeze()
        first = asyncio.ensure_future(asked(url))
        async with asyncio.timeout(10):
            while not server.service.held:  # noqa: ASYNC110  with a time limit
                await asyncio.sleep(0.01)
        shed = await asked(url, (0.0, 0.0))
        server.engine.thaw()
        (answered,) = await first
    assert answered.outcome is Outcome.OK
    assert [sample.outcome for sample in shed] == [Outcome.SHED, Outcome.SHED]


async def test_a_request_that_is_given_up_is_ended_at_the_server_too() -> None:
    async with serving() as (server, url):
        server.engine.freeze()
        (sample,) = await asked(url, timeout_seconds=0.3)
        async with asyncio.timeout(10):
            while server.service.held:  # noqa: ASYNC110  with a time limit
                await asyncio.sleep(0.01)
    assert (sample.outcome, sample.detail) == (Outcome.TIMEOUT, "no answer within 0.3 s")
    assert sample.first_token is None


async def test_a_key_goes_along_and_is_asked_for(tmp_path: Path) -> None:
    swap(tmp_path / "clients", ada=KEY)
    program = Program(auth=Auth(api_keys=ApiKeys(secret_name="clients")))
    async with serving(program, tmp_path) as (_, url):
        (known,) = await asked(url, api_key=KEY)
        (none,) = await asked(url)
        (wrong,) = await asked(url, api_key="somebody-else-entirely")
    assert known.outcome is Outcome.OK
    for refused in (none, wrong):
        assert refused.outcome is Outcome.ERROR
        assert refused.detail.startswith("UNAUTHENTICATED: ")
        assert "TAILHOLD_API_KEY" in with_hint(refused.detail, url)


async def test_a_certificate_is_trusted_only_when_it_is_named(tmp_path: Path) -> None:
    pair = AUTHORITY.signed("server")
    replace(tmp_path / "tls", {"tls.crt": pair.certificate, "tls.key": pair.key})
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem)
    async with serving(Program(tls=Tls(secret_name="tls")), tmp_path) as (_, url):
        (trusted,) = await asked(url, ca_file=str(tmp_path / "ca.pem"))
        (unknown,) = await asked(url)
        (plain,) = await asked(url.replace("grpcs:", "grpc:"))
    assert trusted.outcome is Outcome.OK
    assert unknown.outcome is plain.outcome is Outcome.ERROR
    assert "--ca-file" in with_hint(unknown.detail, url)
    assert "has it TLS" in with_hint(plain.detail, "grpc://127.0.0.1:1")


class Scripted:
    """Sends some parts of an answer and ends with a status."""

    def __init__(self) -> None:
        self.parts: list[api.AskResponse] = []
        self.code: grpc.StatusCode = grpc.StatusCode.OK

    async def ask(self, _: api.AskRequest, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        for part in self.parts:
            await context.write(part)
        if self.code is not grpc.StatusCode.OK:
            await context.abort(self.code, "so it was told")


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Scripted, str]]:
    script, server = Scripted(), grpc.aio.server()
    ask = grpc.unary_stream_rpc_method_handler(script.ask, api.AskRequest.FromString, api.AskResponse.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tailhold.v1.Rag", {"Ask": ask}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield script, f"grpc://127.0.0.1:{port}"
    await server.stop(0)


OPENING = api.AskResponse(opening=api.Opening())
PIECE = api.AskResponse(piece=api.Piece(text="At"))
ENDING = api.AskResponse(ending=api.Ending(finish_reason=api.FINISH_REASON_STOP))


@pytest.mark.parametrize("code", grpc.StatusCode)
@pytest.mark.parametrize("parts", [[], [OPENING, PIECE]], ids=["before", "amid"])
async def test_each_status_has_an_outcome(code: grpc.StatusCode, parts: list[api.AskResponse]) -> None:
    async with scripted() as (script, url):
        script.parts, script.code = parts, code
        (sample,) = await asked(url)
    expected = {
        grpc.StatusCode.OK: Outcome.CUT,
        grpc.StatusCode.RESOURCE_EXHAUSTED: Outcome.SHED,
        grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.TIMEOUT,
    }
    if parts:
        expected |= dict.fromkeys((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), Outcome.CUT)
    assert sample.outcome is expected.get(code, Outcome.ERROR)
    assert (code is grpc.StatusCode.OK) or f"{code.name}: so it was told" in sample.detail
    assert (sample.first_token is not None) is bool(parts)


async def test_an_answer_without_text_is_one_all_the_same() -> None:
    async with scripted() as (script, url):
        script.parts = [OPENING, ENDING]
        (sample,) = await asked(url)
    assert (sample.outcome, sample.messages) == (Outcome.OK, 0)
    assert sample.first_token == sample.last_token


async def test_where_nobody_listens_there_is_no_answer_and_later_there_is() -> None:
    """A connection that failed is tried again at once, not after gRPC's long pauses."""
    port = free_port()
    target = GrpcSettings(endpoint(f"grpc://127.0.0.1:{port}", is_own=False)).open()
    clock = asyncio.get_running_loop().time
    refused = Sample(0, clock(), 1)
    await target.ask(Asked(QUESTION, 1), refused, clock)
    assert refused.outcome is Outcome.ERROR
    assert "is the server up" in with_hint(refused.detail, "grpc://127.0.0.1")
    async with running() as server:
        rpc = RpcServer(server.service, Grpc())
        await rpc.start("127.0.0.1", port)
        async with asyncio.timeout(20):
            while refused.outcome is not Outcome.OK:
                refused = Sample(1, clock(), 1)
                await target.ask(Asked(QUESTION, 1), refused, clock)
                await asyncio.sleep(0.05)
        await rpc.drain(0)
    await target.close()


@pytest.mark.parametrize("url", ["grpc://127.0.0.1", "grpc://127.0.0.1:9000/v1", "grpcs://127.0.0.1"])
def test_a_grpc_url_has_a_port_and_no_path(url: str) -> None:
    with pytest.raises(LoadError, match="a gRPC server has a port and no path"):
        endpoint(url, is_own=False)


@pytest.fixture(scope="module")
def start_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    with starter(tmp_path_factory.mktemp("grpc")) as start:
        yield start


def test_the_command_loads_grpc_as_it_loads_http(start_stand_in: Starter, tmp_path: Path) -> None:
    """Twice from one process, as the search for the capacity does, and from two processes at once."""
    program = start_stand_in()
    console = Console(record=True, width=160, force_terminal=False)
    common = Options(rate=20, duration="1s", max_lag="5s", processes=2)
    for name, url in (("http", f"{program.url}/v1"), ("grpc", f"grpc://127.0.0.1:{program.grpc_port}")):
        options = Options(**{**common.__dict__, "url": url})
        assert load(console, options, Files(tmp_path / name)) == 0, console.export_text()
    http, rpc = (read(tmp_path / name / "load.json") for name in ("http", "grpc"))
    assert rpc.columns.due == http.columns.due
    assert rpc.outcomes == http.outcomes
    assert rpc.made_up == http.made_up == sum(rpc.outcomes.values())
    assert "A STAND-IN ENGINE ANSWERED, no model" in console.export_text()
    assert rpc.columns.prompt_tokens == http.columns.prompt_tokens
    assert rpc.columns.output_tokens == http.columns.output_tokens
    assert [each.name for each in rpc.stages] == [each.name for each in http.stages]
