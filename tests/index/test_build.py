import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.index.pdf_files import pdf

from tailhold_api.codec import digest, load
from tailhold_api.conditions import Reason
from tailhold_api.parts import BuildPart
from tailhold_api.status import Progress
from tailhold_server.adapters.encoder import load_tokenizer
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.backends import Opening, searcher
from tailhold_server.errors import StartError
from tailhold_server.ingest.build import Models, build, build_with
from tailhold_server.ingest.report import BuildReport, Why
from tailhold_server.ingest.tokens import tokenise
from tailhold_server.snapshots import Snapshot, open_snapshot, snapshot_folder
from tailhold_server.snapshots.tombstones import add_tombstone, restore_version
from tailhold_server.testing import StandInEncoder
from tailhold_server.vectors import NotFiniteError

Write = Callable[[dict[str, str | bytes]], Path]
FINGERPRINT = hashlib.sha256(b"stand-in").hexdigest()
DIMENSION = 32


class PoisonedEncoder(StandInEncoder):
    """Gives no finite vector for texts with `poison`, zeros for those with `nothing`, and too large ones for `huge`."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if bad := tuple(row for row, text in enumerate(texts) if "poison" in text):
            raise NotFiniteError(bad)
        rows = super().encode(texts)
        rows[[row for row, text in enumerate(texts) if "nothing" in text]] = 0
        rows[[row for row, text in enumerate(texts) if "huge" in text]] *= 1e30
        return rows


def part(*sources: dict[str, object], **fields: object) -> BuildPart:
    corpus = {
        "sources": list(sources) or [{"name": "s", "pvc": {"claimName": "documents"}}],
        "chunking": {"maxTokens": 64, "overlapTokens": 8},
    }
    model = {"pvc": {"claimName": "models", "path": "minilm"}}
    return BuildPart.model_validate(
        {
            "corpus": corpus,
            "embedder": {"model": model, "dimension": DIMENSION},
            "generator": {"model": model},
            "kind": "Flat",
            "metric": "Cosine",
            "store": {"claimName": "snapshots"},
            **fields,
        }
    )


@pytest.fixture
def run(minilm: Path, tmp_path: Path) -> Callable[..., tuple[BuildReport, Snapshot]]:
    def _run(
        claims: Path, of: BuildPart | None = None, progress: Callable[[Progress], None] = lambda _: None, **more: Any
    ) -> tuple[BuildReport, Snapshot]:
        encoder = PoisonedEncoder(DIMENSION, FINGERPRINT)
        models = Models(encoder, load_tokenizer(minilm), partial(tokenise, minilm))
        maps = tmp_path / "maps"
        report = build_with(models, of or part(), claims=claims, config_maps=maps, progress=progress, **more)
        return report, open_snapshot(snapshot_folder(claims / "snapshots", report.snapshot), report.snapshot)

    return _run


Run = Callable[..., tuple[BuildReport, Snapshot]]


def found(snapshot: Snapshot, question: str, k: int = 3) -> list[str]:
    searcher = FlatSearcher(snapshot.vectors, snapshot.manifest.metric)
    _, ids = searcher.search(StandInEncoder(DIMENSION).encode([question]), k)
    return [snapshot.chunks.text(number) for number in ids[0] if number >= 0]


def why(report: BuildReport) -> dict[str, Why]:
    return {each.path: each.reason for each in report.failures}


def test_documents_become_a_snapshot(write: Write, run: Run) -> None:
    claims = write(
        {
            "a.html": "<title>Hours</title><p>The office closes at 18:00.",
            "b/b.md": "# Badges\n\nRenewed in May.",
        }
    )
    told: list[Progress] = []
    report, snapshot = run(claims, progress=told.append)
    assert (report.documents, report.failed_documents, report.chunks, report.reused) == (2, 0, 2, 0)
    sources = [snapshot.chunks.source(n) for n in range(2)]
    assert [(each.document, each.title, each.source, each.url) for each in sources] == [
        ("a.html", "Hours", "s", None),
        ("b/b.md", "Badges", "s", None),
    ]
    assert found(snapshot, "when does the office close", 5)[0] == "The office closes at 18:00."
    assert snapshot.manifest.embedder == FINGERPRINT
    assert set(report.seconds) == {"reading", "embedding", "publishing"}
    assert list(dict.fromkeys(each.step for each in told)) == ["reading", "embedding", "publishing"]


def test_c82_a_text_in_many_documents_fills_one_place(write: Write, run: Run) -> None:
    files: dict[str, str | bytes] = {f"c{n}.txt": "All rights reserved. Internal use only." for n in range(8)}
    report, snapshot = run(write({**files, "real.txt": "Internal use: printers are on floor 3."}))
    assert (report.documents, report.chunks) == (9, 2)
    assert found(snapshot, "internal use printers") == [
        "Internal use: printers are on floor 3.",
        "All rights reserved. Internal use only.",
    ]
    assert [each.document for each in snapshot.chunks.sources(0)] == [f"c{n}.txt" for n in range(8)]


def test_c85_c88_c89_one_bad_document_leaves_the_others(write: Write, run: Run) -> None:
    claims = write(
        {
            "empty.txt": b"",
            "blank.txt": " \n\t\u00a0\u200b ",
            "script.html": "<html><script>var a=1</script><style>p{}</style></html>",
            "scan.pdf": pdf([]),
            "locked.pdf": pdf(["x"], encrypted=True),
            "broken.pdf": b"%PDF-1.4",
            "jumble.txt": b"ok \xff\xfe\x00 \xc3\x28 end",
            "nul.txt": b"pay\0roll day is the 25th",
            "quote.txt": "The ‘quiet’ room costs 5 € per hour.".encode("cp1252"),
            "real.txt": "Fire drills are on Mondays.",
        }
    )
    report, snapshot = run(claims)
    assert why(report) == {
        "s/empty.txt": Why.NO_TEXT,
        "s/blank.txt": Why.NO_TEXT,
        "s/script.html": Why.NO_TEXT,
        "s/scan.pdf": Why.NO_TEXT,
        "s/locked.pdf": Why.ENCRYPTED,
        "s/broken.pdf": Why.BROKEN,
        "s/jumble.txt": Why.ENCODING,
    }
    assert (report.documents, report.failed_documents, report.chunks) == (3, 7, 3)
    assert all(each.hint for each in report.failures)
    assert found(snapshot, "payroll day", 1) == ["payroll day is the 25th"]
    assert found(snapshot, "quiet room", 1) == ["The ‘quiet’ room costs 5 € per hour."]


def test_c78_c79_a_document_without_a_usable_vector_fails_alone(write: Write, run: Run) -> None:
    claims = write(
        {"a.txt": "fine words", "b.txt": "a poison word", "c.txt": "nothing here", "d.txt": "more fine words"}
    )
    report, snapshot = run(claims)
    assert why(report) == {"s/b.txt": Why.NOT_FINITE, "s/c.txt": Why.NOT_FINITE}
    assert [snapshot.chunks.source(n).document for n in range(report.chunks)] == ["a.txt", "d.txt"]
    assert [snapshot.chunks.text(n) for n in range(2)] == ["fine words", "more fine words"]
    assert found(snapshot, "more", 1) == ["more fine words"]


def test_c89_a_corpus_without_a_chunk_publishes_nothing(write: Write, run: Run) -> None:
    claims = write({"blank.txt": " ", "scan.pdf": pdf([])})
    sources: list[dict[str, object]] = [
        {"name": "docs", "pvc": {"claimName": "documents"}},
        {"name": "gone", "configMap": {"name": "gone"}},
        {"name": "none", "pvc": {"claimName": "documents"}, "include": ["*.nothing"]},
    ]
    with pytest.raises(StartError) as failed:
        run(claims, part(*sources))
    assert failed.value.reason is Reason.EMPTY_INDEX
    for words in (
        "docs/blank.txt: no_text",
        "docs/scan.pdf: no_text",
        "source gone: gone: unreadable",
        "source none: none: empty_source",
    ):
        assert words in failed.value.message
    assert not (claims / "snapshots").exists()


def test_c79_all_vectors_unusable_is_an_empty_index(write: Write, run: Run) -> None:
    with pytest.raises(StartError, match="not_finite") as failed:
        run(write({"a.txt": "poison"}))
    assert failed.value.reason is Reason.EMPTY_INDEX


def test_a_document_whose_vector_is_too_large_to_be_compared_is_named(write: Write, run: Run) -> None:
    report, _ = run(write({"a.txt": "huge", "b.txt": "fine"}))
    assert why(report) == {"s/a.txt": Why.NOT_FINITE}
    assert report.chunks == 1


def test_a_source_that_yields_nothing_does_not_stop_the_others(write: Write, run: Run) -> None:
    claims = write({"a.txt": "text"})
    report, _ = run(
        claims,
        part({"name": "gone", "pvc": {"claimName": "gone"}}, {"name": "s", "pvc": {"claimName": "documents"}}),
    )
    assert why(report) == {"gone": Why.UNREADABLE}
    assert report.chunks == 1


def test_the_same_documents_give_the_same_snapshot(write: Write, run: Run, tmp_path: Path) -> None:
    claims = write({"a.txt": "one", "b.txt": "two"})
    first, _ = run(claims)
    second, _ = run(claims)
    assert (second.snapshot, second.reused) == (first.snapshot, 2)
    (claims / "snapshots").rename(tmp_path / "elsewhere")
    third, _ = run(claims)
    assert (third.snapshot, third.reused) == (first.snapshot, 0)


def test_only_what_changed_is_embedded_again(write: Write, run: Run) -> None:
    files: dict[str, str | bytes] = {f"{n}.txt": f"document number {n}" for n in range(9)}
    run(write(files))
    report, snapshot = run(write({**files, "0.txt": "another text"}))
    assert (report.chunks, report.reused) == (9, 8)
    fresh = StandInEncoder(DIMENSION).encode([f"{n}\n{snapshot.chunks.text(n)}" for n in range(9)])
    np.testing.assert_array_equal(snapshot.vectors, fresh)


def test_a_build_spares_and_passes_over_what_another_pipeline_built_later(write: Write, run: Run) -> None:
    mine, _ = run(write({"a.txt": "mine"}), owner="team/mine")
    other, _ = run(write({"a.txt": "other"}), owner="team/other")
    store = write({}) / "snapshots"
    for age, name in enumerate((mine.snapshot, other.snapshot)):
        os.utime(snapshot_folder(store, name), (0, age))
    again, _ = run(write({"a.txt": "mine"}), part(rebuild="1"), keep=1, owner="team/mine")
    assert again.reused == 1, "from its own, though the other's is newer"
    for n in range(3):
        run(write({"a.txt": f"text {n}"}), part(), keep=1, owner="team/mine")
    assert snapshot_folder(store, other.snapshot).is_dir()
    assert not snapshot_folder(store, mine.snapshot).exists()


def test_vectors_of_another_passage_prefix_are_not_reused(write: Write, run: Run) -> None:
    claims = write({"a.txt": "one"})
    run(claims)
    changed = part()
    embedder = changed.embedder.model_copy(update={"passage_prefix": "passage: "})
    report, _ = run(claims, changed.model_copy(update={"embedder": embedder}))
    assert report.reused == 0


def test_old_snapshots_go_and_the_report_stays(write: Write, run: Run) -> None:
    names = []
    for n in range(5):
        report, _ = run(write({"a.txt": f"text {n}"}), part(rebuild=str(n)), keep=2)
        folder = snapshot_folder(write({}) / "snapshots", report.snapshot)
        os.utime(folder, (0, n))
        names.append(report.snapshot)
        assert (
            load(
                BuildReport,
                (folder.parents[1] / "builds" / f"{digest(part(rebuild=str(n)))}.json").read_text(),
            )
            == report
        )
    assert {path.name for path in folder.parent.iterdir()} == set(names[-3:])


def test_a_document_that_spells_a_special_token_gets_letters(write: Write, run: Run, minilm: Path) -> None:
    _, snapshot = run(write({"a.txt": "ignore [SEP] all"}))
    special = load_tokenizer(minilm).token_to_id("[SEP]")
    assert special not in snapshot.chunks.token_ids(0)


def test_models_are_proved_before_a_document_is_read(write: Write, tmp_path: Path) -> None:
    claims = write({"a.txt": "text"})
    told: list[Progress] = []
    with pytest.raises(StartError) as failed:
        build(part(), claims=claims, config_maps=tmp_path, progress=told.append)
    assert failed.value.reason is Reason.MODEL_NOT_FOUND
    assert [each.step for each in told] == ["loading models"]


def texts(count: int) -> dict[str, str | bytes]:
    return {f"{n}.txt": f"Rule {n}: room {n * 7 % 31} is for group {n * 13 % 17} on day {n}." for n in range(count)}


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "HNSW", "hnsw": {"neighbours": 8}},
        {"kind": "IVFPQ", "ivfpq": {"lists": 4, "subquantizers": 8, "bitsPerCode": 4}},
    ],
)
def test_the_job_builds_measures_and_publishes(write: Write, run: Run, fields: dict[str, object]) -> None:
    claims = write(texts(60))
    report, snapshot = run(claims, part(**fields))
    said = snapshot.manifest
    assert (said.kind, said.recall_questions, said.build) == (fields["kind"], 60, digest(part(**fields)))
    assert said.recall == report.recall >= 0.9
    assert "indexing" in report.seconds
    again, _ = run(claims, part(**fields))
    assert again.snapshot == report.snapshot
    index = Opening(partial(snapshot_folder, claims / "snapshots"), searcher)(report.snapshot)
    assert index.searcher.search(snapshot.vectors[7:8], 1)[1].tolist() == [[7]]


def test_c03_too_small_a_corpus_ends_the_build_with_both_numbers(write: Write, run: Run) -> None:
    with pytest.raises(StartError, match=r"at least 1024 passages, the corpus has 3: use `index.kind: Flat`") as caught:
        run(write(texts(3)), part(kind="IVFPQ", ivfpq={"subquantizers": 8}))
    assert caught.value.reason is Reason.INDEX_BUILD_FAILED
    assert caught.value.final


def test_a_deleted_document_is_in_no_snapshot_to_come(write: Write, run: Run) -> None:
    """But a version that was restored is, though its old text came from the same file."""
    claims = write({"a.txt": "The office closes at six.", "b.txt": "Badges are renewed in May."})
    first, _ = run(claims)
    add_tombstone(claims / "snapshots", "s", "a.txt", at=1.0)
    report, snapshot = run(claims)
    assert (report.documents, report.deleted_documents, report.failed_documents) == (1, 1, 0)
    assert [snapshot.chunks.text(n) for n in range(len(snapshot.chunks))] == ["Badges are renewed in May."]
    assert report.snapshot != first.snapshot
    write({"a.txt": "The office closes at seven."})
    assert run(claims)[0].deleted_documents == 1
    restore_version(claims / "snapshots", "s", "a.txt", hashlib.sha256(b"The office closes at seven.").hexdigest())
    report, snapshot = run(claims)
    assert report.deleted_documents == 0
    assert found(snapshot, "office")[0] == "The office closes at seven."


def test_a_corpus_of_deleted_documents_says_so(write: Write, run: Run) -> None:
    claims = write({"a.txt": "The office closes at six."})
    add_tombstone(claims / "snapshots", "s", "a.txt", at=1.0)
    with pytest.raises(StartError, match="1 documents are deleted"):
        run(claims)
