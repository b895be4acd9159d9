"""The demo's corpus with the demo's models: whether a search finds the page that answers."""

from pathlib import Path

import pytest

from tailhold.demo import CORPUS, EMBEDDER, GENERATOR, ensure_claims, ensure_corpus, ensure_models
from tailhold.index import searcher
from tailhold.questions import hit_rate, load_questions
from tailhold_api.parts import BuildPart
from tailhold_local.layout import cache_root
from tailhold_server.ingest.build import build

QUESTIONS = Path(__file__).parents[2] / "examples" / "questions.yaml"


@pytest.mark.engine
def test_four_of_five_questions_find_their_page() -> None:
    """In the demo's own store: a vector that is there is not made again."""
    cache = cache_root()
    claims = ensure_claims(cache)
    _, embedder = ensure_models(cache)
    documents = ensure_corpus(cache)
    questions = load_questions(QUESTIONS)
    missing = {page for question in questions for page in question.pages if not (documents / page).is_file()}
    assert not missing, "questions name pages that the handbook has not"
    report = build(handbook(), claims=claims, config_maps=claims, progress=lambda _: None)
    found = hit_rate(questions, searcher(claims / "snapshots", report.snapshot, embedder))
    print(f"{report.chunks} chunks of {report.documents} pages in {report.seconds}; {found.rate:.2f} found")
    print("\n".join(map(str, found.misses)))
    assert report.failures == ()
    assert found.rate >= 0.8


def handbook() -> BuildPart:
    models = {name: {"model": {"pvc": {"claimName": "models", "path": name}}} for name in (EMBEDDER, GENERATOR)}
    return BuildPart.model_validate(
        {
            "corpus": {"sources": [{"name": "handbook", "pvc": {"claimName": "documents", "path": CORPUS}}]},
            "embedder": {**models[EMBEDDER], "dimension": 384},
            "generator": models[GENERATOR],
            "kind": "Flat",
            "metric": "Cosine",
            "store": {"claimName": "snapshots"},
        }
    )
