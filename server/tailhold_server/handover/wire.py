"""What goes from pod to pod: the client's request with a proof, and the candidate's answer without what is ours."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

OURS = b"x-tailhold-handover"
"""Headers that begin so are between pods: a client's are taken off, a candidate's reach no client."""
TOKEN, REQUEST, REVISION = OURS, OURS + b"-request", OURS + b"-revision"
"""Of a request: the operator's word that this pipeline hands over, the request's id, and the revision that is asked."""
TOLD = OURS + b"-told"
"""Of an answer: what the candidate knows at its beginning."""
REFUSED = OURS + b"-refused"
"""Of an answer that is none: this pod takes nothing from us."""

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_TRACE = (b"traceparent", b"tracestate")
_REQUEST_ID = re.compile(rb"[a-z]{1,16}-[0-9a-f]{32}")
Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Sent:
    """A client's request, read as a whole."""

    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def request_headers(sent: Sent, token: str, request_id: str, revision: str, trace: Headers) -> list[tuple[str, str]]:
    """The client's own headers, its credentials among them, with ours; `trace` takes the place of the client's."""
    trace = tuple(trace)
    left_out = _TRACE if trace else ()
    ours = ((TOKEN, token.encode()), (REQUEST, request_id.encode()), (REVISION, revision.encode()))
    kept = (each for each in _end_to_end(sent.headers) if each[0] not in left_out)
    return [(name.decode("latin-1"), value.decode()) for name, value in (*kept, *trace, *ours) if _is_text(value)]


def answer_headers(given: Headers) -> list[tuple[bytes, bytes]]:
    """What a client is to have of a candidate's headers; their names in small letters."""
    own = (b"date", b"server")  # the server writes them itself
    return [(name, value) for name, value in _end_to_end(given) if name not in own]


def one_of(headers: Headers, name: bytes) -> bytes:
    """The value of a header; empty where there is none."""
    return next((value for each, value in headers if each.lower() == name), b"")


def is_request_id(text: bytes) -> bool:
    """Whether it is an id as we make them."""
    return _REQUEST_ID.fullmatch(text) is not None


def _end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    small = [(name.lower(), value) for name, value in headers]
    named = {each.strip().lower() for name, value in small if name == b"connection" for each in value.split(b",")}
    left_out = _HOP_BY_HOP | named
    return [(name, value) for name, value in small if name not in left_out and not name.startswith(OURS)]


def _is_text(value: bytes) -> bool:
    """What the client's library could not send would be called the candidate's failure."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
