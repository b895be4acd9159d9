import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.index.test_build import DIMENSION, part

from tailhold.ending import ENDING_BYTES, failed, succeeded
from tailhold.index import build, search, searcher, verify
from tailhold.questions import Question, hit_rate, load_questions
from tailhold.watching import line_of, serve_progress
from tailhold_api.codec import dump
from tailhold_api.conditions import Reason
from tailhold_api.status import Progress
from tailhold_server.ingest.report import BuildReport, Why, failure

Write = Callable[[dict[str, str | bytes]], Path]
Job = tuple[Path, dict[str, str]]


@pytest.fixture
def job(write: Write, small: Path, tmp_path: Path) -> Job:
    """A build file, and the environment of a container."""
    claims = write(
        {"a.md": "# Badges\n\nBadges are renewed in May.", "b.txt": "The office closes at six.", "c.txt": ""}
    )
    shutil.copytree(small, claims / "models" / "minilm")
    (tmp_path / "build.json").write_text(dump(part()))
    return tmp_path / "build.json", {
        **os.environ,
        "TAILHOLD_CLAIMS": str(claims),
        "TAILHOLD_TERMINATION_LOG": str(tmp_path / "ending"),
        "TAILHOLD_PIPELINE": "team/notes",
    }


def ending(job: Job) -> dict[str, object]:
    said: dict[str, object] = json.loads(Path(job[1]["TAILHOLD_TERMINATION_LOG"]).read_text())
    return said


