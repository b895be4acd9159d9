"""Every `yaml` block of the docs that is a RagPipeline, or a part of its spec, is taken by the schema and its rules."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from spec_examples import MINIMAL, merged

from tailhold.manifest import read_manifest
from tailhold_api import names
from tailhold_api.generate import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def specs(page: Path) -> Iterator[dict[str, Any]]:
    """Whole specs, and parts of one laid over the smallest; other objects are passed over."""
    for document in (each for block in BLOCK.findall(page.read_text()) for each in yaml.safe_load_all(block)):
        if document.get("kind") == names.KIND:
            yield document["spec"]
        elif "kind" not in document:
            yield laid(document.get("spec", document))


def laid(part: dict[str, Any]) -> dict[str, Any]:
    """A source replaces that of the smallest spec, and a given snapshot its corpus."""
    spec = merged(MINIMAL, part)
    for model in ("generator", "embedder"):
        if given := part.get(model, {}).get("model"):
            spec[model]["model"] = given
    if "snapshot" in part.get("index", {}):
        del spec["corpus"], spec["index"]["store"]
    return spec


BLOCKS = [
    pytest.param(spec, id=f"{page.relative_to(ROOT)}-{at}") for page in PAGES for at, spec in enumerate(specs(page))
]


def test_there_are_some() -> None:
    assert len(BLOCKS) >= 10


@pytest.mark.parametrize("spec", BLOCKS)
def test_a_block_is_a_good_spec(tmp_path: Path, spec: dict[str, Any]) -> None:
    head = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "docs"}}
    file = tmp_path / "docs.yaml"
    file.write_text(yaml.safe_dump(head | {"spec": spec}))
    assert read_manifest(file).name == "docs"
