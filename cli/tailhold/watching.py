"""Shows how far a build is: to the operator over HTTP, to people in lines or on a bar."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TextIO

from tailhold_api.status import Progress

_LINE_SECONDS = 10.0
"""A log gets a line for each step, and one in between at most this often."""


class Board:
    """The newest progress, for whoever asks."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        """Where it is served; 0 where it is not."""
        self._newest = Progress(step="starting", done=0, unit="steps")

    def show(self, progress: Progress) -> None:
        """Replace what is shown."""
        self._newest = progress

    def text(self) -> bytes:
        """The newest as JSON."""
        return self._newest.model_dump_json(by_alias=True).encode()


@contextmanager
def serve_progress(port: int, host: str = "") -> Iterator[Board]:
    """Answer `GET /progress` on this port, 0 for any, until the end."""
    server = ThreadingHTTPServer((host, port), BaseHTTPRequestHandler)
    board = Board(server.server_port)
    server.RequestHandlerClass = _handler(board)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield board
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(board: Board) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if self.path != "/progress":
                self.send_error(404)
                return
            body = board.text()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """A poll each second is no news."""

    return Handler


class Lines:
    """Progress on a stream: a bar on a terminal, now and then a line elsewhere. Used as a context manager."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._step = ""
        self._said = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Lines":
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(file=self._stream), transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Say it, unless a line of the same step was just said."""
        if self._bar is not None:
            self._show_bar(progress)
        elif progress.step != self._step or time.monotonic() - self._said >= _LINE_SECONDS:
            self._said = time.monotonic()
            print(line_of(progress), file=self._stream, flush=True)
        self._step = progress.step

    def _show_bar(self, progress: Progress) -> None:
        if progress.step != self._step:
            self._task = self._bar.add_task(progress.step)
        self._bar.update(self._task, total=progress.total or None, completed=progress.done)


def line_of(progress: Progress) -> str:
    """One line of a log, as in `embedding: 512 of 1939 chunks, 40 s left`."""
    of = f"{progress.done} of {progress.total}" if progress.total else str(progress.done)
    left = f", {progress.eta_seconds} s left" if progress.eta_seconds is not None else ""
    return f"{progress.step}: {of} {progress.unit}{left}"
