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


def refused(folder: Path, text: str) -> str:
    path = folder / "given.yaml"
    path.write_text(text)
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert done.exit_code == 1, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.output


HEAD = "apiVersion: tailhold.dev/v1alpha1\nkind: RagPipeline\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("[" * 5000 + "]" * 5000, "nested too deeply", id="deep"),
        pytest.param(HEAD + "metadata: docs\nspec: {}\n", "metadata is 'docs': give an object", id="metadata"),
        pytest.param(HEAD + "metadata: {name: a, namespace: Bad NS}\nspec: {}\n", "metadata.namespace", id="namespace"),
        pytest.param(HEAD + "metadata: {name: a}\nspec: [1]\n", "a: spec: input should be an object", id="list"),
        pytest.param(HEAD + "metadata: {name: a}\nspec: text\n", "a: spec: input should be an object", id="text"),
    ],
)
def test_odd_files_are_named_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


def test_a_list_is_read_as_kubectl_reads_it(tmp_path: Path) -> None:
    one, other = (yaml.safe_load(written(tmp_path, name).read_text()) for name in ("one", "other"))
    path = tmp_path / "list.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [one, other]}))
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert (done.exit_code, "one, other: in order" in done.output) == (0, True)
    path.write_text(yaml.safe_dump_all([one, one]))
    assert "one stands in it more than once" in refused(tmp_path, path.read_text())


def test_a_huge_value_is_cut_and_its_length_said(tmp_path: Path) -> None:
    said = refused(tmp_path, written(tmp_path, "huge", generator={"servedName": "x" * 100_000}).read_text())
    assert len(said) < 1000
    assert "(100,002 characters)" in said


def test_a_wrong_entry_of_a_list_is_one_fault_with_its_place(tmp_path: Path) -> None:
    archive = {"name": "a", "archive": {"url": "ftp://x", "sha256": "0" * 64}}
    said = refused(tmp_path, written(tmp_path, "bad", corpus={"sources": [archive]}).read_text())
    assert "spec.corpus.sources[0].archive.url" in said
    assert "at least 1 item" not in said
    none = refused(tmp_path, written(tmp_path, "none", corpus={"sources": [{"name": "a"}]}).read_text())
    assert "spec.corpus.sources[0]: exactly one of" in none


@pytest.mark.parametrize("path", ["../etc", "a/../../b", "a\0b", "/abs", "a\nb", ""])
def test_a_folder_leads_nowhere_else(tmp_path: Path, path: str) -> None:
    source = {"name": "a", "pvc": {"claimName": "documents", "path": path}}
    assert "pvc.path" in refused(tmp_path, written(tmp_path, "bad", corpus={"sources": [source]}).read_text())


@pytest.mark.parametrize("path", [".", "a", "a/b", "My Documents/2026", ".hidden/x", "a/", "..c", "ü/日本"])
def test_usual_folders_are_taken(tmp_path: Path, path: str) -> None:
    source = {"name": "a", "pvc": {"claimName": "documents", "path": path}}
    done = CliRunner().invoke(app, ["validate", str(written(tmp_path, "good", corpus={"sources": [source]}))])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", ["BAD_NAME", "", "x" * 300, "a\nb"])
def test_new_takes_no_name_that_cannot_be(name: str) -> None:
    done = CliRunner().invoke(app, ["new", "cpu", "--name", name])
    assert done.exit_code == 2
    assert "cannot be a name" in done.output
