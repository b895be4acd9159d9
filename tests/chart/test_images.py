"""What goes into an image, and so into its name."""

import shutil
from pathlib import Path

import pytest

from tailhold_local.build_images import RECIPES, ROOT, copied_paths, input_digest

DOCKERFILE = """ARG BASE=debian
FROM ${BASE} AS python
RUN true

FROM python AS dependencies
COPY requirements/cpu.txt /tmp/

FROM python AS code
COPY server /code

FROM python AS small
COPY --from=code /code /code

FROM python
COPY --from=dependencies /site /site
COPY --from=code /code /code
"""


@pytest.mark.parametrize(
    ("target", "paths"),
    [("python", ()), ("small", ("server",)), ("", ("requirements/cpu.txt", "server"))],
)
def test_a_target_is_made_of_what_its_stages_copy(target: str, paths: tuple[str, ...]) -> None:
    assert copied_paths(DOCKERFILE, target) == paths


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for recipe in RECIPES.values():
        shutil.copy(ROOT / recipe.dockerfile, tmp_path)
        for name in copied_paths((ROOT / recipe.dockerfile).read_text(), recipe.target):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("") if path.suffix == ".txt" else path.mkdir(exist_ok=True)
    return tmp_path


def digests(root: Path) -> dict[str, str]:
    return {name: input_digest(recipe, root, "base") for name, recipe in RECIPES.items()}


@pytest.mark.parametrize(
    ("changed", "images"),
    [
        ("operator/tailhold_operator/new.py", {"operator"}),
        ("server/tailhold_server/new.py", {"mounted", "cpu", "gpu"}),
        ("crds/tailhold_api/new.py", {"operator", "mounted", "cpu", "gpu"}),
        ("requirements/operator.txt", {"operator"}),
        ("requirements/server-cpu.txt", {"cpu"}),
        ("Dockerfile.operator", {"operator"}),
        ("crds/tailhold_api/__pycache__/new.cpython-311.pyc", set()),
        ("docs/new.md", set()),
    ],
)
def test_an_image_is_renamed_when_its_inputs_change(checkout: Path, changed: str, images: set[str]) -> None:
    before = digests(checkout)
    path = checkout / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed" if not path.exists() else path.read_text() + "\n")
    after = digests(checkout)
    assert {name for name in RECIPES if before[name] != after[name]} == images


def test_a_renamed_file_and_another_base_give_another_name(checkout: Path) -> None:
    recipe, file = RECIPES["operator"], checkout / "crds/tailhold_api/a.py"
    file.write_text("x = 1\n")
    before = input_digest(recipe, checkout, "base")
    file.rename(file.with_name("b.py"))
    assert input_digest(recipe, checkout, "base") != before
    assert input_digest(recipe, checkout, "base") != input_digest(recipe, checkout, "other")


def test_the_images_run_as_any_user_with_a_read_only_root() -> None:
    for name in ("Dockerfile.operator", "Dockerfile.server"):
        text = (ROOT / name).read_text()
        assert text.count("\nUSER 10001:0\n") == {"Dockerfile.operator": 1, "Dockerfile.server": 3}[name]
        assert "PIP_CERT" not in text, "what this machine needs is passed to the build, never written there"
        for variable in ("HOME", "TMPDIR"):
            assert f"{variable}=/var/cache/tailhold" in text


def test_the_servers_caches_lie_in_the_one_writable_folder() -> None:
    text = (ROOT / "Dockerfile.server").read_text()
    others = ("HF_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT")
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", *others):
        assert f"{variable}=/var/cache/tailhold" in text


def test_only_what_is_copied_reaches_the_build() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    for recipe in RECIPES.values():
        for path in copied_paths((ROOT / recipe.dockerfile).read_text(), recipe.target):
            assert any(path == name or path.startswith(f"{name}/") for name in allowed), path
