"""Every `bash` block of the docs runs. Blocks marked `console` show what a person does outside a test's reach."""

import re
import subprocess
from pathlib import Path

import pytest

from tailhold.target import Target
from tailhold_api.generate import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```(?:bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(((?!https?:|#)[^)#]+)[^)]*\)")


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


def test_the_readme_opens_with_its_two_commands() -> None:
    assert [block.strip() for block in blocks(ROOT / "README.md")] == ["scripts/demo", "scripts/test"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_with_bare_tailhold_says_how_it_comes_onto_the_path(page: Path) -> None:
    text = page.read_text()
    bare = re.findall(r"^(?:[$#] )?tailhold ", "".join(SHELL.findall(text)), re.MULTILINE)
    assert not bare or re.search(r"^(?:[$#] )?export .*PATH=", text, re.MULTILINE)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "README.md" and blocks(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_shell_blocks_run(page: Path, equipped: Target) -> None:
    script = "set -e\n" + "\n".join(blocks(page))
    env = dict(equipped.env) | {"PATH": f"{ROOT}/.venv/bin:{equipped.env['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
