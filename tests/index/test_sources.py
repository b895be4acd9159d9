import hashlib
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tailhold_api.sources import CorpusSource
from tailhold_server.ingest.archive import read_archive
from tailhold_server.ingest.report import DocumentFailure, UnreadableError, Why
from tailhold_server.ingest.sources import Found, is_wanted, read_source

Write = Callable[[dict[str, str | bytes]], Path]


def source(**fields: object) -> CorpusSource:
    return CorpusSource.model_validate({"name": "s", **fields})


def claim(path: str = ".", **fields: object) -> CorpusSource:
    return source(pvc={"claimName": "documents", "path": path}, **fields)


def read(
    of: CorpusSource, claims: Path, config_maps: Path = Path("/nowhere"), file_bytes: int = 1000
) -> dict[str, bytes | Why]:
    items = read_source(of, claims, config_maps, file_bytes)
    return {item.path: item.data if isinstance(item, Found) else item.reason for item in items}


@pytest.mark.parametrize(
    ("glob", "path", "wanted"),
    [
        ("**/*.html", "a.html", True),
        ("**/*.html", "a/b/c.HTML", True),
        ("**/*.html", "a/b.htm", False),
        ("*.md", "a.md", True),
        ("*.md", "a/b.md", False),
        ("docs/**", "docs/a/b.txt", True),
        ("docs/**", "other/a.txt", False),
        ("**/draft-*/**", "x/draft-1/y.md", True),
        ("**/b/*.md", "a/b/c.md", True),
        ("**/[ab].txt", "a.txt", True),
        ("**/[ab].txt", "c.txt", False),
    ],
)
def test_globs_match_as_in_a_shell(glob: str, path: str, wanted: bool) -> None:
    assert is_wanted(path, [glob], []) is wanted
    assert not is_wanted(path, [glob], [glob]), "exclude wins"


def test_a_claims_folder_is_read_in_order(write: Write) -> None:
    claims = write(
        {"book/b.html": "b", "book/a/z.md": "z", "book/c.png": "no", "book/skip/d.md": "d", "other/e.md": "e"}
    )
    of = claim("book", exclude=["skip/**"], base_url="https://example.org/book/")
    items = list(read_source(of, claims, claims))
    assert [(item.path, item.url) for item in items if isinstance(item, Found)] == [
        ("a/z.md", "https://example.org/book/a/z.md"),
        ("b.html", "https://example.org/book/b.html"),
    ]


def test_a_url_escapes_what_a_path_may_hold(write: Write) -> None:
    claims = write({"a b/ü?.md": "x"})
    [item] = read_source(claim(base_url="https://example.org/"), claims, claims)
    assert isinstance(item, Found)
    assert item.url == "https://example.org/a%20b/%C3%BC%3F.md"


def test_links_within_are_followed_and_links_out_are_refused(write: Write, tmp_path: Path) -> None:
    claims = write({"a.md": "a"})
    (tmp_path / "secret.md").write_text("secret")
    (claims / "documents" / "in.md").symlink_to("a.md")
    (claims / "documents" / "out.md").symlink_to(tmp_path / "secret.md")
    (claims / "documents" / "folder").symlink_to(tmp_path)
    assert read(claim(), claims) == {"a.md": b"a", "in.md": b"a", "s/out.md": Why.UNSAFE_PATH}


def test_a_path_out_of_the_claim_is_refused(write: Write) -> None:
    claims = write({"a.md": "a"})
    (claims / "secrets").mkdir()
    (claims / "secrets" / "b.md").write_text("b")
    assert read(claim("x/../../secrets"), claims) == {"s": Why.UNSAFE_PATH}


def test_a_mounted_config_map_is_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "maps" / "faq"
    (folder / "..2026").mkdir(parents=True)
    (folder / "..2026" / "a.md").write_text("a")
    (folder / "..data").symlink_to("..2026")
    (folder / "a.md").symlink_to("..data/a.md")
    assert read(source(config_map={"name": "faq"}), tmp_path, tmp_path / "maps") == {"a.md": b"a"}


def test_a_source_that_is_not_there_fails_alone(tmp_path: Path) -> None:
    assert read(claim("gone"), tmp_path) == {"s": Why.UNREADABLE}


def test_a_folder_that_may_not_be_read_is_named_and_the_others_are_read(write: Write) -> None:
    claims = write({"a.md": "a", "closed/b.md": "b", "lost+found/c.md": "c"})
    (claims / "documents" / "closed").chmod(0)
    try:
        found = read(claim(), claims)
    finally:
        (claims / "documents" / "closed").chmod(0o755)
    assert found.pop("a.md") == b"a"
    assert found in ({"s/closed": Why.UNREADABLE}, {"closed/b.md": b"b"}), "root reads all"


def test_what_is_no_plain_file_or_too_large_is_named(write: Write) -> None:
    claims = write({"big.md": "12345", "good.md": "1234"})
    os.mkfifo(claims / "documents" / "pipe.md")
    assert read(claim(), claims, file_bytes=4) == {
        "s/big.md": Why.TOO_LARGE,
        "good.md": b"1234",
        "s/pipe.md": Why.UNREADABLE,
    }


