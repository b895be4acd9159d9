"""What was released: each version's CRD, objects as its API server stored them, and the digests that they gave.

`scripts/keep-release` writes it all for the version at hand; the tests hold every later version to it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from spec_edits import every_field_edit
from spec_examples import MINIMAL, merged
from status_examples import full_status

from tailhold import __version__
from tailhold.profiles import PROFILES, render_profile
from tailhold_api import codec, names
from tailhold_api.crd import custom_resource_definition
from tailhold_api.generate import ROOT
from tailhold_api.parts import build_part, content_part, pod_part
from tailhold_api.spec import Spec

CRDS = ROOT / "crds" / "released"
OBJECTS = ROOT / "tests" / "api" / "released"
SNAPSHOT = "5" * 64
_NOTE = "Kept by scripts/keep-release at the release; never edited."
_COMMIT = "0123456789" * 4
_HUB: dict[str, Any] = {
    "generator": {"model": {"huggingFace": {"repo": "owner/model", "revision": _COMMIT}}},
    "embedder": {"model": {"path": "/models/encoder"}, "dimension": 384},
    "index": {"store": {"claimName": "snapshots"}},
    "corpus": {
        "sources": [
            {"name": "a", "configMap": {"name": "a"}, "include": ["**/*.md"], "exclude": ["b/*"]},
            {"name": "b", "archive": {"url": "https://a.example/b.zip", "sha256": "c" * 64}},
            {"name": "c", "pvc": {"claimName": "c", "path": "d"}, "baseUrl": "https://a.example/"},
        ]
    },
    "engine": {"compile": {"cudaGraphs": {"mode": "Full", "sizes": [1, 2]}}, "tensorParallel": 2},
    "placement": {
        "gpu": {"count": 2},
        "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
    },
    "pod": {
        "env": [{"name": "A", "value": "b"}],
        "spread": [{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}],
    },
}


def versions() -> list[str]:
    """All that were released."""
    return sorted(path.stem for path in CRDS.glob("*.yaml"))


def released_crd(version: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CRDS / f"{version}.yaml").read_text()))


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    return dict(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def stored(version: str) -> dict[str, dict[str, Any]]:
    """RagPipelines by file name, as they lay in etcd."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted((OBJECTS / version).glob("*.yaml"))}


def released_digests(version: str) -> dict[str, dict[str, str]]:
    return dict(json.loads((OBJECTS / version / "digests.json").read_text()))


def digests_of(pipeline: dict[str, Any]) -> dict[str, str]:
    """Of a stored object: what names its Deployment, its index Job and its content."""
    spec = codec.load_lenient(Spec, pipeline["spec"])
    parts = {
        "pod": pod_part(pipeline["metadata"]["name"], spec),
        "build": build_part(spec, "again"),
        "content": content_part(spec, SNAPSHOT),
    }
    return {name: codec.digest(part) for name, part in parts.items()}


def defaulted(schema: dict[str, Any], value: Any) -> Any:
    """As the API server stores it."""
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    out = dict(value)
    for name, child in schema.get("properties", {}).items():
        if name not in out and "default" in child:
            out[name] = child["default"]
        if name in out:
            out[name] = defaulted(child, out[name])
    return out


def _written() -> dict[str, dict[str, Any]]:
    """Specs as users write them."""
    profiles = {name: yaml.safe_load(render_profile(name, name))["spec"] for name in PROFILES}
    return {"minimal": MINIMAL, "complete": every_field_edit(MINIMAL), "hub": _HUB} | profiles


def keep(version: str) -> None:
    """Write the version's CRD, objects and digests."""
    crd, folder = custom_resource_definition(), OBJECTS / version
    folder.mkdir(parents=True, exist_ok=True)
    CRDS.mkdir(exist_ok=True)
    _write(CRDS / f"{version}.yaml", crd)
    for name, spec in _written().items():
        head = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}}
        status = {"status": full_status().model_dump(mode="json", by_alias=True)} if name == "complete" else {}
        _write(folder / f"{name}.yaml", head | {"spec": defaulted(schema_of(crd)["properties"]["spec"], spec)} | status)
    digests = {name: digests_of(each) for name, each in stored(version).items()}
    (folder / "digests.json").write_text(json.dumps(digests, indent=2, sort_keys=True) + "\n")


def _write(path: Path, data: dict[str, Any]) -> None:
    plain = json.loads(json.dumps(merged(data, {})))
    path.write_text(f"# {_NOTE}\n{yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=True)}")


if __name__ == "__main__":
    from released_clusters import keep_cluster

    here = f"v{__version__}"
    if here in versions() and "--again" not in sys.argv:
        sys.exit(f"{here} is kept already: raise the version in cli/tailhold/__init__.py first")
    keep(here)
    keep_cluster(here)
    print(f"kept {here} in {CRDS} and {OBJECTS}")
