"""`tailhold validate`: every fault of every file, before anything is applied."""

import copy
from pathlib import Path
from typing import Any

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
