"""Records of answers, as the serving program keeps them: over real sockets, with stand-ins for the models."""

import concurrent.futures
import contextlib
import hashlib
import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from program_process import ServerProcess, pace, termination
from rag_server import body, content_part, pod_part, running
from typer.testing import CliRunner

from tailhold.main import app
from tailhold_api.audit import AuditFolder, AuditSink, OnFailure, Recording, Records, Redaction
from tailhold_api.parts import PodPart
from tailhold_server.access.caller import Caller
from tailhold_server.audit.auditor import CALLER
from tailhold_server.audit.record import Head, Record
from tailhold_server.audit.verify import ONLY, records_of, verify
from tailhold_server.testing import StandInEngine

QUESTION = "When does the office close? My account is DE89370400440532013000."
TEXTS = Recording(
    records=Records.TEXTS,
    redaction=(
        Redaction(name="iban", pattern="[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}", replacement=r"[IBAN\1]"),
        Redaction(name="office", pattern="(?i)OFFICE"),
    ),
)


def audited() -> PodPart:
    return pod_part().model_copy(update={"audit_sink": AuditSink(pvc=AuditFolder(claim_name="audit", path="answers"))})


def folder_of(program: ServerProcess) -> Path:
    return program.log.parents[1] / "claims" / "audit" / "answers"


def ask(program: ServerProcess, content: str = QUESTION, **fields: Any) -> httpx.Response:
    url = f"{program.url}/v1/chat/completions"
    return httpx.post(url, json=body(content, **fields), timeout=30, trust_env=False)


def tuning(program: ServerProcess) -> dict[str, Any]:
    said: dict[str, Any] = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False).json()
    return said


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of_kind(root: Path, kind: str) -> list[Record]:
    return [record for record in records_of(root) if record["kind"] == kind]


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_leaves_what_it_takes_to_account_for_it(chained: Any, tmp_path: Path, streamed: bool) -> None:
    async with running() as server:
        server.service.auditor = chained()
        answer = await server.ask(QUESTION, stream=streamed, seed=7, user="clerk-4")
        await server.service.auditor.close()
        tuned = server.service.tuning()
    text = said_in(answer, streamed)
    (begun,), (ended,) = of_kind(tmp_path, "begun"), of_kind(tmp_path, "ended")
    assert begun["request"] == ended["request"] == request_id(answer, streamed)
    assert (begun["client"], begun["tenant"], begun["surface"], begun["streamed"]) == (
        "anonymous",
        "",
        "chat",
        streamed,
    )
    assert begun["revision"] == answer.headers["x-tailhold-revision"]
    assert begun["digests"]["content"] == tuned["contentDigest"]
    assert begun["digests"]["snapshot"] == tuned["snapshot"]
    assert begun["question"] == {"sha256": sha256(QUESTION)}
    assert begun["user"] == {"sha256": sha256("clerk-4")}
    assert [len(chunk["key"]) for chunk in begun["chunks"]] == [64, 64]
    assert begun["sampling"]["seed"] == 7
    assert ended["answer"] == {"sha256": sha256(text), "characters": len(text)}
    assert (ended["outcome"], ended["finishReason"], ended["cited"]) == ("ok", "stop", [1, 2])
    assert ended["usage"]["promptTokens"] == begun["prompt"]["tokens"] == len(server.engine.prompts[-1])
    ids = b"".join(token.to_bytes(4, "little") for token in server.engine.prompts[-1])
    assert begun["prompt"]["sha256"] == hashlib.sha256(ids).hexdigest()
    assert verify(tmp_path, {ONLY: Head(**tuned["audit"])}).findings == ()


def said_in(answer: httpx.Response, streamed: bool) -> str:
    if not streamed:
        return str(answer.json()["choices"][0]["message"]["content"])
    return "".join(each["choices"][0]["delta"].get("content") or "" for each in events(answer.text))


def request_id(answer: httpx.Response, streamed: bool) -> str:
    return str((events(answer.text)[0] if streamed else answer.json())["id"])


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def test_digests_keep_no_text_and_texts_keep_what_redaction_leaves(chained: Any, tmp_path: Path) -> None:
    async with running() as server:
        server.service.auditor = chained()
        await server.ask(QUESTION)
        kept = "".join(map(str, records_of(tmp_path)))
        assert not any(word in kept for word in ("office", "closes", "account", "DE89"))
        server.service.put_content(server.service.contents.load(content_part(recording=TEXTS)))
        await server.ask(QUESTION)
        await server.service.auditor.close()
    begun, ended = of_kind(tmp_path, "begun")[1], of_kind(tmp_path, "ended")[1]
    masked = r"When does the [redacted] close? My account is [IBAN\1]."
    assert begun["messages"] == [{"role": "user", "text": masked}]
    assert begun["question"] == {"sha256": sha256(QUESTION)}
    assert ended["text"].startswith(f"You asked: {masked}")


