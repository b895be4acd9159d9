"""What tracing costs an answer: `python -m tailhold_bench.tracing_cost`.

Times, on the thread that answers, what is done for the trace of one request: reading `traceparent`, ids and sampling at
its begin, the record of its stages at its end. Collectors: one that takes everything, one that is slow, a port that
nobody listens on, one that takes connections and never answers. The requests come as fast as the paces say.
"""

import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import numpy as np

from tailhold_api.parts import PodPart
from tailhold_api.serving import Embedder, Generator
from tailhold_api.sources import ModelSource, SnapshotStore
from tailhold_server.adapters.otlp import tracer_to
from tailhold_server.settings import ServerSettings
from tailhold_server.stages import Interval, Stage
from tailhold_server.tracing import Asked, NoTracer, Traced, Tracer

_HEADERS = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
_ASKED = Asked("chatcmpl-1", "docs", "docs", stream=True)
_PIECES = tuple(Interval(stage, float(at), at + 0.9) for at, stage in enumerate(Stage))
_FACTS = {"gen_ai.usage.output_tokens": 16, "gen_ai.usage.input_tokens": 1024, "tailhold.sources": 5}
_NONE = ModelSource(path="/models/none")
_POD = PodPart(
    pipeline="docs",
    generator=Generator(model=_NONE),
    embedder=Embedder(model=_NONE, dimension=64),
    store=SnapshotStore(claim_name="snapshots"),
)
_REQUESTS = 3000
_PER_SECOND = 300


class Row(NamedTuple):
    """Microseconds for each request, and what became of the spans."""

    collector: str
    p50: float
    p99: float
    most: float
    spans: str


def main() -> int:
    """Print the table."""
    print(f"{_REQUESTS} traced requests at {_PER_SECOND} a second, microseconds of the answering thread for each")
    print(f"{'collector':28} {'p50':>8} {'p99':>8} {'most':>8}  spans")
    print_row(measured("nothing is traced", NoTracer(), Counter()))
    for name, make in (
        ("takes everything", taking),
        ("is slow (1 s)", slow),
        ("nobody listens", nobody),
        ("never answers", mute),
    ):
        counts: Counter[str] = Counter()
        with make() as url:
            tracer = tracer_to(url, _POD, ServerSettings(), partial(_add, counts))
            row = measured(name, tracer, counts)
        print_row(row)
    return 0


def _add(counts: Counter[str], outcome: str, spans: int) -> None:
    counts[outcome] += spans


def print_row(row: Row) -> None:
    """One line."""
    print(f"{row.collector:28} {row.p50:8.1f} {row.p99:8.1f} {row.most:8.1f}  {row.spans}", flush=True)


def measured(name: str, tracer: Tracer, counts: Counter[str]) -> Row:
    """Begin and end so many requests at the pace, then close."""
    spent = np.empty(_REQUESTS)
    due = time.perf_counter()
    for at in range(_REQUESTS):
        due += 1 / _PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        context = tracer.begin(_HEADERS)
        if context is not None:
            tracer.end(Traced(context, _ASKED, 0.0, 11.0, "ok", "a-b", _PIECES, dict(_FACTS)))
        spent[at] = 1e6 * (time.perf_counter() - began)
    tracer.close()
    p50, p99 = np.percentile(spent, [50, 99])
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    return Row(name, float(p50), float(p99), float(spent.max()), told)


class _Handler(BaseHTTPRequestHandler):
    seconds = 0.0

    def do_POST(self) -> None:
        """Take it."""
        self.rfile.read(int(self.headers["content-length"]))
        time.sleep(self.seconds)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def taking(seconds: float = 0.0) -> Iterator[str]:
    """A collector that answers after so long."""
    handler = type("Handler", (_Handler,), {"seconds": seconds})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextmanager
def slow() -> Iterator[str]:
    """One that takes its time."""
    with taking(1.0) as url:
        yield url


@contextmanager
def nobody() -> Iterator[str]:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def mute() -> Iterator[str]:
    """Takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


if __name__ == "__main__":
    sys.exit(main())
