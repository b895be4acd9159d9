"""`tailhold inspect` by hand: the index that is there is added up."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rag_server import store_snapshot
from spec_examples import MINIMAL, merged
from tests.server.test_inspection import BERT, LLAMA, model

from tailhold.inspection import by_hand
from tailhold_api.codec import digest, load
from tailhold_api.parts import build_part
from tailhold_api.spec import Spec


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With both models."""
    monkeypatch.setenv("TAILHOLD_CACHE", str(tmp_path / "cache"))
    for name in ("CLAIMS", "SECRETS", "FETCHED", "TRUST_BUNDLE"):
        monkeypatch.setenv(f"TAILHOLD_{name}", str(tmp_path / name.lower()))
    model(tmp_path / "claims" / "models" / "smollm2", LLAMA)
    model(tmp_path / "claims" / "models" / "minilm", BERT)
    return tmp_path / "claims"


def written(folder: Path, **change: Any) -> Path:
    head = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "metadata": {"name": "docs"}}
    path = folder / "docs.yaml"
    path.write_text(yaml.safe_dump(head | {"spec": merged(copy.deepcopy(MINIMAL), change)}))
    return path


def told(manifest: Path, claims: Path, capsys: pytest.CaptureFixture[str]) -> str:
    by_hand(manifest, claims)
    return next(line for line in capsys.readouterr().out.splitlines() if "index, twice" in line)


def built(claims: Path, spec: dict[str, Any]) -> str:
    """Two passages, as the index Job of this spec would have left them."""
    name = store_snapshot(claims / "snapshots")
    part = build_part(load(Spec, json.dumps(spec)))
    assert part is not None
    (claims / "snapshots" / "builds").mkdir(exist_ok=True)
    (claims / "snapshots" / "builds" / f"{digest(part)}.json").write_text(json.dumps({"snapshot": name}))
    return name


def test_an_index_that_is_built_is_counted(claims: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(claims)
    assert "0 MiB  index, twice (not built yet" in told(manifest, claims, capsys)
    built(claims, MINIMAL)
    assert "1 MiB  index, twice (Flat of 2 passages x 384" in told(manifest, claims, capsys)
    other = written(claims, corpus={"chunking": {"maxTokens": 64}})
    assert "not built yet" in told(other, claims, capsys), "that is the index of another spec"


def test_one_that_cannot_be_read_is_none(claims: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = built(claims, MINIMAL)
    (claims / "snapshots" / "snapshots" / name / "manifest.json").write_text("{}")
    assert "not built yet" in told(written(claims), claims, capsys)


def test_a_given_snapshot_is_counted(claims: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = store_snapshot(claims / "indexes")
    given = {"source": {"pvc": {"claimName": "indexes", "path": "snapshots"}}, "digest": name}
    manifest = written(claims, index={"snapshot": given})
    body = yaml.safe_load(manifest.read_text())
    del body["spec"]["corpus"], body["spec"]["index"]["store"]
    manifest.write_text(yaml.safe_dump(body))
    assert "Flat of 2 passages" in told(manifest, claims, capsys)