def test_a_build_ends_with_what_the_operator_reads(job: Job, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build(job[0], None, job[1]) == 0
    said = ending(job)
    assert set(said) == {"snapshot", "documents", "failedDocuments", "chunks", "failures"}
    assert (said["documents"], said["failedDocuments"], said["chunks"]) == (2, 1, 2)
    assert said["failures"] == [failure("s/c.txt", Why.NO_TEXT).model_dump(mode="json")]
    store = Path(job[1]["TAILHOLD_CLAIMS"]) / "snapshots"
    printed = capsys.readouterr().out
    assert "failed: s/c.txt: no_text" in printed
    assert "embedding: 0 of 2 chunks" in printed
    assert json.loads((store / "pins" / "team.notes.json").read_text()) == [said["snapshot"]]
    folder = store / "snapshots" / str(said["snapshot"])
    assert verify(folder) == 0
    assert search(store, "badges", small)[0].score <= 1
    assert len(search(store, "badges", small, k=9)) == 2
    assert set(searcher(store, str(said["snapshot"]), small)("badges", 2)) == {"a.md", "b.txt"}
    (folder / "vectors.f32").write_bytes(b"")
    assert verify(folder) == 1


def test_a_job_keeps_as_many_snapshots_as_it_is_told(job: Job) -> None:
    store = Path(job[1]["TAILHOLD_CLAIMS"]) / "snapshots"
    for text in ("one", "two", "three"):
        (Path(job[1]["TAILHOLD_CLAIMS"]) / "documents" / "b.txt").write_text(text)
        assert build(job[0], None, {**job[1], "TAILHOLD_KEEP_SNAPSHOTS": "1"}) == 0
    assert len(json.loads((store / "pins" / "team.notes.json").read_text())) == 2
    assert build(job[0], None, {**job[1], "TAILHOLD_KEEP_SNAPSHOTS": "many"}) == 2
    assert "TAILHOLD_KEEP_SNAPSHOTS" in str(ending(job)["message"])


@pytest.mark.parametrize(
    ("harm", "reason", "code"),
    [
        (lambda file, claims: file.write_text("{}"), Reason.INVALID_SPEC, 2),
        (lambda file, claims: shutil.rmtree(claims / "models"), Reason.MODEL_NOT_FOUND, 2),
        (lambda file, claims: shutil.rmtree(claims / "documents"), Reason.EMPTY_INDEX, 2),
        (lambda file, claims: (claims / "snapshots").write_text("no folder"), Reason.INDEX_BUILD_FAILED, 1),
        (
            lambda file, claims: file.write_text(dump(part(embedder={**PLAIN, "dimension": 64}))),
            Reason.START_FAILED,
            2,
        ),
    ],
)
def test_a_build_that_cannot_go_on_says_why(
    job: Job, harm: Callable[[Path, Path], object], reason: Reason, code: int
) -> None:
    harm(job[0], Path(job[1]["TAILHOLD_CLAIMS"]))
    assert build(job[0], None, job[1]) == code
    said = ending(job)
    assert said["reason"] == reason
    assert said["message"]


def test_c03_too_small_a_corpus_ends_the_job_for_good_and_leaves_what_serves(job: Job) -> None:
    assert build(job[0], None, job[1]) == 0
    store = Path(job[1]["TAILHOLD_CLAIMS"]) / "snapshots" / "snapshots"
    before = sorted(store.iterdir())
    job[0].write_text(dump(part(kind="IVFPQ", ivfpq={"lists": 64, "subquantizers": 8})))
    assert build(job[0], None, job[1]) == 2  # the Job's podFailurePolicy ends at once: no crash loop
    said = ending(job)
    assert said["reason"] == Reason.INDEX_BUILD_FAILED
    assert "at least 256 passages, the corpus has 2: use `index.kind: Flat`" in str(said["message"])
    assert sorted(store.iterdir()) == before


PLAIN = {"model": {"pvc": {"claimName": "models", "path": "minilm"}}, "dimension": DIMENSION}


def test_progress_is_served_while_it_runs() -> None:
    with serve_progress(0, "127.0.0.1") as board:
        board.show(Progress(step="embedding", done=3, total=9, unit="chunks", eta_seconds=2))
        url = f"http://127.0.0.1:{board.port}"
        with urllib.request.urlopen(f"{url}/progress") as answer:
            assert json.load(answer) == {
                "step": "embedding",
                "done": 3,
                "total": 9,
                "unit": "chunks",
                "etaSeconds": 2,
            }
        with pytest.raises(OSError, match="404"):
            urllib.request.urlopen(f"{url}/other")


def test_sigterm_ends_a_build_at_once_and_publishes_nothing(job: Job) -> None:
    code = "import sys, pathlib, tailhold.index as i; sys.exit(i.build(pathlib.Path(sys.argv[1]), 0))"
    environment = {**job[1], "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(job[0])],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("loading models")
    process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert time.monotonic() - started < 30
    process.stdout.close()
    assert not (Path(job[1]["TAILHOLD_CLAIMS"]) / "snapshots" / "snapshots").exists()


def report(failures: int, hint: str) -> BuildReport:
    listed = tuple(failure(f"s/{n}.txt", Why.BROKEN, hint) for n in range(failures))
    return BuildReport(
        snapshot="0" * 64,
        documents=1,
        failed_documents=failures,
        chunks=1,
        reused=0,
        failures=listed,
        seconds={},
    )


@given(st.integers(0, 300), st.text(max_size=50))
def test_an_ending_fits_the_termination_log_and_counts_all_failures(failures: int, hint: str) -> None:
    text = succeeded(report(failures, hint))
    assert len(text.encode()) <= ENDING_BYTES
    assert json.loads(text)["failedDocuments"] == failures


@given(st.text().map(lambda text: text * 200))
def test_a_reason_fits_the_termination_log(message: str) -> None:
    text = failed(Reason.EMPTY_INDEX, message)
    assert len(text.encode()) <= ENDING_BYTES
    assert message.startswith(json.loads(text)["message"])


def test_a_line_of_progress_says_how_long_is_left() -> None:
    said = Progress(step="embedding", done=512, total=1939, unit="chunks", eta_seconds=40)
    assert line_of(said) == "embedding: 512 of 1939 chunks, 40 s left"
    assert line_of(Progress(step="reading", done=7, unit="documents")) == "reading: 7 documents"


def test_a_hit_is_any_page_that_answers() -> None:
    asked = [Question(question=text, pages=("a", "b")) for text in ("first", "second")]
    found = hit_rate(asked, lambda text, k: ["x", "b"] if text == "first" else ["x", "y"], k=2)
    assert found.rate == 0.5
    assert [str(miss) for miss in found.misses] == ["second wanted a, b, found x, y"]


def test_the_examples_questions_are_thirty_and_no_two_alike() -> None:
    questions = load_questions(Path(__file__).parents[2] / "examples" / "questions.yaml")
    assert len({question.text for question in questions}) == len(questions) == 30