async def test_the_caller_is_whom_the_access_check_left_in_the_scope(chained: Any, tmp_path: Path) -> None:
    async with running() as server:
        server.service.auditor = chained()
        inner = server.public._transport.app  # type: ignore[attr-defined]

        async def outer(scope: Any, receive: Any, send: Any) -> None:
            await inner(scope | {CALLER: Caller("desk-7", "risk")}, receive, send)

        server.public._transport.app = outer  # type: ignore[attr-defined]
        await server.ask(QUESTION)
        await server.service.auditor.close()
    (begun,) = of_kind(tmp_path, "begun")
    assert (begun["client"], begun["tenant"]) == ("desk-7", "risk")


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_fails_is_recorded_as_such(chained: Any, tmp_path: Path, streamed: bool) -> None:
    engine = StandInEngine(seconds_per_token=0.01)
    async with running(engine=engine) as server:
        server.service.auditor = chained()
        generate = engine.generate

        async def dying(*given: Any, **named: Any) -> Any:
            async for delta in generate(*given, **named):
                yield delta
                engine.kill()

        engine.generate = dying  # type: ignore[method-assign]
        await server.ask(QUESTION, stream=streamed)
        await server.service.auditor.close()
    (ended,) = of_kind(tmp_path, "ended")
    assert (ended["outcome"], ended["finishReason"], ended["usage"]["completionTokens"]) == ("failed", None, 1)


async def test_a_refused_question_leaves_no_record(chained: Any, tmp_path: Path) -> None:
    """Nothing left the server, and who floods it must not fill the disk."""
    async with running() as server:
        server.service.auditor = chained()
        for fields in ({"tools": [{"type": "function"}]}, {"model": "none"}):
            assert (await server.ask(QUESTION, **fields)).status_code >= 400
        await server.service.auditor.close()
    assert [record["kind"] for record in records_of(tmp_path)] == ["opened", "stopped"]


def test_a_client_that_leaves_is_recorded(start_stand_in: Any) -> None:
    program = start_stand_in(pod=audited(), stand_in=pace(0.1))
    url = f"{program.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body("word " * 50, stream=True), trust_env=False) as answer:
        next(answer.iter_text())
    program.wait_until(lambda: bool(of_kind(folder_of(program), "ended")))
    (ended,) = of_kind(folder_of(program), "ended")
    assert ended["outcome"] == "client_closed"


def test_a_stopped_server_says_that_nothing_follows_and_the_next_one_goes_on(start_stand_in: Any) -> None:
    program = start_stand_in(pod=audited(), TAILHOLD_POD_NAME="docs-1")
    assert ask(program).status_code == 200
    head = tuning(program)["audit"]
    assert program.stop() == 0
    report = verify(folder_of(program), {"docs-1": Head(**head)})
    assert (report.findings, report.chains[0].stopped, report.chains[0].interrupted) == ((), True, {})
    assert folder_of(program) / "docs" / "docs-1" == report.chains[0].folder
    again = start_stand_in(pod=audited(), TAILHOLD_POD_NAME="docs-1")
    assert ask(again).status_code == 200
    again.stop()
    assert verify(folder_of(program), {"docs-1": Head(**head)}).findings == ()
    assert len(of_kind(folder_of(program), "ended")) == 2


def test_a_request_is_shown_by_its_id(start_stand_in: Any) -> None:
    program = start_stand_in(pod=audited())
    first, second = ask(program).json()["id"], ask(program).json()["id"]
    told = CliRunner().invoke(app, ["audit", "show", str(folder_of(program)), "--request", second, "-o", "json"])
    (line,) = told.output.splitlines()
    assert first not in line
    assert json.loads(line)["ended"]["request"] == second