def zipped(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in more:
            archive.addfile(info)
    return data.getvalue()


def members(data: bytes, limit: int = 1000) -> dict[str, bytes | Why]:
    found = read_archive(io.BytesIO(data), lambda path: path.endswith(".md"), limit)
    return {path: item.reason if isinstance(item, UnreadableError) else item for path, item in found}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_an_archives_wanted_members_are_read(pack: Callable[[dict[str, bytes]], bytes]) -> None:
    data = pack({"./b.md": b"b", "a/a.md": b"a", "a/c.png": b"no"})
    assert members(data) == {"b.md": b"b", "a/a.md": b"a"}


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", ["../x.md", "/etc/x.md", "a/../../x.md", "a\\..\\x.md"])
def test_members_whose_path_leads_out_are_refused(pack: Callable[[dict[str, bytes]], bytes], name: str) -> None:
    found = members(pack({name: b"x", "good.md": b"g"}))
    assert found.pop("good.md") == b"g"
    assert list(found.values()) == [Why.UNSAFE_PATH]


def test_links_in_a_tar_are_refused() -> None:
    link = tarfile.TarInfo("link.md")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard = tarfile.TarInfo("hard.md")
    hard.type, hard.linkname = tarfile.LNKTYPE, "../../etc/passwd"
    assert members(tarred({}, link, hard)) == {"link.md": Why.UNSAFE_PATH, "hard.md": Why.UNSAFE_PATH}


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_member_is_measured_as_it_is_read(pack: Callable[[dict[str, bytes]], bytes]) -> None:
    assert members(pack({"bomb.md": b"0" * 100_000, "ok.md": b"1"})) == {
        "bomb.md": Why.TOO_LARGE,
        "ok.md": b"1",
    }


def test_an_archive_that_is_none_or_cut_is_broken() -> None:
    for data in (b"", b"neither", tarred({"a.md": b"x" * 5000})[:-40], zipped({"a.md": b"x"})[:-30]):
        with pytest.raises(UnreadableError) as failed:
            members(data)
        assert failed.value.reason is Why.BROKEN


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    root = tmp_path / "www"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", root
    server.shutdown()
    server.server_close()


def archive(url: str, data: bytes) -> CorpusSource:
    return source(archive={"url": url, "sha256": hashlib.sha256(data).hexdigest()})


def test_an_archive_is_fetched_and_proved(served: tuple[str, Path], tmp_path: Path) -> None:
    url, root = served
    data = zipped({"a.md": b"a"})
    (root / "docs.zip").write_bytes(data)
    assert read(archive(f"{url}/docs.zip", data), tmp_path) == {"a.md": b"a"}


def test_an_archive_that_differs_is_refused_with_both_digests(served: tuple[str, Path], tmp_path: Path) -> None:
    url, root = served
    (root / "docs.zip").write_bytes(zipped({"a.md": b"changed"}))
    [item] = read_source(archive(f"{url}/docs.zip", b"reviewed"), tmp_path, tmp_path)
    assert isinstance(item, DocumentFailure)
    assert hashlib.sha256(b"reviewed").hexdigest() in item.hint
    assert item.reason is Why.BROKEN


def test_an_archive_that_is_not_there_fails_alone(served: tuple[str, Path], tmp_path: Path) -> None:
    [item] = read_source(archive(f"{served[0]}/gone.zip", b""), tmp_path, tmp_path)
    assert isinstance(item, DocumentFailure)
    assert (item.path, item.reason) == ("s", Why.UNREACHABLE)
    assert "404" in item.hint
    assert "check `archive.url`: the Job's pod must reach it" in item.hint


def test_an_archive_whose_url_is_none_fails_alone(tmp_path: Path) -> None:
    assert read(archive("https://exa\u200bmple/a.zip", b""), tmp_path) == {"s": Why.UNREACHABLE}


def test_damaged_lzma_is_broken() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as pack:
        pack.writestr("a.md", b"text " * 99)
    damaged = bytearray(packed.getvalue())
    damaged[38] = 0xFF  # the properties of LZMA, behind the member's header, name and version
    assert members(bytes(damaged)) == {"a.md": Why.BROKEN}
    xz = io.BytesIO()
    with tarfile.open(fileobj=xz, mode="w:xz") as tar:
        info = tarfile.TarInfo("a.md")
        info.size = 200_000
        tar.addfile(info, io.BytesIO(os.urandom(200_000)))
    damaged = bytearray(xz.getvalue())
    damaged[-200:-100] = b"\xff" * 100
    with pytest.raises(UnreadableError) as failed:
        members(bytes(damaged), 300_000)
    assert failed.value.reason is Why.BROKEN


def test_a_zip_whose_names_are_not_the_utf_8_they_say_is_broken() -> None:
    data = zipped({"ü.md": b"x"}).replace("ü".encode(), b"\xff\xfe")
    with pytest.raises(UnreadableError) as failed:
        members(data)
    assert failed.value.reason is Why.BROKEN


def test_a_name_that_is_not_utf_8_is_shown_and_linked(write: Write) -> None:
    claims = write({"a.md": "a"})
    for name in (b"b\xff.md", b"big\xff.md"):
        path = os.fsencode(claims / "documents") + b"/" + name
        Path(os.fsdecode(path)).write_bytes(b"x" * (9 if b"big" in name else 1))
    items = list(read_source(claim(base_url="https://example.org/"), claims, claims, 5))
    assert {item.path for item in items} == {"a.md", "b\ufffd.md", "s/big\ufffd.md"}
    assert [item.url for item in items if isinstance(item, Found)][1] == "https://example.org/b%FF.md"
