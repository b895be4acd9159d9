"""`tailhold audit`: what is printed of records, and what is said where there is nothing to print."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailhold.audit import verify
from tailhold.audit_records import HEADING
from tailhold.main import app
from tailhold.provision import user_target
from tailhold.target import CommandError, Target
from tailhold_server.audit.record import START, Head, sealed

WHO = {"client": "desk-7", "tenant": "risk"}
BEGUN = WHO | {
    "kind": "begun",
    "request": "chatcmpl-1",
    "revision": "aaaaaaaaaa-bbbbbbbbbb",
    "model": "docs",
    "chunks": [{"key": f"{n}" * 64, "score": 0.5} for n in range(1, 4)],
    "prompt": {"tokens": 812, "sha256": "0"},
}
ENDED = {
    "kind": "ended",
    "request": "chatcmpl-1",
    "outcome": "ok",
    "finishReason": "stop",
    "cited": [1, 3],
    "usage": {"promptTokens": 812, "completionTokens": 64, "cachedTokens": 0},
}
CUT = BEGUN | {"request": "chatcmpl-2", "client": "bob", "tenant": ""}
SEARCH = WHO | {"kind": "search", "request": "search-3", "revision": "r", "chunks": [{"key": "f" * 64, "score": 1}]}
FILE = WHO | {"kind": "file", "action": "deleted", "files": [{"id": "file-9", "sha256": "0"}]}
OLD = {name: value for name, value in (BEGUN | {"request": "chatcmpl-0"}).items() if name != "model"}
"""From before records had the model."""


HEAD = Head(8, "a" * 64)
"""As the operator may have seen it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made, head, lines = tmp_path / "docs" / "pod-a", START, b""
    made.mkdir(parents=True)
    bodies = ({"kind": "opened", "left": []}, BEGUN, ENDED, CUT, SEARCH, FILE, OLD, ENDED | {"request": "chatcmpl-0"})
    for minute, body in enumerate(bodies):
        line, head = sealed(head, body | {"time": f"2026-12-03T10:{minute:02}:00.000000Z"})
        lines += line
    (made / "000000000001-20261203T100000000000Z.jsonl").write_bytes(lines)
    return made


def shown(*words: Any) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["audit", "show", *map(str, words)])
    return done.exit_code, done.stdout, str(done.exception or "")


def test_each_record_is_one_line_for_people(folder: Path) -> None:
    code, said, _ = shown(folder)
    heading, *rows = [line.split() for line in said.splitlines()]
    revision = "aaaaaaaaaa-bbbbbbbbbb"
    assert (code, heading) == (0, list(HEADING))
    cited = "111111111111,333333333333"
    assert rows == [
        ["2026-12-03T10:01:00Z", "chatcmpl-1", "desk-7/risk", revision, "docs", cited, "ok/stop", "812+64"],
        ["2026-12-03T10:04:00Z", "search-3", "desk-7/risk", "r", "-", "ffffffffffff", "search", "-"],
        ["2026-12-03T10:05:00Z", "-", "desk-7/risk", "-", "-", "file-9", "file/deleted", "-"],
        ["2026-12-03T10:06:00Z", "chatcmpl-0", "desk-7/risk", revision, "-", cited, "ok/stop", "812+64"],
        ["2026-12-03T10:03:00Z", "chatcmpl-2", "bob", revision, "docs", "-", "no", "end", "812+?"],
    ]


@pytest.mark.parametrize("as_json", [("--json",), ("-o", "json"), ("--output", "json")])
def test_whole_records_are_printed_for_programs(folder: Path, as_json: tuple[str, ...]) -> None:
    _, said, _ = shown(folder, *as_json)
    records = [json.loads(line) for line in said.splitlines()]
    assert [set(each) for each in records] == [{"begun", "ended"}, {"search"}, {"file"}, *[{"begun", "ended"}] * 2]
    assert records[0]["ended"]["usage"] == ENDED["usage"]
    assert records[-1]["ended"] is None