@pytest.mark.parametrize("on_failure", list(OnFailure))
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_full_disk_refuses_or_goes_on_as_it_is_told(
    chained: Any, tmp_path: Path, on_failure: OnFailure, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `Refuse` nothing of the answer is sent."""

    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    async with running(content=content_part(recording=Recording(on_failure=on_failure))) as server:
        server.service.auditor = chained()
        with monkeypatch.context() as patched:
            patched.setattr("tailhold_server.audit.segment.os.write", full)
            answer = await server.ask(QUESTION, stream=streamed)
        if on_failure is OnFailure.REFUSE:
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert "audit record" in answer.json()["error"]["message"]
            assert server.service.held == 0
        else:
            assert said_in(answer, streamed).startswith("You asked")
        assert (await server.ask(QUESTION, stream=streamed)).status_code == 200, "the disk has room again"
        await server.service.auditor.close()
    lost = [record["answers"] for record in of_kind(tmp_path, "lost")]
    assert lost == ([] if on_failure is OnFailure.REFUSE else [1])
    assert verify(tmp_path).findings == ()


def test_a_disk_that_cannot_be_written_ends_the_start_with_its_reason(start_stand_in: Any, tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir(exist_ok=True)
    (tmp_path / "claims" / "audit").write_text("a file, no folder")
    program = start_stand_in(wait=False, pod=audited())
    assert program.process.wait(30) == 1
    assert "audit records cannot be written to" in termination(program)["message"]
    went_on = start_stand_in(pod=audited(), recording=Recording(on_failure=OnFailure.CONTINUE))
    assert ask(went_on).status_code == 200


@pytest.mark.parametrize("streamed", [True, False])
def test_a_running_server_refuses_while_its_folder_is_away_and_goes_on_when_it_is_back(
    start_stand_in: Any, streamed: bool
) -> None:
    program = start_stand_in(pod=audited(), TAILHOLD_POD_NAME="docs-1")
    folder = folder_of(program) / "docs" / "docs-1"
    assert ask(program).status_code == 200
    folder.rename(folder.with_name("aside"))
    folder.write_text("no folder")
    for _ in range(3):
        refused = ask(program, stream=streamed)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    folder.unlink()
    folder.with_name("aside").rename(folder)
    assert ask(program, stream=streamed).status_code == 200
    head = tuning(program)["audit"]
    assert verify(folder, {ONLY: Head(**head)}).findings == ()
    shutil.rmtree(folder)
    assert ask(program, stream=streamed).status_code == 200
    assert program.stop() == 0
    finding, missed = verify(folder, {ONLY: Head(**head)}).findings
    assert f"1 to {head['sequence']} had been removed while it ran" in finding.words
    assert f"is left with its record {head['sequence']}" in missed.words
    log = program.log.read_text()
    assert log.count("audit records cannot be written to") == 1
    assert "never retrieved" not in log


def test_a_pattern_that_is_no_expression_is_refused_by_name(start_stand_in: Any) -> None:
    """Where no API server has checked it."""
    wrong = Recording(redaction=(Redaction(name="ahead", pattern="(?=a)"),))
    program = start_stand_in(wait=False, pod=audited(), recording=wrong)
    assert program.process.wait(30) == 2
    assert termination(program)["reason"] == "ContentRefused"
    assert "redaction[ahead].pattern" in termination(program)["message"]


def test_an_expression_takes_time_in_proportion_to_the_text() -> None:
    """What would take a backtracking engine longer than the universe is old."""
    from tailhold_server.audit.redact import redact

    nested = (Redaction(name="nested", pattern="(a+)+$"), Redaction(name="wide", pattern="(.*)(.*)(.*)(.*)(.*)[^x]x"))
    began = time.monotonic()
    redact("a" * 100_000 + "b", nested)
    assert time.monotonic() - began < 60, "no matter how slow the machine is"


class Asker:
    """Asks until the server is gone, and remembers what it was told."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._random = random.Random(seed)  # noqa: S311
        self.told: dict[str, bool] = {}
        """By request id, whether the end came."""
        self.answered = 0

    def run(self) -> None:
        with contextlib.suppress(httpx.TransportError), httpx.Client(timeout=10, trust_env=False) as client:
            while True:
                if self._random.random() < 0.3:
                    answer = client.post(self._url, json=body("word " * self._random.randint(1, 9)))
                    self._answered(answer.json()["id"])
                else:
                    self._streamed(client)

    def _streamed(self, client: httpx.Client) -> None:
        asked = body("word " * self._random.randint(1, 40), stream=True)
        request = ""
        with client.stream("POST", self._url, json=asked) as answer:
            for line in answer.iter_lines():
                if line == "data: [DONE]":
                    self._answered(request)
                elif line.startswith("data: {"):
                    request = json.loads(line[6:])["id"]
                    self.told.setdefault(request, False)

    def _answered(self, request: str) -> None:
        self.told[request] = True
        self.answered += 1


def test_a_server_that_is_killed_has_lost_no_record_of_what_it_sent(start_stand_in: Any, tmp_path: Path) -> None:
    """Every answer whose end was received has an outcome, every answer that was begun to be received a beginning; each
    next process goes on with the chain."""
    told = dict[str, bool]()
    for wanted, seconds in ((5, 0), (40, 0.002), (17, 0), (60, 0.002)):
        program = start_stand_in(pod=audited(), stand_in=pace(seconds), TAILHOLD_POD_NAME="docs-1")
        askers = [Asker(program.url, seed) for seed in range(6)]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            running = [pool.submit(asker.run) for asker in askers]
            while sum(asker.answered for asker in askers) < wanted and program.process.poll() is None:
                time.sleep(0.001)
            program.process.kill()
            program.process.wait()
            for each in running:
                each.result()
        for asker in askers:
            told |= asker.told
        report = verify(tmp_path / "claims" / "audit")
        assert report.findings == ()
    begun = {record["request"] for record in of_kind(tmp_path, "begun")}
    ended = Counter(record["request"] for record in of_kind(tmp_path, "ended"))
    assert {request for request in told if request not in begun} == set()
    assert {request for request, is_whole in told.items() if is_whole and request not in ended} == set()
    assert set(ended.values()) == {1}
    assert sum(told.values()) >= 20
    assert set(report.chains[0].interrupted) <= begun - set(ended)
    assert len(of_kind(tmp_path, "opened")) == 4
