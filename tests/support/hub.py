"""A model hub on loopback: what is asked of one, over a folder, with faults to order."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

REPO, REVISION = "team/model", "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Faults:
    """What goes wrong; a number is how many answers with a file's bytes it befalls, the first ones."""

    token: str = ""
    """Who does not send it is refused."""
    gated: bool = False
    """The refusal is of the gate, not of the repository."""
    busy: int = 0
    cut: int = 0
    """The connection ends in the middle."""
    wrong: int = 0
    """A byte is another one."""
    whole: bool = False
    """Ranges are ignored."""
    _lock: Lock = field(default_factory=Lock)

    def strikes(self, name: str) -> bool:
        with self._lock:
            left = int(getattr(self, name))
            setattr(self, name, max(0, left - 1))
            return left > 0


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    asked: list[str]
    sent: list[int]
    faults: Faults

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        if self.faults.token and self.headers.get("Authorization") != f"Bearer {self.faults.token}":
            code = "GatedRepo" if self.faults.gated else "RepoNotFound"
            return self._refuse(403 if self.faults.gated and "Authorization" in self.headers else 401, code)
        if path == f"/api/models/{REPO}/tree/{REVISION}":
            return self._json([self._described(each) for each in sorted(self.folder.rglob("*"))])
        if path.startswith(f"/api/models/{REPO}/"):
            return self._refuse(404, "RevisionNotFound")
        if path.startswith("/api/"):
            return self._refuse(404, "RepoNotFound")
        file = self.folder / path.removeprefix(f"/{REPO}/resolve/{REVISION}/").lstrip("/")
        if not path.startswith(f"/{REPO}/resolve/{REVISION}/") or not file.is_file():
            return self._refuse(404, "EntryNotFound")
        return self._file(file.read_bytes(), with_body=with_body)

    def _described(self, path: Path) -> dict[str, object]:
        name = path.relative_to(self.folder).as_posix()
        if path.is_dir():
            return {"type": "directory", "path": name, "oid": "0" * 40}
        data = path.read_bytes()
        blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()  # noqa: S324
        known: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": blob}
        if path.suffix == ".safetensors":
            known["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return known

    def _file(self, data: bytes, *, with_body: bool) -> None:
        if self.faults.strikes("busy"):
            return self._refuse(503, "")
        wanted = self.headers.get("Range", "").removeprefix("bytes=").split("-")
        ranged = len(wanted) == 2 and not self.faults.whole
        part = data[int(wanted[0]) : int(wanted[1]) + 1] if ranged else data
        if part and self.faults.strikes("wrong"):
            part = bytes([part[0] ^ 1]) + part[1:]
        self.send_response(206 if ranged else 200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if not with_body:
            return None
        if self.faults.strikes("cut"):
            part = part[: len(part) // 2]
            self.close_connection = True
        self.sent.append(len(part))
        self.wfile.write(part)
        return None

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def hub(folder: Path, faults: Faults | None = None) -> Iterator[tuple[str, list[str], list[int]]]:
    """Its address, the paths that were asked for, and how many bytes of files each answer had."""
    asked: list[str] = []
    sent: list[int] = []
    handler = type(
        "Handler", (_Handler,), {"folder": folder, "asked": asked, "sent": sent, "faults": faults or Faults()}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked, sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
