"""The surfaces under requests that are made up from their own OpenAPI document, and others that nobody would send."""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from program_process import ServerProcess, starter
from rag_server import body, pod_part
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from tailhold_server.app import create_app
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings

EXAMPLES = 50
"""For each operation."""
CHECKS = [content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_dict(create_app(Service(pod_part(uploads=True)), ServerSettings()).openapi())
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def counted() -> Iterator[Counter[tuple[str, int]]]:
    """Answers by operation and status, which are printed at the end."""
    counts: Counter[tuple[str, int]] = Counter()
    yield counts
    for (operation, status), count in sorted(counts.items()):
        print(f"{operation} {status}: {count}")
    print(f"{sum(counts.values())} requests to {len({operation for operation, _ in counts})} operations")


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "claims" / "uploads").mkdir(parents=True)
    with starter(folder) as start:
        yield start(pod=pod_part(uploads=True))


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_requests_made_up_from_the_document_are_answered_as_it_says(
    case: Any, fuzzed: ServerProcess, counted: Counter[tuple[str, int]]
) -> None:
    _point_at_what_is_there(case, fuzzed)
    answer = case.call_and_validate(base_url=fuzzed.url, checks=CHECKS, timeout=30)
    counted[case.operation.label, answer.status_code] += 1
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def _point_at_what_is_there(case: Any, program: ServerProcess) -> None:
    """Made-up names of stores, files and models are all refused alike: every second one is a real one."""
    if sum(map(ord, f"{case.path_parameters}{case.query}")) % 2:
        return
    if case.path_parameters and "vector_store_id" in case.path_parameters:
        case.path_parameters["vector_store_id"] = "vs_docs"
    if case.path_parameters and "file_id" in case.path_parameters:
        form = {"file": ("a.txt", b"hello"), "purpose": (None, "assistants")}
        kept = httpx.post(f"{program.url}/v1/files", files=form, trust_env=False).json()
        case.path_parameters["file_id"] = kept["id"]
    if isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = "docs"


def test_the_document_names_every_route() -> None:
    told = {f"{method.upper()} {path}" for path, each in SCHEMA.raw_schema["paths"].items() for method in each}
    app = create_app(Service(pod_part()), ServerSettings())
    known = {f"{method} {path}" for path, methods in _routes(app) for method in methods}
    assert told == known
    assert all(
        operation.get("description") for path in SCHEMA.raw_schema["paths"].values() for operation in path.values()
    )


def _routes(app: Any) -> Iterator[tuple[str, set[str]]]:
    for route in app.routes:
        if getattr(route, "include_in_schema", False):
            yield route.path.replace(":path", ""), route.methods


DEEP = b"[" * 100_000
ODD = {
    "malformed": (b'{"messages": [', 400),
    "not an object": (b"[1, 2]", 400),
    "nothing": (b"", 400),
    "no UTF-8": (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', 400),
    "lone surrogate": (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400),
    "null character": (b'{"messages": [{"role": "user", "content": "a\\u0000b"}]}', 200),
    "deep": (DEEP, 400),
    "deep within a field": (b'{"messages": [{"role": "user", "content": ' + DEEP, 400),
    "deep in what is ignored": (b'{"user": ' + b"[" * 120 + b"]" * 120 + b', "messages": []}', 400),
    "NaN": (b'{"temperature": NaN, "messages": [{"role": "user", "content": "a"}]}', 400),
    "infinity": (b'{"temperature": 1e999, "messages": [{"role": "user", "content": "a"}]}', 400),
    "huge number": (b'{"max_tokens": ' + b"9" * 5000 + b', "messages": [{"role": "user", "content": "a"}]}', 400),
    "the last of two wins": (b'{"temperature": 5, "temperature": 1, "messages": [{"role":"user","content":"a"}]}', 200),
    "byte order mark": (b"\xef\xbb\xbf" + json.dumps(body()).encode(), 400),
    "UTF-16": (json.dumps(body()).encode("utf-16"), 400),
    "megabytes": (json.dumps(body("x " * 1_900_000)).encode(), 400),
    "more megabytes": (b" " * (10 << 20), 413),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/vector_stores/vs_docs/search"])
def test_an_odd_body_is_refused_in_one_shape(name: str, path: str, fuzzed: ServerProcess) -> None:
    """C58."""
    sent, status = ODD[name]
    headers = {"content-type": "application/json"}
    answer = httpx.post(fuzzed.url + path, content=sent, headers=headers, timeout=30, trust_env=False)
    assert answer.status_code == status if path == CHAT else 400 <= answer.status_code < 500, answer.text[:300]
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
        ("APPLICATION/JSON", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data", 415),
        ("application/jsonx", 415),
    ],
)
def test_another_content_type_is_refused_by_name(kind: str, status: int, fuzzed: ServerProcess) -> None:
    sent = json.dumps(body()).encode()
    answer = httpx.post(fuzzed.url + CHAT, content=sent, headers={"content-type": kind}, trust_env=False)
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["error"]["param"] == "content-type"


RAW = {
    "no HTTP": (b"hello\r\n\r\n", 400),
    "a wrong length": (b"POST /v1/models HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n", 400),
    "two lengths": (b"POST /v1/models HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\na", 400),
    "length and chunks": (
        b"POST /v1/models HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a control character in a header": (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: a\x00b\r\n\r\n", 400),
    "a space before the colon": (b"GET /v1/models HTTP/1.1\r\nhost : a\r\n\r\n", 400),
    "headers without end": (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 300_000 + b"\r\n\r\n", 431),
    "too many headers": (b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + b"x: a\r\n" * 20_000 + b"\r\n", 431),
    "an address without end": (b"GET /v1/models/" + b"a" * 300_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 431),
    "an odd host": (b"GET /v1/models HTTP/1.1\r\nhost: [::1/../evil\r\n\r\n", 200),
    "no host": (b"GET /v1/models HTTP/1.0\r\n\r\n", 200),
    "an address with dots": (b"GET /v1/files/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nhost: a\r\n\r\n", 404),
    "an unknown method": (b"BREW /v1/models HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    "an upgrade": (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", 200),
}


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_hardly_http_are_answered_in_one_shape(name: str, fuzzed: ServerProcess) -> None:
    sent, status = RAW[name]
    head, said = _exchange(fuzzed.port, sent)
    assert int(head.split()[1]) == status, head[:200]
    if status >= 400:
        assert set(json.loads(said)["error"]) == {"message", "type", "param", "code"}
    assert fuzzed.status("/readyz") == 200


def _exchange(port: int, sent: bytes) -> tuple[bytes, bytes]:
    """The first answer's head and body."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        got = b""
        while b"\r\n\r\n" not in got or len(got.partition(b"\r\n\r\n")[2]) < _length(got):
            piece = connection.recv(65536)
            if not piece:
                break
            got += piece
    head, _, said = got.partition(b"\r\n\r\n")
    return head, said


def _length(got: bytes) -> int:
    lines = got.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    return next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")), 0)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", CHAT, "POST"),
        ("PUT", "/v1/models", "GET"),
        ("POST", "/v1/vector_stores", "GET"),
        ("PUT", "/v1/files", "GET, POST"),
        ("PATCH", "/v1/files/file-1", "DELETE, GET"),
    ],
)
def test_a_method_that_is_not_there_is_told_which_are(
    method: str, path: str, allow: str, fuzzed: ServerProcess
) -> None:
    answer = httpx.request(method, fuzzed.url + path, trust_env=False)
    assert answer.status_code == 405
    assert ", ".join(sorted(answer.headers["allow"].replace(" ", "").split(","))) == allow
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
