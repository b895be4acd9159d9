"""Help teaches: every command ends with an example that the command itself would take."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tailhold.main import app
from tailhold_api.generate import ROOT


def commands(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Those that do something, by their whole names."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, *before, name)
        else:
            yield (*before, name), each


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_commands_help_has_an_example_that_it_takes(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    said, *examples = (command.epilog or "").split("\n\n")
    assert said == "Example:"
    assert examples
    for each in examples:
        words = shlex.split(each.partition(" > ")[0])
        assert words[: len(path) + 1] == ["tailhold", *path]
        command.make_context(" ".join(path), words[len(path) + 1 :])
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert all(each in shown.output for each in examples)


def test_the_readme_names_every_command_and_no_other() -> None:
    text = (ROOT / "README.md").read_text()
    _, _, part = text.partition("## The command\n")
    rows = [line.split("|")[1] for line in part.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    named = {name.strip() for row in rows for name in row.replace("`", "").split(",")}
    assert named == {" ".join(path) for path in COMMANDS}
