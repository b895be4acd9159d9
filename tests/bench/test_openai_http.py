"""The lean client over real sockets: every way in which an answer can go wrong."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from tailhold_bench.load import addresses
from tailhold_bench.load.addresses import endpoint, is_near
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.generator import Generator, Limits
from tailhold_bench.load.openai_http import HttpSettings, HttpTarget
from tailhold_bench.load.questions import Asked
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.schedule import Due
from tailhold_bench.load.stand_in import Behaviour, StandIn
from tailhold_bench.load.stream import StreamReader


@asynccontextmanager
async def stand_in(behaviour: Behaviour) -> AsyncIterator[tuple[StandIn, str]]:
    server = StandIn(behaviour)
    url = await server.start()
    yield server, url
    server.stop()


async def asked(
    url: str, times: Sequence[float] = (0.0,), timeout_seconds: float = 10.0, **settings: str
) -> list[Sample]:
    target = HttpTarget(HttpSettings(endpoint(url, is_own=False), **settings))  # type: ignore[arg-type]
    samples: list[Sample] = []
    start = asyncio.get_running_loop().time()
    generator = Generator(target, Limits(timeout_seconds), start, samples.append)
    await generator.send([Due(number, at, Asked("Why “so”?", 5)) for number, at in enumerate(times)])
    await generator.drain()
    await target.close()
    return sorted(samples, key=lambda sample: sample.number)


async def asked_of(target: HttpTarget) -> Sample:
    """Once it is answered."""
    sample = Sample(0, 0.0, 5)
    await target.ask(Asked("Why?", 5), sample, asyncio.get_running_loop().time)
    return sample


async def test_a_whole_answer_has_its_times_tokens_and_stages() -> None:
    async with stand_in(Behaviour(service_seconds=0.02, tokens=3, token_seconds=0.01)) as (server, url):
        (sample,) = await asked(url, model="docs", api_key="key")
    assert (sample.outcome, sample.messages, sample.output_tokens, sample.prompt_tokens) == (Outcome.OK, 3, 3, 10)
    assert sample.stages == {"serve": 20.0, "total": 20.0}
    stamps = [sample.begun, sample.first_byte, sample.first_token, sample.last_token, sample.ended]
    assert stamps == sorted(stamps, key=lambda stamp: stamp or 0.0)
    assert (sample.first_token or 0) >= 0.02
    assert sample.first_token is not None
    assert sample.last_token is not None
    spoken = sample.last_token - sample.first_token
    assert spoken / 2 <= sample.worst_gap + 1e-9 <= spoken + 2e-9, "the longest of two gaps"
    body = orjson.loads(server.bodies[0])
    assert (body["model"], body["max_tokens"], body["stream"]) == ("docs", 5, True)
    assert body["messages"][0]["content"] == "Why “so”?"


async def test_connections_are_kept_alive_and_as_many_as_are_needed() -> None:
    async with stand_in(Behaviour(service_seconds=0.03)) as (server, url):
        target = HttpTarget(HttpSettings(endpoint(url, is_own=False)))
        samples = list(await asyncio.gather(*(asked_of(target) for _ in range(3))))
        samples += [await asked_of(target) for _ in range(2)]
        assert len(server.transports) <= 3
        await target.close()
    assert [sample.outcome for sample in samples] == [Outcome.OK] * 5


async def test_429_is_shed_and_other_statuses_are_errors_with_the_server_s_words() -> None:
    async with stand_in(Behaviour(status=429)) as (server, url):
        (shed,) = await asked(url)
        server.behaviour.status = 503
        (error,) = await asked(url)
    assert (shed.outcome, shed.detail) == (Outcome.SHED, "429: the stand-in refuses")
    assert (error.outcome, error.detail) == (Outcome.ERROR, "503: the stand-in refuses")


async def test_a_stream_that_ends_early_is_cut_although_it_had_a_first_token() -> None:
    async with stand_in(Behaviour(service_seconds=0.001, tokens=2, cut=True)) as (_, url):
        (sample,) = await asked(url)
    assert sample.first_token is not None
    assert (sample.outcome, sample.detail) == (Outcome.CUT, "the stream ended before the answer did")


async def test_a_server_that_hangs_is_a_timeout() -> None:
    async with stand_in(Behaviour(hang=True)) as (_, url):
        (sample,) = await asked(url, timeout_seconds=0.1)
    assert sample.outcome is Outcome.TIMEOUT
    assert sample.begun is not None


async def test_a_server_that_dies_midway_leaves_the_answers_before_it() -> None:
    async with stand_in(Behaviour(service_seconds=0.002, tokens=2, die_after=4)) as (_, url):
        target = HttpTarget(HttpSettings(endpoint(url, is_own=False)))
        samples = [await asked_of(target) for _ in range(8)]
        await target.close()
    outcomes = [sample.outcome for sample in samples]
    assert outcomes == [Outcome.OK] * 3 + [Outcome.CUT] + [Outcome.ERROR] * 4
    assert "no connection: " in samples[-1].detail


async def test_what_is_no_http_is_an_error() -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"hello\r\n\r\n")
        await writer.drain()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (sample,) = await asked(f"http://127.0.0.1:{port}/v1")
    server.close()
    assert (sample.outcome, sample.detail[:9]) == (Outcome.ERROR, "no HTTP: ")


STREAM = (
    b": keep-alive\n\n"
    b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}\n\n'
    b'data: {"choices":[{"delta":{"content":"\xe4\xbd\xa0"},"finish_reason":null}]}\r\n\r\n'
    b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],'
    b'"tailhold":{"stages":{"embed":1.5},"trace":"4b"}}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_a_stream_reads_alike_wherever_it_is_cut(cuts: set[int]) -> None:
    sample = Sample(0, 0.0, 5)
    reader = StreamReader(sample)
    ends = [0, *sorted(cuts), len(STREAM)]
    for place in range(len(ends) - 1):
        reader.feed(STREAM[ends[place] : ends[place + 1]], 1.0)
    reader.end()
    assert (sample.outcome, sample.messages, sample.output_tokens) == (Outcome.OK, 2, 2)
    assert (sample.stages, sample.trace) == ({"embed": 1.5}, "4b")


@pytest.mark.parametrize(
    ("event", "detail"),
    [
        (b'data: {"error":{"message":"the engine died"}}\n\n', "the engine died"),
        (b"data: {\n\n", "an event that is no chat completion chunk"),
        (b"data: [1]\n\n", "an event that is no chat completion chunk"),
        (b'data: {"choices":[{}]}\n\n', "an event that is no chat completion chunk"),
    ],
)
def test_an_error_in_a_stream_outweighs_its_end(event: bytes, detail: str) -> None:
    sample = Sample(0, 0.0, 5)
    reader = StreamReader(sample)
    reader.feed(event + STREAM, 1.0)
    reader.end()
    assert sample.outcome is Outcome.ERROR
    assert detail in sample.detail


@pytest.mark.parametrize(
    ("address", "near"),
    [("127.0.0.1", True), ("::1", True), ("10.1.2.3", True), ("192.168.0.9", True), ("fd00::1", True),
     ("8.8.8.8", False), ("2606:4700::1111", False), ("0.0.0.0", False)],
)  # fmt: skip
def test_only_this_machine_and_private_networks_are_near(address: str, near: bool) -> None:
    assert is_near(address) is near


def test_a_far_target_needs_a_word() -> None:
    with pytest.raises(LoadError, match="is an attack; if it is yours, say so with --this-target-is-mine"):
        endpoint("https://8.8.8.8/v1", is_own=False)
    assert endpoint("https://8.8.8.8/v1", is_own=True).port == 443


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8000/v1", "write http://HOST:PORT/v1"),
        ("ftp://127.0.0.1/v1", "write http://HOST:PORT/v1"),
        ("http://127.0.0.1:99999/v1", "range"),
        ("http://me@127.0.0.1/v1", "keys go into --api-key"),
        ("http://no-such-host.invalid/v1", "no address for 'no-such-host.invalid'"),
    ],
)
def test_a_wrong_url_is_said_before_anything_is_sent(url: str, said: str) -> None:
    with pytest.raises(LoadError, match="--url") as caught:
        endpoint(url, is_own=False)
    assert said in str(caught.value)


def own_certificate(folder: Path) -> Path:
    """Of 127.0.0.1, signed by itself, with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stand-in")])
    began = datetime(2020, 1, 1, tzinfo=UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, began, began + timedelta(days=36500))
    certificate = builder.add_extension(address, False).sign(key, hashes.SHA256())
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "own.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain)
    )
    return path


async def test_a_certificate_is_trusted_only_when_it_is_named(tmp_path: Path) -> None:
    path = own_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    server = StandIn(Behaviour(tokens=2))
    url = await server.start(tls=context)
    (trusted,) = await asked(url, ca_file=str(path))
    (unknown,) = await asked(url)
    server.stop()
    assert trusted.outcome is Outcome.OK
    assert unknown.outcome is Outcome.ERROR
    assert "certificate verify failed" in unknown.detail


async def test_of_several_addresses_the_one_that_listens_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `localhost` is ::1 first where the server listens on 127.0.0.1 alone."""
    async with stand_in(Behaviour()) as (_, url):
        port = endpoint(url, is_own=False).port
        monkeypatch.setattr(addresses, "_looked_up", lambda *_: ["::1", "127.0.0.1"])
        assert (await asyncio.to_thread(endpoint, f"http://localhost:{port}/v1", is_own=False)).address == "127.0.0.1"
        monkeypatch.setattr(addresses, "_looked_up", lambda *_: ["127.0.0.1", "8.8.8.8"])
        with pytest.raises(LoadError, match=r"8\.8\.8\.8 is neither"):
            endpoint(f"http://mixed:{port}/v1", is_own=False)
