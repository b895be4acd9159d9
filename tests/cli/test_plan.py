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
from tailhold.plan import described, rendered
from tailhold.room import Spared, count_room
from tailhold_api.inspection import EmbedderFacts, GeneratorFacts, Inspection
from tailhold_api.placement import Gpu, Placement
from tailhold_api.room import Amount, Node
from tailhold_api.status import StartPhase, Status


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


def nodes(*gpus: int, whole: int = 2) -> tuple[Node, ...]:
    """Nodes with much of all else."""
    return tuple(Node(Amount(each, 64000, 1 << 20), Amount(whole, 64000, 1 << 20)) for each in gpus)


def test_no_room_is_an_outage_of_the_last_starts_length(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new", engine={"blockSizeTokens": 64})
    engine = StartPhase(name="startEngine", began_milliseconds=0, milliseconds=41000)
    warm_up = StartPhase(name="warmUp", began_milliseconds=41000, milliseconds=1000)
    status = Status(phases=(engine, warm_up))
    said = described(read_manifest(new), read_manifest(old).spec, nodes(0, 0), status, "")
    text = "\n".join(rendered(said))
    assert "an outage from the stop of the old pods until the new ones are ready; the last start took 42 s" in text
    asked = "`placement.gpu.count` 1 of nvidia.com/gpu for each"
    beside = "1 more while old pods run beside new ones; free on its nodes: 0"
    assert f"GPUs that all pods ask Kubernetes for: 1 ({asked}), {beside}\n" in text
    assert "those of a cluster that `tailhold up` started are stand-ins" in text


def test_a_pipeline_without_gpus_says_nothing_of_them(tmp_path: Path) -> None:
    path = written(tmp_path, "new", placement={"gpu": {"count": 0}})
    text = "\n".join(rendered(described(read_manifest(path), None, None, Status(), "")))
    assert "GPU" not in text


def node(name: str, gpus: int, ready: str = "True", **spec: Any) -> dict[str, Any]:
    allocatable = {"nvidia.com/gpu": str(gpus), "cpu": "7500m", "memory": "16384Ki"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "labels": {"pool": name}}, "spec": spec, "status": status}


def pod(on: str, gpus: int, phase: str = "Running", **requests: str) -> dict[str, Any]:
    given = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": requests}
    return {"spec": {"nodeName": on, "containers": [{"resources": given}, {}]}, "status": {"phase": phase}}


def free(*lists: dict[str, Any], placement: Placement, spared: Spared | None = None) -> list[int]:
    found = count_room(*lists, placement, spared) if spared else count_room(*lists, placement)
    return [each.free.gpus for each in found]


def test_room_is_counted_where_pods_may_go() -> None:
    listed = {"items": [node("a", 4), node("b", 4, "False"), node("c", 4, unschedulable=True), node("d", 2)]}
    pods = {"items": [pod("a", 1), pod("a", 1, "Succeeded"), pod("d", 2), {"spec": {"containers": []}}]}
    assert free(listed, pods, placement=Placement()) == [3, 0]
    assert free(listed, pods, placement=Placement(node_selector={"pool": "d"})) == [0]
    assert free(listed, pods, placement=Placement(gpu=Gpu(product="NVIDIA-H200"))) == []


def test_cores_and_memory_are_counted_as_the_scheduler_counts_them() -> None:
    first = {"initContainers": [{"resources": {"requests": {"cpu": "6", "memory": "1Mi"}}}]}
    running = pod("a", 1, cpu="1500m", memory="4Mi")
    running["spec"] |= first
    (found,) = count_room({"items": [node("a", 4)]}, {"items": [running]}, Placement())
    assert found == Node(free=Amount(3, 1500, 12), whole=Amount(4, 7500, 16))


def test_a_candidate_that_the_edit_supersedes_holds_nothing() -> None:
    """The recovery of a failed change is when one trusts the forecast most."""
    labels = {"tailhold.dev/pipeline-uid": "u", "tailhold.dev/pod-part": "bad"}
    candidate = pod("a", 1) | {"metadata": {"labels": labels}}
    stable = pod("a", 1) | {"metadata": {"labels": labels | {"tailhold.dev/pod-part": "good"}}}
    lists = {"items": [node("a", 2)]}, {"items": [candidate, stable]}
    assert free(*lists, placement=Placement()) == [0]
    assert free(*lists, placement=Placement(), spared=Spared("u", "good")) == [1]
    assert free(*lists, placement=Placement(), spared=Spared("other", "good")) == [0]


def test_what_no_node_could_hold_stops_nothing(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new", placement={"gpu": {"count": 4}})
    said = described(read_manifest(new), read_manifest(old).spec, nodes(0, 1), Status(), "")
    assert (said["noNodeCouldHoldOne"], said["outage"]) == (True, "None")
    assert any("no node could hold one" in line for line in said["summary"])


def test_the_memory_is_added_up_from_what_the_operator_found(tmp_path: Path) -> None:
    path = written(tmp_path, "new", placement={"gpu": {"count": 1, "memoryMebibytes": 24576}})
    facts = GeneratorFacts(parameters=8_030_261_248, weight_bytes=16_060_522_496, dtype="bfloat16", context_tokens=1024)
    found = Inspection(digest="0" * 64, models="0" * 64, generator=facts, embedder=EmbedderFacts(dimension=384))
    said = described(read_manifest(path), None, None, Status(), "", found=found)
    text = "\n".join(rendered(said))
    assert "refused when it is applied, and what serves goes on: `engine.maxModelTokens` is 2,048" in text
    assert "15,317 MiB  weights (8,030,261,248 parameters, bfloat16)" in text
    assert json.loads(json.dumps(said))["memory"][0]["limitMebibytes"] == 24576


def test_models_that_nobody_looked_at_yet_are_said_to_be_so(tmp_path: Path) -> None:
    path = written(tmp_path, "new")
    text = "\n".join(rendered(described(read_manifest(path), None, None, Status(), "")))
    assert "added up once its models are inspected" in text


def test_where_nothing_serves_nothing_is_promised(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new", engine={"blockSizeTokens": 64})
    said = described(read_manifest(new), read_manifest(old).spec, nodes(0), Status(), "", live=True)
    assert (said["strategy"], said["outage"]) == (None, "None")
    assert "new pods; none serves yet" in said["summary"]


def test_a_new_rebuild_annotation_builds(tmp_path: Path) -> None:
    old, new = written(tmp_path, "old"), written(tmp_path, "new")
    new.write_text(new.read_text().replace("name: docs", "name: docs\n  annotations: {tailhold.dev/rebuild: again}", 1))
    done = CliRunner().invoke(app, ["plan", "-f", str(new), "--against", str(old), "-o", "json"])
    said = json.loads(done.output)
    assert (said["newIndex"], said["newPods"]) == (True, False)
