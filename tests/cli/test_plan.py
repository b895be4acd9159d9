"""`tailhold plan`, between two files and with what a cluster says."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml
from spec_examples import MINIMAL, merged
from typer.testing import CliRunner

from tailhold.main import app
from tailhold.manifest import read_manifest
from tailhold.plan import Spared, count_free, described, rendered
from tailhold_api.placement import Placement
from tailhold_api.status import Status


def written(folder: Path, file: str, **change: Any) -> Path:
    head = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "metadata": {"name": "docs"}}
    path = folder / file
    path.write_text(yaml.safe_dump(head | {"spec": merged(copy.deepcopy(MINIMAL), change)}))
    return path


def test_a_change_its_class_and_the_way_back_are_said(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new", engine={"blockSizeTokens": 64}, retrieval={"topK": 3})
    done = CliRunner().invoke(app, ["plan", "-f", str(new), "--against", str(old)])
    assert done.exit_code == 0, done.output
    assert "engine.blockSizeTokens: 32 -> 64   [restart] makes new pods" in done.output
    assert "retrieval.topK: 5 -> 3   [live] reaches the running pods" in done.output
    assert "apply the old manifest again" in done.output


def test_programs_read_json(tmp_path: Path) -> None:
    path = written(tmp_path, "same")
    done = CliRunner().invoke(app, ["plan", "-f", str(path), "--against", str(path), "-o", "json"])
    said = json.loads(done.output)
    assert (said["changes"], said["newPods"], said["summary"]) == ([], False, ["nothing changes"])


def test_no_room_is_an_outage_of_the_last_starts_length(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new", engine={"blockSizeTokens": 64})
    status = Status(phases={"startEngine": 41000, "warmUp": 1000})
    said = described(read_manifest(new), read_manifest(old).spec, (0, 0), status, "")
    text = "\n".join(rendered(said))
    assert "an outage from the stop of the old pods until the new ones are ready; the last start took 42 s" in text
    assert "GPUs: 1 in the end, 1 more beside the old pods; free: 0" in text


def node(name: str, gpus: int, ready: str = "True", **spec: Any) -> dict[str, Any]:
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "labels": {"pool": name}}, "spec": spec, "status": status}


def pod(on: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    containers = [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}, {}]
    return {"spec": {"nodeName": on, "containers": containers}, "status": {"phase": phase}}


def test_free_gpus_are_counted_where_pods_may_go() -> None:
    nodes = {"items": [node("a", 4), node("b", 4, "False"), node("c", 4, unschedulable=True), node("d", 2)]}
    pods = {"items": [pod("a", 1), pod("a", 1, "Succeeded"), pod("d", 2), {"spec": {"containers": []}}]}
    assert count_free(nodes, pods, Placement()) == (3, 0)
    assert count_free(nodes, pods, Placement(node_selector={"pool": "d"})) == (0,)


def test_a_candidate_that_the_edit_supersedes_holds_nothing() -> None:
    """The recovery of a failed change is when one trusts the forecast most."""
    labels = {"tailhold.dev/pipeline-uid": "u", "tailhold.dev/pod-part": "bad"}
    candidate = pod("a", 1) | {"metadata": {"labels": labels}}
    stable = pod("a", 1) | {"metadata": {"labels": labels | {"tailhold.dev/pod-part": "good"}}}
    lists = {"items": [node("a", 2)]}, {"items": [candidate, stable]}
    assert count_free(*lists, Placement()) == (0,)
    assert count_free(*lists, Placement(), Spared("u", "good")) == (1,)
    assert count_free(*lists, Placement(), Spared("other", "good")) == (0,)


def test_where_nothing_serves_nothing_is_promised(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new", engine={"blockSizeTokens": 64})
    said = described(read_manifest(new), read_manifest(old).spec, (0,), Status(), "", live=True)
    assert (said["strategy"], said["outage"]) == (None, "None")
    assert "new pods; none serves yet" in said["summary"]


def test_a_new_rebuild_annotation_builds(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new")
    new.write_text(new.read_text().replace("name: docs", "name: docs\n  annotations: {tailhold.dev/rebuild: again}", 1))
    done = CliRunner().invoke(app, ["plan", "-f", str(new), "--against", str(old), "-o", "json"])
    said = json.loads(done.output)
    assert (said["newIndex"], said["newPods"]) == (True, False)
