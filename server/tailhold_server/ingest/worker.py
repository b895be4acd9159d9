"""Parses documents in a child process: a parser that hangs, crashes or eats memory costs one document."""

import os
import resource
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from types import TracebackType

from pydantic import BaseModel

from tailhold_server.ingest.extract import Extracted, extract
from tailhold_server.ingest.report import UnreadableError, Why

DOCUMENT_SECONDS = 60.0
"""Longest that one document may take."""
_MEMORY_BYTES = 4 << 30
_FIRST_SECONDS = 60.0
"""The first document waits for the interpreter and its imports too."""


class _Task(BaseModel):
    path: str


class _Answer(BaseModel):
    found: Extracted | None = None
    reason: Why | None = None
    detail: str = ""


class Reader:
    """Extracts documents one after another, each within its time. Used as a context manager."""

    def __init__(self, document_seconds: float = DOCUMENT_SECONDS) -> None:
        self.document_seconds = document_seconds
        self._child: tuple[subprocess.Popen[bytes], Connection] | None = None

    def __enter__(self) -> "Reader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def read(self, path: str, data: bytes) -> Extracted:
        """Title and text. Raises UnreadableError."""
        allowed = self.document_seconds + (0 if self._child else _FIRST_SECONDS)
        _, pipe = self._child = self._child or _start()
        try:
            pipe.send_bytes(_Task(path=path).model_dump_json().encode())
            pipe.send_bytes(data)
            if not pipe.poll(allowed):
                self._end()
                raise UnreadableError(Why.TOO_SLOW, f"{self.document_seconds:.0f} s")
            answer = _Answer.model_validate_json(pipe.recv_bytes())
        except (EOFError, OSError) as error:
            code = self._end()
            raise UnreadableError(Why.CRASHED, f"exit code {code}") from error
        if answer.found is None:
            raise UnreadableError(answer.reason or Why.BROKEN, answer.detail)
        return answer.found

    def _end(self) -> int | None:
        if self._child is None:
            return None
        process, pipe = self._child
        self._child = None
        pipe.close()
        try:
            # A child that crashed has a code of its own; one that works ends at the closed pipe, or is ended.
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with theirs:
        command = [sys.executable, "-m", "tailhold_server.ingest.worker", str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
    return process, Connection(ours.detach())


def serve(pipe: Connection) -> None:
    """Answer until the other end closes."""
    while True:
        try:
            task = _Task.model_validate_json(pipe.recv_bytes())
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(_answer(task, data).model_dump_json().encode())


def _answer(task: _Task, data: bytes) -> _Answer:
    try:
        return _Answer(found=extract(task.path, data))
    except UnreadableError as error:
        return _Answer(reason=error.reason, detail=error.detail)
    except MemoryError:
        return _Answer(reason=Why.TOO_LARGE, detail=f"reading it takes over {_MEMORY_BYTES} bytes")
    except Exception as error:  # a parser's bug is this document's failure, and its words are reported
        return _Answer(reason=Why.BROKEN, detail=f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(Connection(int(sys.argv[1])))
