"""`tailhold new`: every profile is in order as it is printed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailhold.main import app
from tailhold.manifest import read_manifest
from tailhold.profiles import PROFILES


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_in_order_and_explains_itself(profile: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", profile, "--name", "legal"])
    path = tmp_path / "legal.yaml"
    path.write_text(done.output)
    assert read_manifest(path).name == "legal"
    assert done.output.startswith("# ")
    assert "NAME" not in done.output


def test_a_profile_that_there_is_not_names_those_that_there_are() -> None:
    done = CliRunner().invoke(app, ["new", "tpu"])
    assert done.exit_code == 2
    assert "pinned-low-latency" in done.output


@pytest.mark.parametrize("name", ["BAD_NAME", "", "n" * 300, "a..b", "-a", "a b"])
def test_a_name_that_no_object_may_have_is_refused_with_the_grammar(name: str) -> None:
    done = CliRunner().invoke(app, ["new", "cpu", "--name", name], env={"COLUMNS": "1000"})
    assert done.exit_code == 2
    assert "give up to 253 lower-case letters, digits" in done.output


@pytest.mark.parametrize("name", ["7", "2026-01-01", "no", "null", "1e3", "a.b", "n" * 253])
def test_a_name_is_text_whatever_yaml_takes_it_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / "named.yaml"
    path.write_text(CliRunner().invoke(app, ["new", "cpu", "--name", name]).output)
    assert read_manifest(path).name == name
