"""The serving program: both ports from the first second, the start step by step, the drain at the end."""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from tailhold_api.conditions import Reason
from tailhold_api.parts import ContentPart, PodPart
from tailhold_api.slo import Objective
from tailhold_server.access.access import Access, open_access
from tailhold_server.app import create_app, create_handover_app, create_internal_app
from tailhold_server.backends import choose_tracer
from tailhold_server.errors import StartError
from tailhold_server.handover.carrier import CANDIDATE_KEEPS_SECONDS
from tailhold_server.health import Phase, Verdict
from tailhold_server.logs import unhandled
from tailhold_server.protocol import Protocol
from tailhold_server.refresh import Refresh, follow
from tailhold_server.rpc.server import RpcServer
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.start import Started, start
from tailhold_server.startup import left

_LOG = logging.getLogger(__name__)

FINAL = 2
"""Exit code where trying again cannot help."""
_WATCH_SECONDS = 0.5
_CLOSE_SECONDS = 3


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    host: str
    port: int
    internal_port: int
    grpc_port: int


class PortInUseError(Exception):
    """A port that somebody else listens on."""


class _Server(uvicorn.Server):
    """Signals are the program's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Program:
    """One run, from start to exit code."""

    def __init__(
        self,
        pod: PodPart,
        content: ContentPart,
        settings: ServerSettings,
        address: Address,
        refresh: Refresh | None = None,
        announce: Callable[[], None] = lambda: None,
        objectives: Sequence[Objective] = (),
    ) -> None:
        self._pod = pod
        self._content = content
        self._settings = settings
        self._service = Service(
            pod,
            stall_seconds=settings.stall_seconds,
            patience_seconds=settings.patience_seconds,
            comment_seconds=settings.comment_seconds,
            send_seconds=settings.send_seconds,
        )
        self._service.tracer = choose_tracer(pod, settings, self._service.telemetry.count_spans)
        self._service.objectives.keep(objectives)
        self._address = address
        self._service.listens = False
        self._sockets = [bound(address.host, port) for port in (address.port, address.internal_port)]
        self._refresh = refresh
        self._announce = announce
        self._handover_socket = self._handover()
        self._grpc_socket = bound(address.host, address.grpc_port) if pod.server.grpc.enabled else None
        self._rpc: RpcServer | None = None
        self._stop = asyncio.Event()
        self._started: Started | None = None

    async def run(self) -> int:
        """Serve until a signal, or until it cannot go on. Returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(unhandled)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        try:
            access = open_access(
                self._pod.server, self._settings.secrets, self._service.telemetry, self._service.tenant_of
            )
        except StartError as error:
            return self._failed(error)
        self._service.access_told = access.told
        spoken = access.certificates.internal if access.certificates and self._pod.server.is_internal_tls else None
        inside = self._uvicorn(create_internal_app(self._service, self._settings), spoken)
        internal = asyncio.ensure_future(inside.serve([self._sockets[1]]))
        current = asyncio.ensure_future(access.keep_current())
        try:
            return await self._serve(access)
        finally:
            current.cancel()
            await self._service.auditor.close()
            inside.should_exit = True
            await internal
            await asyncio.to_thread(self._service.tracer.close)

    async def _serve(self, access: Access) -> int:
        stopped = asyncio.ensure_future(self._stop.wait())
        starting = asyncio.ensure_future(start(self._service, self._content, self._settings))
        await asyncio.wait({stopped, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            self._service.abandon()
            starting.cancel()
            await asyncio.wait({starting})
            return 0
        try:
            self._started = await starting
        except StartError as error:
            return self._failed(error)
        except Exception as error:
            self._leave_word(Reason.START_FAILED, f"{type(error).__name__}: {error}")
            raise
        public = asyncio.gather(*self._open(access))
        await self._start_rpc(access)
        while not (all(each.started for each in self._servers) or public.done()):  # noqa: ASYNC110  milliseconds
            await asyncio.sleep(0.005)
        self._service.listens = True
        _LOG.info("ready: %s", " ".join(f"{row.name} {row.milliseconds} ms" for row in self._service.timeline.rows()))
        self._announce()
        fault = asyncio.ensure_future(self._watch())
        following = asyncio.ensure_future(follow(self._service, self._refresh)) if self._pod.uploads else None
        await asyncio.wait({stopped, fault}, return_when=asyncio.FIRST_COMPLETED)
        if following is not None:
            following.cancel()
        return await (self._died(fault.result(), public) if fault.done() else self._drain(fault, public))

    def _open(self, access: Access) -> Iterator[Coroutine[Any, Any, None]]:
        """The port of clients and that of pods that hand over, both with the same application."""
        app = create_app(self._service, self._settings, access.authenticator)
        certificates = access.certificates
        if certificates is not None:
            self._service.peer_context = lambda: certificates.newest.peers
        self._public = self._uvicorn(app, certificates.context if certificates else None)
        yield self._public.serve([self._sockets[0]])
        self._servers = [self._public]
        if self._handover_socket is not None:
            receiving = create_handover_app(app, self._service, self._settings)
            taking = self._uvicorn(receiving, certificates.internal if certificates else None, CANDIDATE_KEEPS_SECONDS)
            self._servers.append(taking)
            yield taking.serve([self._handover_socket])

    def _handover(self) -> socket.socket | None:
        """Raises PortInUseError."""
        port = self._settings.handover_port
        return bound(self._address.host, port) if port and self._settings.pipeline else None

    async def _start_rpc(self, access: Access) -> None:
        """gRPC makes its sockets itself: the one that held the port goes first."""
        if self._grpc_socket is None:
            return
        self._grpc_socket.close()
        seconds = self._settings.receive_seconds
        self._rpc = RpcServer(self._service, self._pod.server.grpc, access.authenticator, access.certificates, seconds)
        await self._rpc.start(self._address.host, self._address.grpc_port)

    def _failed(self, error: StartError) -> int:
        self._service.phase = Phase.FAILED
        self._service.error = error.message
        self._leave_word(error.reason, error.message)
        return FINAL if error.final else 1

    async def _watch(self) -> Verdict:
        """Returns when the engine is dead, or as good as dead."""
        while (verdict := self._service.engine_verdict()).ok:  # noqa: ASYNC110  a process tells nobody of its end
            await asyncio.sleep(_WATCH_SECONDS)
        return verdict

    async def _died(self, fault: Verdict, public: "asyncio.Future[list[None]]") -> int:
        """What runs ends with an error event at once; the probes show why for a while."""
        assert self._started is not None  # noqa: S101  only watched once started
        message = f"{fault.reason}; the server ends too, to be started anew"
        self._service.fault = fault
        self._service.error = message
        self._leave_word(Reason.NOT_READY, message)
        if self._rpc:
            await self._rpc.show(ready=False)
        await self._started.engine.stop()
        await asyncio.sleep(self._settings.death_seconds)
        await self._close(public)
        return 1

    async def _drain(self, fault: "asyncio.Future[Verdict]", public: "asyncio.Future[list[None]]") -> int:
        """What was accepted is answered, for so long; before that, what still comes on open connections."""
        deadline = time.monotonic() + self._pod.server.drain_seconds
        rpc = asyncio.ensure_future(self._drain_rpc(self._pod.server.drain_seconds))
        await self._retire(min(deadline, time.monotonic() + self._settings.retire_seconds))
        self._service.phase = Phase.DRAINING
        _LOG.info("draining: %d answers run", self._service.held)
        self._end_servers()
        while self._service.held and time.monotonic() < deadline and not fault.done():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await self._close(public)
        await rpc
        return 0

    async def _retire(self, until: float) -> None:
        """Each connection is closed with its next answer, so that none is cut where a client is about to use it."""
        self._service.phase = Phase.RETIRING
        close = (b"connection", b"close")
        for each in self._servers:
            each.config.encoded_headers.append(close)
            each.server_state.default_headers.append(close)
        while self._public.server_state.connections and time.monotonic() < until:  # noqa: ASYNC110  with a deadline
            await asyncio.sleep(0.05)

    def _end_servers(self) -> None:
        for each in self._servers:
            each.should_exit = True

    async def _drain_rpc(self, seconds: float) -> None:
        if self._rpc:
            await self._rpc.drain(seconds)

    async def _close(self, public: "asyncio.Future[list[None]]") -> None:
        """End the engine, which ends its streams with an error event, then the server."""
        assert self._started is not None  # noqa: S101
        await self._started.close()
        await self._service.handovers.carrier.close()
        self._end_servers()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(public, _CLOSE_SECONDS)
        await self._drain_rpc(0)

    def _leave_word(self, reason: Reason, message: str) -> None:
        _LOG.error("%s: %s", reason, message)
        log = self._settings.termination_log
        if log.exists():
            log.write_text(json.dumps({"reason": reason.value, "message": message[:3000]}))

    def _uvicorn(self, app: object, context: ssl.SSLContext | None, keep_seconds: int | None = None) -> uvicorn.Server:
        return _Server(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                http=Protocol,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                ssl_context_factory=(lambda *_: context) if context else None,
                timeout_keep_alive=keep_seconds or self._pod.server.http.keep_alive_seconds,
                timeout_graceful_shutdown=_CLOSE_SECONDS + self._pod.server.drain_seconds,
            )
        )


def bound(host: str, port: int) -> socket.socket:
    """Taken, but not listening: until the server is ready, clients are refused and do not hang.

    Raises PortInUseError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortInUseError(f"cannot listen on {host}:{port}: {error.strerror}. Choose another port.") from error
    return listener


def run(
    pod: PodPart,
    content: ContentPart,
    settings: ServerSettings,
    address: Address,
    refresh: Refresh | None = None,
    announce: Callable[[], None] = lambda: None,
    objectives: Sequence[Objective] = (),
) -> int:
    """Serve and return the exit code. With `refresh` uploads are indexed; `announce` is called once questions are
    taken; `objectives` are counted until an operator tells others. Raises PortInUseError."""
    import uvloop

    async def program() -> int:
        return await Program(pod, content, settings, address, refresh, announce, objectives).run()

    return left(uvloop.run(program()))
