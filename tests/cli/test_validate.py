"""`tailhold validate`: every fault of every file, before anything is applied."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from spec_examples import MINIMAL, merged
from typer.testing import CliRunner

from tailhold.main import app

ROOT = Path(__file__).parents[2]


def written(folder: Path, name: str, **change: Any) -> Path:
    head = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "metadata": {"name": name}}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(head | {"spec": merged(copy.deepcopy(MINIMAL), change)}))
    return path


def test_the_example_is_in_order() -> None:
    done = CliRunner().invoke(app, ["validate", str(ROOT / "examples" / "ragpipeline.yaml")])
    assert (done.exit_code, "handbook: in order" in done.output) == (0, True)


def test_every_fault_of_every_file_is_named(tmp_path: Path) -> None:
    good = written(tmp_path, "good")
    wrong = written(tmp_path, "wrong", retrieval={"topK": 0}, engine={"blockSizeTokens": "16"}, retrival={})
    torn = written(tmp_path, "torn", engine={"maxModelTokens": 1000})
    done = CliRunner().invoke(app, ["validate", str(wrong), str(good), str(torn), str(tmp_path / "none.yaml")])
    assert done.exit_code == 1
    assert "good: in order" in done.output
    for word in ("wrong: spec.retrieval.topK", "spec.engine.blockSizeTokens", "spec.retrival", "none.yaml"):
        assert word in done.output
    assert "torn: spec.engine: `maxModelTokens` must be a multiple" in done.output


def test_a_name_that_no_object_may_have_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", str(written(tmp_path, "Hand_Book"))])
    assert (done.exit_code, "metadata.name" in done.output) == (1, True)


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "twice")
    path.write_text(path.read_text() + "  replicas: 1\n  replicas: 2\n")
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert (done.exit_code, "'replicas' is given twice" in done.output) == (1, True)


def test_annotations_that_are_no_text_are_named(tmp_path: Path) -> None:
    for wrong in ("[a]", "{tailhold.dev/rebuild: 2}"):
        path = written(tmp_path, "marks")
        path.write_text(path.read_text().replace("name: marks", f"name: marks\n  annotations: {wrong}", 1))
        done = CliRunner().invoke(app, ["validate", str(path)])
        assert (done.exit_code, "metadata.annotations" in done.output) == (1, True)


def test_standard_input_is_read(tmp_path: Path) -> None:
    good = written(tmp_path, "good").read_text()
    done = CliRunner().invoke(app, ["validate", "-"], input=good)
    assert (done.exit_code, done.output.strip()) == (0, "-: good: in order")
    done = CliRunner().invoke(app, ["validate", "-"], input=good.replace("dimension", "dimensions"))
    assert done.exit_code == 1
    assert "-: good: spec.embedder.dimensions: unknown field, did you mean `dimension`?" in done.output


def test_a_field_one_level_too_high_is_answered_with_its_place(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", str(written(tmp_path, "high", topK=3))])
    assert "high: spec.topK: unknown field here, did you mean `retrieval.topK`?" in done.output


def said(path: Path) -> str:
    """What `validate` has against a file."""
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert (done.exit_code, done.exception.__class__) == (1, SystemExit), done.exception
    return done.output.replace(str(path.parent), "")


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "kind: List\nitems: &a [{kind: List, items: *a}]"])
def test_what_is_nested_without_end_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    assert said(path) == "/deep.yaml: is nested too deeply to be read: no RagPipeline is\n"


def test_a_date_that_there_is_not_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "date.yaml"
    path.write_text("kind: 2026-13-01")
    assert said(path) == "/date.yaml: month must be in 1..12\n"


@pytest.mark.parametrize(
    "wrong",
    [{"archive": {"url": "x", "sha256": "a" * 64}}, {"archive": {"url": "http://a/", "sha256": "x"}}, {"baseUrl": "x"}],
    ids=["url", "sha256", "baseUrl"],
)
def test_a_fault_in_an_entry_is_the_only_one(tmp_path: Path, wrong: dict[str, Any]) -> None:
    (line,) = said(written(tmp_path, "docs", corpus={"sources": [{"name": "a"} | wrong]})).splitlines()
    assert line.startswith("/docs.yaml: docs: spec.corpus.sources[0].")


def test_an_empty_list_is_still_too_short(tmp_path: Path) -> None:
    assert "docs: spec.corpus.sources: tuple should have" in said(written(tmp_path, "docs", corpus={"sources": []}))


def test_a_rule_names_the_entry_and_the_key_at_fault(tmp_path: Path) -> None:
    sources = [{"name": "a", "configMap": {"name": "a"}}, {"name": "b"}]
    arguments = {"max_logprobs": "5", "--seed": "1"}
    labels = {"example.com/a": "1", "tailhold.dev/a": "1", "b a\nd": "1"}
    change = {"corpus": {"sources": sources}, "engine": {"extraArgs": arguments}, "pod": {"labels": labels}}
    text = said(written(tmp_path, "docs", **change))
    assert "docs: spec.corpus.sources[1]: exactly one of" in text
    assert "docs: spec.engine: `extraArgs` must be named" in text
    assert ", got `--seed`\n" in text
    assert ": the operator and Kubernetes set them, got `tailhold.dev/a`\n" in text
    assert "letters, digits, `-`, `_` and `.`\n" in text, "a line that would be broken quotes nothing"


def pipelines(folder: Path, *found: Any) -> Path:
    """A file with a pipeline for each metadata."""
    spec = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "spec": MINIMAL}
    path = folder / "many.yaml"
    path.write_text(yaml.safe_dump_all([spec | {"metadata": each} for each in found]))
    return path


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        pytest.param(
            {"name": "a", "namespace": "Bad NS"}, "a: metadata.namespace is 'Bad NS': give up to 63", id="space"
        ),
        pytest.param({"name": "a", "namespace": "n" * 64}, "a: metadata.namespace is 'nnn", id="long"),
        pytest.param({"name": "a", "namespace": 0}, "a: metadata.namespace is 0: give", id="number"),
        pytest.param({"name": "a..b"}, "metadata.name is 'a..b': give up to 253", id="dots"),
        pytest.param("text", "metadata must be an object with a name, got 'text'", id="text"),
        pytest.param(None, "metadata must be an object with a name, got None", id="null"),
    ],
)
def test_metadata_that_no_object_may_have_is_refused(tmp_path: Path, metadata: Any, words: str) -> None:
    assert said(pipelines(tmp_path, metadata)).startswith(f"/many.yaml: {words}")


def test_a_name_stands_once_for_each_namespace(tmp_path: Path) -> None:
    twice = said(pipelines(tmp_path, {"name": "a"}, {"name": "a", "namespace": "b"}, {"name": "a", "namespace": ""}))
    assert twice == "/many.yaml: a: metadata.name is given 2 times: rename one, or take it out\n"
    twice = said(pipelines(tmp_path, *[{"name": "a", "namespace": "b"}] * 3))
    assert "a: metadata.name is given 3 times in namespace b: rename" in twice


@pytest.mark.parametrize("kind", ["List", "RagPipelineList"])
def test_a_list_is_read_item_by_item(tmp_path: Path, kind: str) -> None:
    good = yaml.safe_load(written(tmp_path, "good").read_text())
    bad = yaml.safe_load(written(tmp_path, "bad", retrieval={"topK": 0}).read_text())
    path = tmp_path / "list.yaml"
    listed = [{"kind": "ConfigMap"}, good, {"kind": "List", "items": [bad]}]
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": kind, "items": listed}))
    assert said(path).startswith("/list.yaml: bad: spec.retrieval.topK: input should be")
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": kind, "items": listed[:2]}))
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert (done.exit_code, "good: in order" in done.output) == (0, True)


@pytest.mark.parametrize(("spec", "got"), [([], "[]"), ("text", "'text'"), (None, "None")])
def test_a_spec_that_is_no_object_is_named_as_it_is_written(tmp_path: Path, spec: Any, got: str) -> None:
    path = written(tmp_path, "docs")
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"spec": spec}))
    assert said(path) == f"/docs.yaml: docs: spec: input should be an object, got {got}\n"


def test_a_huge_value_is_cut_wherever_it_stands(tmp_path: Path) -> None:
    huge = "x" * 100_000
    metadata = {"name": huge, "namespace": huge, "annotations": {"a": [huge]}}
    spec = MINIMAL | {"replicas": huge, huge: 1, "engine": {"extraArgs": {f"-{huge}": "1"}}}
    path = tmp_path / "huge.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": huge, "kind": "RagPipeline", "metadata": metadata, "spec": spec}))
    lines = said(path).splitlines()
    assert len(lines) >= 6
    assert max(map(len, lines)) < 1000
    assert f"spec.replicas: input should be a valid integer, got '{huge[:99]}... (100002 characters)" in "\n".join(
        lines
    )
    path.write_text(f"? {huge}\n: 1\n? {huge}\n: 2\n")
    assert len(said(path)) < 1100
    path.write_text(f"!{huge} a")
    assert len(said(path)) < 1100
    rules_alone = {"spec": MINIMAL | {"engine": {"extraArgs": {f"-{huge}": "1"}}}, "metadata": {"name": "a"}}
    path.write_text(yaml.safe_dump({"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline"} | rules_alone))
    assert len(said(path)) < 1000
