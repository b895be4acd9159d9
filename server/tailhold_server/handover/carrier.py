"""Connections to candidates: kept open, checked where they speak TLS, and closed where a client leaves."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from tailhold_api.handover import Candidate
from tailhold_server.handover.outcomes import CandidateError, Outcome
from tailhold_server.handover.wire import Sent

_CONNECT_SECONDS = 2.0
_KEPT_SECONDS = 30.0
"""An idle connection is kept so long. Candidates keep theirs longer: none is closed where we are about to use it."""
CANDIDATE_KEEPS_SECONDS = 75
_HEAD_BYTES = 64 * 1024
_BUFFER_BYTES = 64 * 1024
"""Of an answer that waits for its client; beyond it nothing more is read."""
_NONE_OF_ITS_OWN = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
Context = Callable[[], ssl.SSLContext]


@dataclass(frozen=True)
class Reply:
    """A candidate's answer, its head at first."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    _response: aiohttp.ClientResponse

    async def pieces(self) -> AsyncIterator[bytes]:
        """All that is there, as it comes. Raises CandidateError where it breaks off or says nothing for too long."""
        try:
            while piece := await self._response.content.readany():
                yield piece
        except TimeoutError as error:
            raise CandidateError(Outcome.TIMED_OUT, "nothing more came") from error
        except aiohttp.ClientError as error:
            raise CandidateError(Outcome.TRUNCATED, type(error).__name__) from error


class Carrier:
    """One for each server. Event loop only."""

    def __init__(self, context: Context) -> None:
        """`context` gives what candidates' certificates are checked with."""
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def carried(
        self, to: Candidate, sent: Sent, headers: list[tuple[str, str]], silence_seconds: float
    ) -> AsyncIterator[Reply]:
        """The head of the answer, and the connection until the context is left: given back where the answer was read
        to its end, else closed. Raises CandidateError."""
        response = await self._answered(to, sent, headers, silence_seconds)
        try:
            yield Reply(response.status, tuple(response.raw_headers), response)
        finally:
            response.close()  # does nothing to a connection whose answer came to its end

    async def close(self) -> None:
        """What is under way breaks off."""
        if self._session is not None:
            await self._session.close()

    async def _answered(
        self, to: Candidate, sent: Sent, headers: list[tuple[str, str]], silence_seconds: float
    ) -> aiohttp.ClientResponse:
        way = SimpleNamespace(reused=True)
        while way.reused:
            way.reused = False
            try:
                return await self._post(to, sent, headers, silence_seconds, way)
            except aiohttp.ConnectionTimeoutError as error:
                raise CandidateError(Outcome.UNREACHABLE, type(error).__name__) from error
            except TimeoutError as error:
                raise CandidateError(Outcome.TIMED_OUT, type(error).__name__) from error
            except aiohttp.ClientResponseError as error:
                raise CandidateError(Outcome.FAILED, "no HTTP") from error
            except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
                # A connection that was open may have been closed by the candidate, just as it may close an idle one.
                if not way.reused:
                    raise CandidateError(Outcome.UNREACHABLE, type(error).__name__) from error
        raise AssertionError("a new connection ends the loop")

    async def _post(
        self, to: Candidate, sent: Sent, headers: list[tuple[str, str]], silence_seconds: float, way: SimpleNamespace
    ) -> aiohttp.ClientResponse:
        tls: dict[str, Any] = {"ssl": self._context(), "server_hostname": to.server_name} if to.server_name else {}
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=silence_seconds)
        return await self._opened().post(
            _url(to, sent),
            data=sent.body,
            headers=headers,
            allow_redirects=False,
            timeout=timeout,
            trace_request_ctx=way,
            **tls,
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            seen = aiohttp.TraceConfig()
            seen.on_connection_reuseconn.append(_reused)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_NONE_OF_ITS_OWN,
                max_line_size=_HEAD_BYTES,
                max_field_size=_HEAD_BYTES,
                read_bufsize=_BUFFER_BYTES,
                trace_configs=[seen],
            )
        return self._session


async def _reused(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.reused = True


def _url(to: Candidate, sent: Sent) -> URL:
    host = f"[{to.ip}]" if ":" in to.ip else to.ip
    query = f"?{sent.query.decode('latin-1')}" if sent.query else ""
    scheme = "https" if to.server_name else "http"
    return URL(f"{scheme}://{host}:{to.port}{sent.path.decode('latin-1')}{query}", encoded=True)
