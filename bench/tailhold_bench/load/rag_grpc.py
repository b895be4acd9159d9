"""Tailhold's own gRPC surface: one call of Ask for each request, all of a process over one connection."""

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from tailhold_bench.load.addresses import Endpoint
from tailhold_bench.load.questions import Asked
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.target import Clock
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.stages import Stage

_ASK = "/tailhold.v1.Rag/Ask"
_TRACE = "x-tailhold-trace"
_CODES = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Outcome.SHED,
    grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.TIMEOUT,
}
"""All others are errors."""
_ENDED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What is said of an answer whose connection or server ended."""
_PLACES = {str(stage): place for place, stage in enumerate(Stage)}
"""A map of protocol buffers has no order."""


@dataclass(frozen=True)
class GrpcSettings:
    """How to talk to a server."""

    endpoint: Endpoint
    model: str | None = None
    api_key: str | None = None
    ca_file: str | None = None
    temperature: float = 0.0

    def open(self) -> "GrpcTarget":
        """A target, in the process that uses it."""
        return GrpcTarget(self)


class GrpcTarget:
    """All calls share a connection. None is made a second time."""

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._metadata = (("authorization", f"Bearer {settings.api_key}"),) if settings.api_key else ()
        self._channel = _channel(settings)
        self._ask = self._channel.unary_stream(_ASK, api.AskRequest.SerializeToString, api.AskResponse.FromString)

    async def ask(self, asked: Asked, sample: Sample, clock: Clock) -> None:
        """One call. When this is cancelled, so is the call."""
        sample.begun = clock()
        try:
            call = self._ask(self._request(asked), metadata=self._metadata)
            async for part in call:
                _take(part, sample, clock())
            sample.trace = _trace(await call.initial_metadata())
            if sample.outcome is not Outcome.OK:
                sample.fail(Outcome.CUT, "the stream ended before the answer did")
        except grpc.aio.AioRpcError as error:
            _failed(error, sample)
        finally:
            sample.ended = clock()

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    def _request(self, asked: Asked) -> api.AskRequest:
        message = api.Message(role=api.ROLE_USER, text=asked.question)
        settings = self._settings
        return api.AskRequest(
            model=settings.model or "",
            messages=[message],
            max_tokens=asked.max_tokens,
            temperature=settings.temperature,
        )


def _take(part: api.AskResponse, sample: Sample, now: float) -> None:
    if sample.first_byte is None:
        sample.first_byte = now
    if part.piece.text:
        sample.token(now)
    if part.HasField("ending"):
        _finish(part.ending, sample, now)


def _finish(ending: api.Ending, sample: Sample, now: float) -> None:
    sample.outcome = Outcome.OK
    sample.prompt_tokens = ending.usage.prompt_tokens
    sample.output_tokens = ending.usage.completion_tokens
    sample.made_up = ending.engine == "stand-in"
    sample.stages = dict(sorted(ending.stage_milliseconds.items(), key=lambda item: _PLACES.get(item[0], len(_PLACES))))
    if sample.first_token is None:  # an empty answer is one all the same
        sample.first_token = sample.last_token = now


def _failed(error: grpc.aio.AioRpcError, sample: Sample) -> None:
    said = f"{error.code().name}: {error.details()}"
    if sample.first_byte is not None and error.code() in _ENDED:
        sample.fail(Outcome.CUT, f"the stream ended before the answer did: {said}")
    else:
        sample.fail(_CODES.get(error.code(), Outcome.ERROR), said)


def _trace(metadata: grpc.aio.Metadata) -> str:
    return str(metadata.get(_TRACE, ""))


def _channel(settings: GrpcSettings) -> grpc.aio.Channel:
    """To the address that was looked up, past any proxy."""
    where = settings.endpoint
    address = f"ipv6:[{where.address}]:{where.port}" if ":" in where.address else f"ipv4:{where.address}:{where.port}"
    options = [
        ("grpc.default_authority", where.host_header),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.max_receive_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if not where.is_tls:
        return grpc.aio.insecure_channel(address, options)
    named = [*options, ("grpc.ssl_target_name_override", where.host)]
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(_trusted(settings)), named)


def _trusted(settings: GrpcSettings) -> bytes | None:
    """The system's certificates where none are named, as over HTTP; without any, those that gRPC brings along."""
    path = settings.ca_file or ssl.get_default_verify_paths().cafile
    return Path(path).read_bytes() if path else None