@pytest.mark.parametrize(
    ("words", "requests"),
    [
        (("--request", "chatcmpl-1"), ["chatcmpl-1"]),
        (("--request", "search-3"), ["search-3"]),
        (("--client", "bob"), ["chatcmpl-2"]),
        (("--client", "desk-7"), ["chatcmpl-1", "search-3", "-", "chatcmpl-0"]),
    ],
)
def test_what_is_asked_for_is_shown_alone(folder: Path, words: tuple[str, ...], requests: list[str]) -> None:
    _, said, _ = shown(folder, *words)
    assert [line.split()[1] for line in said.splitlines()[1:]] == requests


RANGE = "among the 8 records below {}, from 2026-12-03T10:00:00.000000Z to 2026-12-03T10:07:00.000000Z"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--request", "nosuch"), "nothing of the request `nosuch` " + RANGE),
        (("--client", "nobody"), "nothing of the client `nobody` " + RANGE),
        (("--request", "chatcmpl-1", "--client", "bob"), "nothing of the request `chatcmpl-1` and the client `bob`"),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_what_is_not_there_fails_and_says_where_it_was_looked_for(
    folder: Path, words: tuple[str, ...], found: str, output: str
) -> None:
    code, said, error = shown(folder, *words, "-o", output)
    assert (code, said) == (1, "")
    assert error.startswith(found.format(folder))


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    assert shown(tmp_path)[::2] == (1, f"no audit records below {tmp_path}")
    assert shown(tmp_path / "none")[::2] == (1, f"{tmp_path / 'none'} is not a folder")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
@pytest.mark.parametrize(
    ("context", "words"),
    [
        (None, "no cluster is reached: The connection to the server 127.0.0.1:9 was refused"),
        ("nope", 'no cluster is reached: error: context "nope" does not exist'),
    ],
)
def test_a_cluster_that_is_not_there_is_one_message(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str | None, words: str
) -> None:
    """The real kubectl, which logs each of its attempts."""
    config = tmp_path / "config"
    one = {"name": "gone", "context": {"cluster": "gone", "user": "u"}}
    clusters = [{"name": "gone", "cluster": {"server": "http://127.0.0.1:9"}}]
    told = {"apiVersion": "v1", "kind": "Config", "current-context": "gone", "contexts": [one], "clusters": clusters}
    config.write_text(json.dumps(told | {"users": [{"name": "u", "user": {}}]}))
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(CommandError) as raised:
        verify(folder, (), "team/docs", user_target(context))
    said = str(raised.value)
    assert said.startswith("the heads of team/docs cannot be read: " + words)
    assert f"KUBECONFIG is {config}" in said
    assert "--head POD=SEQ:HASH" in said
    assert "memcache" not in said


class Cluster(Target):
    """Answers with one pipeline."""

    def get(self, *words: str) -> dict[str, Any] | None:
        seen = {"pod": "pod-a", "sequence": 8, "hash": HEAD.hash, "at": "2026-12-03T10:10:00Z"}
        return {"spec": {"audit": {"retentionDays": 30}}, "status": {"observedGeneration": 1, "audit": [seen]}}


@pytest.mark.parametrize(("removed", "code"), [("2027-01-05", 0), ("2026-12-05", 1), ("9999-01-01", 1)])
def test_the_pipeline_tells_until_when_the_heads_record_was_to_be_kept(
    folder: Path, removed: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailhold_server.audit.verify._now", lambda: datetime(2027, 2, 1, tzinfo=UTC))
    (old,) = folder.iterdir()
    old.unlink()
    first, head = sealed(HEAD, {"kind": "opened", "pipeline": "docs", "pod": "pod-a", "left": []})
    told = {"pod": "pod-a", "file": old.name, "first": 1, "last": 8, "lastHash": HEAD.hash}
    second, _ = sealed(head, {"kind": "removed", **told, "time": f"{removed}T00:00:00.000000Z"})
    (folder / "000000000009-x.jsonl").write_bytes(first + second)
    assert verify(folder, (), "team/docs", Cluster("", "")) == code
    assert ("vouched for by a `removed` record alone, and it was to be kept" in capsys.readouterr().err) == bool(code)
