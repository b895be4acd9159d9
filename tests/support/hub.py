"""A model hub on loopback: what huggingface_hub asks of one, over a folder."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

REPO, REVISION = "team/model", "0123456789abcdef0123456789abcdef01234567"


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    asked: list[str]
    sent: list[int]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        if path.startswith(f"/api/models/{REPO}/tree/{REVISION}"):
            return self._json(
                [
                    {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": "0" * 40}
                    for each in sorted(self.folder.iterdir())
                ]
            )
        if path.startswith(f"/api/models/{REPO}"):
            files = [{"rfilename": each.name} for each in sorted(self.folder.iterdir())]
            return self._json({"id": REPO, "sha": REVISION, "siblings": files, "tags": []})
        file = self.folder / path.rpartition("/")[2]
        if not path.startswith(f"/{REPO}/resolve/{REVISION}/") or not file.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        return self._file(file.read_bytes(), with_body=with_body)

    def _file(self, data: bytes, *, with_body: bool) -> None:
        wanted = self.headers.get("Range", "").removeprefix("bytes=").split("-")
        part = data[int(wanted[0]) : int(wanted[1]) + 1] if len(wanted) == 2 and wanted[1] else data
        self.send_response(206 if part != data else 200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if with_body:
            self.sent.append(len(part))
            self.wfile.write(part)

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
def hub(folder: Path) -> Iterator[tuple[str, list[str], list[int]]]:
    """Its address, the paths that were asked for, and how many bytes of files each answer had."""
    asked: list[str] = []
    sent: list[int] = []
    handler = type("Handler", (_Handler,), {"folder": folder, "asked": asked, "sent": sent})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked, sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
