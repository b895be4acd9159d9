"""One pipeline through its life, in a cluster in memory. Case ids are those of the collected traps."""

import copy
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from worlds import KEY, NAME, NAMESPACE, SETUP, Stage, spec

from tailhold_api import names
from tailhold_api.parts import ContentPart
from tailhold_operator.conditions import stamp
from tailhold_operator.errors import RefusedError
from tailhold_operator.kinds import Manifest, Ref, label_of, ref_of, uid_of
from tailhold_operator.observe import Pod
from tailhold_operator.testing import Fate

OTHER_ENGINE = {"engine": {"blockSizeTokens": 64}}
THIRD_ENGINE = {"engine": {"blockSizeTokens": 128}}


@pytest.fixture
def served() -> Stage:
    """A pipeline that serves."""
    stage = Stage()
    stage.put(spec())
    stage.settle()
    return stage


def only(stage: Stage, part: str, fate: Fate) -> None:
    """Let pods of one pod part fare badly."""
    label = names.LABEL_POD_PART
    stage.controllers.fate = lambda owner: fate if owner["metadata"]["labels"].get(label) == part else Fate()


def except_for(stage: Stage, part: str, fate: Fate) -> None:
    """Let servers of all other pod parts fare badly."""
    label = names.LABEL_POD_PART
    stage.controllers.fate = lambda owner: Fate() if owner["metadata"]["labels"].get(label) in (part, None) else fate


def test_a_pipeline_becomes_ready(served: Stage) -> None:
    assert served.condition("Ready") == ("True", "Reconciled")
    assert {
        kind: served.condition(kind)[0] for kind in ("Accepted", "IndexLoaded", "ModelLoaded", "Available", "RolledOut")
    } == dict.fromkeys(("Accepted", "IndexLoaded", "ModelLoaded", "Available", "RolledOut"), "True")
    status = served.status()
    assert (status["replicasText"], status["url"]) == ("2/2", "http://handbook.team.svc/v1")
    assert not served.described("Reconciling")
    assert not served.described("Stalled")


def test_a_second_look_writes_nothing(served: Stage) -> None:
    """C15."""
    before = len(served.cluster.writes)
    for _ in range(3):
        served.clock.pass_by(seconds=300)
        assert served.step() is None
    assert served.cluster.writes[before:] == []


def test_what_a_user_does_not_understand_is_named_and_nothing_is_touched(served: Stage) -> None:
    """C09: a bad spec and then a good one leave no trace of the bad one."""
    before = served.children()
    served.put(spec(retrieval={"topK": 1000}))
    served.run(seconds=30)
    message = served.described("Accepted")["message"]
    assert served.condition("Accepted") == ("False", "InvalidSpec")
    assert all(word in message for word in ("spec.retrieval.topK", "100", "1000"))
    assert served.condition("Available")[0] == "True"
    assert served.described("Stalled")["status"] == "True"
    assert served.children() == before
    served.put(spec(retrieval={"topK": 7}))
    served.settle()
    assert served.condition("Ready") == ("True", "Reconciled")
    assert not served.described("Stalled")


def test_a_spec_that_was_never_good_makes_nothing() -> None:
    stage = Stage()
    stage.put({"replicas": 1})
    stage.run(seconds=10)
    assert stage.condition("Accepted") == ("False", "InvalidSpec")
    assert stage.children() == {}


def test_paused_changes_nothing_and_says_so(served: Stage) -> None:
    before = served.children()
    served.put(spec(paused=True, **OTHER_ENGINE))
    served.run(seconds=30)
    assert served.children() == before
    assert served.condition("RolledOut") == ("False", "Paused")
    assert served.condition("Available")[0] == "True"
    assert not served.described("Stalled")


def test_what_is_paused_from_the_first_says_nothing_else() -> None:
    stage = Stage()
    stage.put(spec(paused=True))
    stage.run(seconds=30)
    assert stage.cluster.of_kind("Job") == []
    assert {kind: stage.condition(kind)[1] for kind in ("Ready", "IndexLoaded", "ModelLoaded", "RolledOut")} == (
        dict.fromkeys(("Ready", "IndexLoaded", "ModelLoaded", "RolledOut"), "Paused")
    )


def test_what_is_paused_and_has_nothing_to_do_stays_ready(served: Stage) -> None:
    served.put(spec(paused=True))
    before = len(served.cluster.writes)
    served.settle()
    assert served.condition("Ready") == ("True", "Reconciled")
    assert {write.partition(" ")[0] for write in served.cluster.writes[before:]} == {"status"}


class TestIndex:
    def test_progress_is_shown_while_the_job_runs(self) -> None:
        stage = Stage()
        stage.controllers.builds = False
        stage.put(spec())
        stage.run(seconds=20)
        assert stage.condition("IndexLoaded") == ("False", "BuildingIndex")
        assert stage.status()["progress"] == {"step": "embed", "done": 1, "total": 2, "unit": "documents"}
        assert stage.deployments() == {}

    def test_a_failed_build_says_why_and_is_not_tried_again(self, served: Stage) -> None:
        before, snapshot = served.served(), served.status()["snapshot"]["digest"]
        failed = Fate(exit_code=2, ending={"reason": "EmptyIndex", "message": "no chunk in 3 documents"})
        served.controllers.fate = lambda owner: failed if owner["kind"] == "Job" else Fate()
        served.put(spec(corpus={"sources": [{"name": "handbook", "pvc": {"claimName": "empty"}}]}))
        served.run(seconds=30)
        jobs = {ref for ref in served.cluster.objects if ref.kind == "Job"}
        served.clock.pass_by(days=1)
        served.run(seconds=60)
        assert served.condition("IndexLoaded") == ("False", "EmptyIndex")
        assert served.described("Stalled")["message"] == "no chunk in 3 documents"
        assert (served.condition("Available")[0], served.served()) == ("True", before)
        assert served.status()["stable"]["snapshot"] == snapshot
        assert {ref for ref in served.cluster.objects if ref.kind == "Job"} == jobs

    def test_the_rebuild_annotation_builds_again(self, served: Stage) -> None:
        jobs = len(served.cluster.of_kind("Job"))
        served.controllers.result = {**served.controllers.result, "snapshot": "6" * 64}
        served.put(spec(), annotations={names.ANNOTATION_REBUILD: "again"})
        served.settle()
        assert len(served.cluster.of_kind("Job")) == jobs + 1
        assert served.status()["stable"]["snapshot"] == "6" * 64
        assert "lastChange" not in served.status()

    def test_a_new_corpus_restarts_no_pod(self, served: Stage) -> None:
        pods = {pod["metadata"]["uid"] for pod in served.cluster.of_kind("Pod")}
        served.controllers.result = {**served.controllers.result, "snapshot": "6" * 64}
        served.put(spec(corpus={"sources": [{"name": "handbook", "pvc": {"claimName": "more"}}]}))
        served.settle()
        servers = {uid for uid in pods if uid in served.pods.content}
        assert servers <= {pod["metadata"]["uid"] for pod in served.cluster.of_kind("Pod")}
        assert served.status()["stable"]["snapshot"] == "6" * 64
        assert {content.snapshot for content in served.pods.content.values()} == {"6" * 64}

    def test_a_build_is_told_what_it_must_not_delete(self, served: Stage) -> None:
        """I5: a rollback needs its snapshot."""
        snapshot = served.status()["stable"]["snapshot"]
        served.put(spec(), annotations={names.ANNOTATION_REBUILD: "again"})
        served.step()
        job = max(served.cluster.of_kind("Job"), key=lambda each: int(each["metadata"]["resourceVersion"]))
        env = {each["name"]: each["value"] for each in job["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert env["TAILHOLD_PINNED_SNAPSHOTS"] == snapshot
        assert env["TAILHOLD_KEEP_SNAPSHOTS"] == "3"

    def test_a_build_that_nobody_waits_for_any_more_is_stopped(self, served: Stage) -> None:
        """Its Job would hold CPU and memory, and its snapshot would be asked for by nobody."""
        served.controllers.builds = False
        for claim in ("first", "second"):
            served.put(spec(corpus={"sources": [{"name": "handbook", "pvc": {"claimName": claim}}]}))
            served.run(seconds=20)
        running = [each for each in served.cluster.of_kind("Job") if not (each.get("status") or {}).get("conditions")]
        assert len(running) == 1
        served.controllers.builds = True
        served.settle()
        assert served.condition("Ready")[0] == "True"

    def test_what_a_build_is_given_is_no_reason_to_build(self, served: Stage) -> None:
        before = served.children()
        index = {"keepSnapshots": 9, "buildMemoryMebibytes": 8192, "buildMillicores": 2000}
        served.put(spec(index={"store": {"claimName": "snapshots"}, **index}))
        served.settle()
        assert served.children().keys() == before.keys()

    def test_old_jobs_go_beyond_two(self, served: Stage) -> None:
        for at in range(4):
            served.put(spec(), annotations={names.ANNOTATION_REBUILD: str(at)})
            served.settle()
        assert len(served.cluster.of_kind("Job")) == 2
        builds = [ref for ref in served.cluster.objects if "-build-" in ref.name]
        assert len(builds) == 2

    def test_a_lost_result_is_built_again(self) -> None:
        """The Job ended while nobody looked, and its pod is gone."""
        stage = Stage()
        stage.put(spec())
        stage.step()
        stage.controllers.run()
        for pod in list(stage.cluster.of_kind("Pod")):
            stage.cluster.drop(Ref("Pod", NAMESPACE, pod["metadata"]["name"]))
        stage.settle()
        assert stage.condition("Ready")[0] == "True"


class TestContent:
    def test_a_live_change_reaches_every_pod_and_restarts_none(self, served: Stage) -> None:
        before = {pod["metadata"]["uid"] for pod in served.cluster.of_kind("Pod")}
        served.put(spec(retrieval={"topK": 9}))
        served.settle()
        assert {pod["metadata"]["uid"] for pod in served.cluster.of_kind("Pod")} == before
        assert {each.retrieval.top_k for each in served.pods.content.values()} == {9}
        assert served.status()["lastChange"] == [{"path": "retrieval.topK", "class": "live"}]
        assert served.condition("Ready")[0] == "True"
        assert len(served.deployments()) == 1

    def test_one_pod_takes_it_before_the_others(self, served: Stage) -> None:
        served.put(spec(retrieval={"topK": 9}))
        served.step()
        assert len(served.pods.pushed) == 1
        assert "Content" in served.condition("RolledOut")[1]

    def test_a_refused_content_is_taken_back(self, served: Stage) -> None:
        def refuses(pod: Pod, content: ContentPart) -> str:
            return "no such template" if content.retrieval.top_k == 9 else ""

        served.pods.refuses = refuses
        served.put(spec(retrieval={"topK": 9}))
        served.run(seconds=60)
        assert served.condition("RolledOut") == ("False", "ContentRefused")
        assert "no such template" in served.described("RolledOut")["message"]
        assert served.condition("Available")[0] == "True"
        assert {each.retrieval.top_k for each in served.pods.content.values()} == {5}
        served.put(spec(retrieval={"topK": 8}))
        served.settle()
        assert {each.retrieval.top_k for each in served.pods.content.values()} == {8}
        assert served.condition("Ready")[0] == "True"

    def test_what_the_second_pod_refuses_the_first_gives_back(self, served: Stage) -> None:
        served.pods.refuses = lambda pod, content: (
            "no" if pod.name.endswith("-1") and content.retrieval.top_k == 9 else ""
        )
        served.put(spec(retrieval={"topK": 9}))
        served.run(seconds=60)
        assert served.condition("RolledOut") == ("False", "ContentRefused")
        assert {each.retrieval.top_k for each in served.pods.content.values()} == {5}
        part = served.served()
        assert '"topK":9' not in served.child("ConfigMap", part, "content")["data"]["content.json"]

    def test_a_pod_that_started_with_the_old_file_is_brought_up(self, served: Stage) -> None:
        """Kubelet hands out a changed ConfigMap late; what a pod says it runs is compared at each look."""
        served.put(spec(retrieval={"topK": 9}))
        served.settle()
        uid, content = next(iter(served.pods.content.items()))
        served.pods.content[uid] = content.model_copy(
            update={"retrieval": content.retrieval.model_copy(update={"top_k": 5})}
        )
        served.settle()
        assert {each.retrieval.top_k for each in served.pods.content.values()} == {9}

    def test_a_pod_that_does_not_answer_stops_nobody_for_ever(self, served: Stage) -> None:
        served.pods.deaf = {pod["metadata"]["name"] for pod in served.cluster.of_kind("Pod")}
        served.put(spec(retrieval={"topK": 9}))
        served.run(seconds=30)
        served.pods.deaf = set()
        served.settle()
        assert {each.retrieval.top_k for each in served.pods.content.values()} == {9}


class TestRollout:
    def test_new_pods_take_over_and_the_old_ones_go(self, served: Stage) -> None:
        old = served.served()
        served.put(spec(**OTHER_ENGINE))
        served.settle()
        assert served.served() != old
        assert served.deployments() == {served.served(): 2}
        assert served.condition("Ready")[0] == "True"
        assert served.status()["ended"][0]["reason"] == "Replaced"
        assert "candidate" not in served.status()

    def test_the_service_turns_only_to_pods_that_are_ready(self, served: Stage) -> None:
        old = served.served()
        except_for(served, old, Fate(ready=False))
        served.put(spec(**OTHER_ENGINE))
        served.run(seconds=60)
        assert (served.served(), served.deployments()[old]) == (old, 2)
        assert served.status()["candidate"]["readyReplicas"] == 0
        assert served.condition("ModelLoaded") == ("False", "LoadingModel")

    def test_ready_is_not_enough_they_have_to_say_what_they_run(self, served: Stage) -> None:
        old = served.served()
        served.put(spec(**OTHER_ENGINE))
        served.step()
        served.controllers.run()
        served.pods.deaf = {pod["metadata"]["name"] for pod in served.cluster.of_kind("Pod")}
        served.run(seconds=60)
        assert served.served() == old

    def test_a_model_that_is_not_there_never_touches_what_serves(self, served: Stage) -> None:
        old = served.served()
        told = {"reason": "ModelNotFound", "message": "/var/lib/tailhold/claims/models/big is not there"}
        except_for(served, old, Fate(ready=False, waiting="CrashLoopBackOff", exit_code=2, ending=told, restarts=4))
        served.put(spec(generator={"model": {"pvc": {"claimName": "models", "path": "big"}}}))
        served.run(seconds=120)
        assert served.condition("ModelLoaded") == ("False", "ModelNotFound")
        assert served.condition("IndexLoaded") == ("False", "WaitingForPods")
        warned = {each["reason"] for each in served.cluster.of_kind("Event") if each["type"] == "Warning"}
        assert warned == {"RevisionFailed"}
        assert served.condition("Ready") == ("False", "ModelNotFound")
        assert served.condition("RolledOut") == ("False", "ModelNotFound")
        assert "models/big" in served.described("Ready")["message"]
        assert served.condition("Available")[0] == "True"
        assert (served.served(), served.deployments()[old]) == (old, 2)

    def test_the_old_spec_ends_the_candidate(self, served: Stage) -> None:
        """C27: C takes the place of B, and A again ends it all."""
        old = served.served()
        except_for(served, old, Fate(ready=False))
        served.put(spec(**OTHER_ENGINE))
        served.run(seconds=20)
        (second,) = set(served.deployments()) - {old}
        served.put(spec(**THIRD_ENGINE))
        served.run(seconds=20)
        (third,) = set(served.deployments()) - {old}
        assert third != second
        served.put(spec())
        served.settle()
        assert served.deployments() == {old: 2}
        assert served.condition("Ready")[0] == "True"
        assert [each["reason"] for each in served.status()["ended"]] == ["Superseded", "Superseded"]

    def test_a_revision_that_was_too_late_is_given_up_and_may_be_tried_again(self, served: Stage) -> None:
        old = served.served()
        late = spec(**OTHER_ENGINE, rollout={"deadlineSeconds": 60})
        except_for(served, old, Fate(ready=False))
        served.put(late)
        served.run(seconds=120)
        assert served.condition("RolledOut") == ("False", "DeadlineExceeded")
        assert served.deployments() == {old: 2}
        served.run(seconds=120)
        assert served.deployments() == {old: 2}
        served.put(spec())
        served.settle()
        served.controllers.fate = lambda owner: Fate()
        served.put(late)
        served.settle()
        assert served.condition("Ready")[0] == "True"
        assert served.served() != old

    def test_a_fix_gets_out_though_what_it_fixes_is_broken(self) -> None:
        """C31: nothing ever served; the corrected spec goes straight out."""
        stage = Stage()
        stage.controllers.fate = lambda owner: Fate(
            ready=owner["kind"] == "Job", waiting="" if owner["kind"] == "Job" else "CrashLoopBackOff"
        )
        stage.put(spec())
        stage.run(seconds=60)
        broken = stage.served()
        assert stage.condition("Available")[0] == "False"
        stage.controllers.fate = lambda owner: Fate()
        only(stage, broken, Fate(ready=False))
        stage.put(spec(**OTHER_ENGINE))
        stage.settle()
        assert stage.condition("Ready")[0] == "True"
        assert stage.deployments() == {stage.served(): 2}

    def test_what_serves_and_broke_later_stops_no_fix(self, served: Stage) -> None:
        """C31: it served once, and its pods are down now."""
        only(served, served.served(), Fate(ready=False, waiting="CrashLoopBackOff", restarts=9))
        served.controllers.run()
        served.put(spec(**OTHER_ENGINE))
        served.settle()
        assert served.condition("Ready")[0] == "True"

    def test_a_rollback_brings_back_the_old_image(self, served: Stage) -> None:
        """C23, and an operator upgrade in between: what a revision ran on is what it runs on again."""
        image = served.status()["stable"]["image"]
        served.setup = replace(SETUP, image="registry.example/tailhold/server:2")
        served.put(spec(**OTHER_ENGINE))
        served.settle()
        assert served.status()["stable"]["image"] == "registry.example/tailhold/server:2"
        served.put(spec())
        served.settle()
        assert served.status()["stable"]["image"] == image
        container = served.child("Deployment", served.served())["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == image

    def test_an_operator_upgrade_alone_writes_nothing_to_a_deployment(self, served: Stage) -> None:
        before = served.children()
        served.setup = replace(SETUP, image="registry.example/tailhold/server:2", pull_policy="Always")
        served.settle()
        assert served.children() == before

    def test_the_history_keeps_what_a_rollback_needs_and_no_more(self, served: Stage) -> None:
        for size in (32, 48, 64, 80):
            served.put(spec(engine={"blockSizeTokens": size, "maxModelTokens": 9600}, rollout={"history": 2}))
            served.settle()
        kept = [each for each in served.cluster.of_kind("ConfigMap") if "-pod-" in each["metadata"]["name"]]
        assert len(kept) == 3


class TestRoom:
    NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."

    def full(self, served: Stage, old: str, room: int) -> None:
        """A node with room for so many pods in all: who was there first stays."""

        def fate(owner: Manifest) -> Fate:
            part = owner["metadata"]["labels"].get(names.LABEL_POD_PART)
            taken = served.deployments().get(old, 0)
            return Fate() if part in (old, None) or taken < room else Fate(ready=False, unschedulable=self.NO_GPU)

        served.controllers.fate = fate

    def test_without_room_the_old_pods_make_some(self, served: Stage) -> None:
        """C24: one GPU node; surge waits for what only the old pod holds."""
        served.put(spec(replicas=1))
        served.settle()
        old = served.served()
        self.full(served, old, room=1)
        served.put(spec(replicas=1, **OTHER_ENGINE))
        served.run(seconds=10)
        assert served.condition("RolledOut")[1] in ("Draining", "RollingOut")
        assert "Insufficient nvidia.com/gpu" in served.described("ModelLoaded")["message"]
        served.settle()
        assert served.condition("Ready")[0] == "True"
        assert served.served() != old

    @pytest.mark.parametrize("seconds", [3, 9])
    def test_room_that_a_given_up_candidate_leaves_is_waited_for(self, served: Stage, seconds: int) -> None:
        """The failed one held the last spare GPU; the scheduler gives it to its successor a little later."""
        old = served.served()
        told = {"reason": "ModelNotFound", "message": "no such folder"}
        except_for(served, old, Fate(ready=False, waiting="CrashLoopBackOff", exit_code=2, ending=told, restarts=4))
        served.put(spec(**OTHER_ENGINE))
        served.run(seconds=30)
        until = served.clock.now + timedelta(seconds=seconds)

        def scheduled(owner: Manifest) -> Fate:
            part = owner["metadata"]["labels"].get(names.LABEL_POD_PART)
            full = part not in (old, None) and served.clock.now < until
            return Fate(ready=False, unschedulable=self.NO_GPU) if full else Fate()

        served.controllers.fate = scheduled
        served.put(spec(**THIRD_ENGINE))
        fewest = 2
        while served.served() == old:
            served.run(seconds=1)
            fewest = min(fewest, served.deployments()[old])
        assert fewest == 2
        served.settle()
        assert served.condition("Ready")[0] == "True"

    def test_draining_what_serves_is_told(self, served: Stage) -> None:
        old = served.served()
        self.full(served, old, room=2)
        served.put(spec(**OTHER_ENGINE))
        served.settle()
        (told,) = [each for each in served.cluster.of_kind("Event") if each["reason"] == "Draining"]
        assert told["type"] == "Warning"
        assert "serving pods make room" in told["message"]

    NEVER = NO_GPU + " preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."

    def test_nothing_is_drained_for_what_no_node_could_hold(self, served: Stage) -> None:
        """Four GPUs asked of nodes with two: stopping what serves would make no room."""
        old = served.served()
        except_for(served, old, Fate(ready=False, unschedulable=self.NEVER))
        served.put(spec(**OTHER_ENGINE))
        served.run(seconds=300)
        assert served.deployments()[old] == 2
        assert served.condition("Available")[0] == "True"
        assert "no node could hold it" in served.described("RolledOut")["message"]

    def test_a_job_that_is_stopping_is_waited_for_too(self, served: Stage) -> None:
        """An edit in the middle of a build: its Job is taken away, and holds its cores for a moment."""
        old = served.served()
        served.put(spec(**OTHER_ENGINE))
        except_for(served, old, Fate(ready=False, unschedulable=self.NO_GPU))
        job = served.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "job",
                    "namespace": NAMESPACE,
                    "labels": {
                        names.LABEL_PIPELINE_UID: served.cluster.objects[KEY]["metadata"]["uid"],
                        names.LABEL_BUILD: "0123456789",
                    },
                },
                "spec": {"nodeName": "node"},
                "status": {"phase": "Running"},
            }
        )
        job["metadata"]["deletionTimestamp"] = stamp(served.clock.now + timedelta(seconds=30))
        served.run(seconds=20)
        assert served.deployments()[old] == 2
        served.cluster.drop(ref_of(job))
        served.run(seconds=60)
        assert served.deployments().get(old, 0) < 2

    def test_what_the_api_server_refuses_gives_the_room_back(self, served: Stage) -> None:
        """Drained for a candidate, and then one that can never be made: what served has to come back."""
        old = served.served()
        except_for(served, old, Fate(ready=False, unschedulable=self.NO_GPU))
        served.put(spec(**OTHER_ENGINE))
        served.run(seconds=40)
        assert served.deployments()[old] < 2
        apply = served.cluster.apply

        async def refuse(manifest: Manifest, uid: str) -> None:
            if manifest["kind"] == "Deployment" and not uid:
                raise RefusedError("spec.template.spec.nodeSelector: invalid")
            await apply(manifest, uid)

        served.cluster.apply = refuse  # type: ignore[method-assign]
        served.put(spec(**THIRD_ENGINE))
        served.run(seconds=60)
        assert served.deployments() == {old: 2}
        assert served.condition("Available")[0] == "True"
        assert served.condition("RolledOut") == ("False", "ApplyRefused")

    def test_surge_alone_never_drains_what_serves(self, served: Stage) -> None:
        old = served.served()
        self.full(served, old, room=2)
        served.put(spec(rollout={"strategy": "Surge"}, **OTHER_ENGINE))
        served.run(seconds=300)
        assert served.deployments()[old] == 2
        assert served.condition("ModelLoaded") == ("False", "InsufficientGPU")
        served.put(spec())
        served.settle()
        assert served.condition("Ready")[0] == "True"

    def test_drain_first_waits_until_the_old_pods_are_gone(self, served: Stage) -> None:
        old = served.served()
        served.put(spec(rollout={"strategy": "DrainFirst"}, **OTHER_ENGINE))
        served.step()
        assert served.deployments() == {old: 0}
        assert served.described("RolledOut")["reason"] == "Draining"
        served.settle()
        assert served.condition("Ready")[0] == "True"

    def test_a_candidate_that_fails_in_the_old_ones_place_gives_it_back(self, served: Stage) -> None:
        old = served.served()
        told = {"reason": "StartFailed", "message": "the engine does not start"}
        except_for(served, old, Fate(ready=False, waiting="CrashLoopBackOff", exit_code=2, ending=told))
        served.put(spec(rollout={"strategy": "DrainFirst"}, **OTHER_ENGINE))
        served.run(seconds=120)
        assert served.deployments() == {old: 2}
        assert served.condition("RolledOut") == ("False", "StartFailed")
        assert served.condition("Available")[0] == "True"

    def test_room_that_was_made_is_kept_for_the_next_candidate(self, served: Stage) -> None:
        """C27: B is corrected to C while the old pods are stopped; they are not started in between."""
        old = served.served()
        except_for(served, old, Fate(ready=False))
        served.put(spec(rollout={"strategy": "DrainFirst"}, **OTHER_ENGINE))
        served.run(seconds=30)
        assert served.deployments()[old] == 0
        served.controllers.fate = lambda owner: Fate()
        served.put(spec(rollout={"strategy": "DrainFirst"}, **THIRD_ENGINE))
        served.step()
        assert served.deployments()[old] == 0
        served.settle()
        assert served.condition("Ready")[0] == "True"

    def test_the_old_spec_again_brings_drained_pods_back(self, served: Stage) -> None:
        """C24, C27."""
        old = served.served()
        except_for(served, old, Fate(ready=False))
        served.put(spec(rollout={"strategy": "DrainFirst"}, **OTHER_ENGINE))
        served.run(seconds=30)
        served.put(spec(rollout={"strategy": "DrainFirst"}))
        served.settle()
        assert served.deployments() == {old: 2}
        assert served.condition("Ready")[0] == "True"

    def test_room_that_never_comes_gives_the_old_pods_back(self, served: Stage) -> None:
        old = served.served()
        except_for(served, old, Fate(ready=False, unschedulable=self.NO_GPU))
        served.put(spec(**OTHER_ENGINE))
        served.run(seconds=400)
        assert served.deployments() == {old: 2}
        assert served.condition("RolledOut") == ("False", "InsufficientGPU")


class TestReplicas:
    def test_scaling_is_no_revision(self, served: Stage) -> None:
        before = served.status()["stable"]["name"]
        served.put(spec(replicas=3))
        served.settle()
        assert served.status()["stable"]["name"] == before
        assert served.status()["replicasText"] == "3/3"
        assert served.condition("Ready")[0] == "True"

    def test_none_is_a_number_too(self, served: Stage) -> None:
        served.put(spec(replicas=0))
        served.settle()
        assert served.condition("Available") == ("False", "NoReplicas")
        assert served.condition("Ready") == ("True", "NoReplicas")
        assert not served.described("Reconciling")
        assert served.deployments() == {served.served(): 0}
        served.put(spec(replicas=0, **OTHER_ENGINE))
        served.settle()
        served.put(spec(replicas=1, **OTHER_ENGINE))
        served.settle()
        assert served.condition("Ready")[0] == "True"


class TestNeighbours:
    @pytest.mark.parametrize("kind", ["Service", "ServiceAccount", "PodDisruptionBudget", "ConfigMap"])
    def test_a_foreign_object_of_the_name_is_left_alone(self, kind: str) -> None:
        """C16, C10: said before anything is made."""
        stage = Stage()
        name = f"{NAME}-key" if kind == "ConfigMap" else NAME
        foreign = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
        stage.cluster.put(foreign)
        stage.put(spec())
        stage.run(seconds=20)
        assert set(stage.children()) == {Ref(kind, NAMESPACE, name)}
        assert stage.condition("Accepted") == ("False", "NameConflict")
        message = stage.described("Ready")["message"]
        assert f"{NAMESPACE}/{name}" in message
        assert "rename the pipeline, or remove the object" in message
        assert "ownerReferences" in message
        assert "spec" not in stage.cluster.objects[Ref(kind, NAMESPACE, name)]
        stage.cluster.drop(Ref(kind, NAMESPACE, name))
        stage.settle()
        assert stage.condition("Ready")[0] == "True"

    def test_children_of_a_deleted_namesake_are_waited_out(self, served: Stage) -> None:
        """P4: the same name, another UID."""
        old = {ref: each for ref, each in served.cluster.objects.items() if ref.kind not in ("Pod", names.KIND)}
        served.cluster.drop(Ref(names.KIND, NAMESPACE, NAME))
        served.cluster.objects |= old
        served.put(spec())
        served.run(seconds=20)
        assert served.condition("RolledOut") == ("False", "Pending")
        assert not served.described("Stalled")
        for ref in old:
            served.cluster.drop(ref)
        served.settle()
        uid = served.cluster.objects[Ref(names.KIND, NAMESPACE, NAME)]["metadata"]["uid"]
        owners = {each["metadata"]["ownerReferences"][0]["uid"] for each in served.cluster.of_kind("ConfigMap")}
        assert owners == {uid}

    def test_what_somebody_changed_is_put_right(self, served: Stage) -> None:
        served.child("Service")["spec"]["selector"] = {"app": "mine"}
        served.child("Deployment", served_part(served))["spec"]["replicas"] = 7
        served.settle()
        assert served.deployments() == {served.served(): 2}

    @pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget"])
    def test_a_key_too_many_in_a_selector_goes(self, served: Stage, kind: str) -> None:
        """The Service would have no endpoints, and the budget would keep no pod."""
        before = copy.deepcopy(served.child(kind)["spec"])
        selector = served.child(kind)["spec"]["selector"]
        selector.get("matchLabels", selector)["somebody"] = "else"
        served.settle()
        assert served.child(kind)["spec"] == before

    def test_a_loss_is_told_each_time_and_so_is_its_end(self, served: Stage) -> None:
        for _ in range(2):
            served.controllers.fate = lambda owner: Fate(ready=owner["kind"] == "Job")
            served.run(seconds=10)
            served.controllers.fate = lambda owner: Fate()
            served.run(seconds=10)
        told = [each["reason"] for each in served.cluster.of_kind("Event")]
        assert (told.count("Unavailable"), told.count("Available")) == (2, 2)

    @pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Deployment", "Job", "PodDisruptionBudget"])
    def test_what_somebody_deleted_comes_back(self, served: Stage, kind: str) -> None:
        before = {ref: each for ref, each in served.children().items() if ref.kind != "Job"}
        for ref in [ref for ref in served.cluster.objects if ref.kind == kind]:
            served.cluster.drop(ref)
        served.settle()
        after = {ref: each for ref, each in served.children().items() if ref.kind != "Job"}
        if kind != "ConfigMap":  # the history is gone with its ConfigMap, and with it what was built
            assert after == before
        assert served.condition("Ready")[0] == "True"

    @pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Deployment", "Job", "PodDisruptionBudget"])
    def test_what_lost_its_labels_is_found_again_and_kept(self, served: Stage, kind: str) -> None:
        """By its owner: what is decided while it is out of sight is not acted on."""
        before, pods = served.children(), {uid_of(each) for each in served.cluster.of_kind("Pod")}
        for each in served.cluster.of_kind(kind):
            del each["metadata"]["labels"][names.LABEL_PIPELINE_UID]
        served.settle()
        assert served.children() == before
        assert {uid_of(each) for each in served.cluster.of_kind("Pod")} == pods
        lost = [each for each in served.cluster.of_kind(kind) if not label_of(each, names.LABEL_PIPELINE_UID)]
        assert all(kind == "Job" or label_of(each, "tailhold.dev/part") == "build" for each in lost)  # needed no more
        assert served.condition("Ready")[0] == "True"

    def test_what_others_added_stays(self, served: Stage) -> None:
        """C19."""
        deployment = served.child("Deployment", served.served())
        deployment["metadata"]["annotations"]["mesh.example/inject"] = "true"
        before = len(served.cluster.writes)
        served.settle()
        assert served.cluster.writes[before:] == []

    def test_a_lost_status_loses_nothing(self, served: Stage) -> None:
        """C14: as after a restore from a backup."""
        before = served.status()
        del served.cluster.objects[Ref(names.KIND, NAMESPACE, NAME)]["status"]
        served.settle()
        after = served.status()
        for each in (before, after):
            for condition in each["conditions"]:
                condition.pop("lastTransitionTime")
        assert after == before

    def test_what_the_api_server_will_not_have_is_said(self, served: Stage) -> None:
        def refuse(count: int, moment: str) -> None:
            if moment == "before" and refusing:
                raise RefusedError("exceeded quota: pods")

        refusing = True
        served.put(spec(**OTHER_ENGINE))
        apply = served.cluster.apply

        async def refused(manifest: Manifest, uid: str) -> None:
            if manifest["kind"] == "Deployment" and not uid:
                raise RefusedError("exceeded quota: deployments")
            await apply(manifest, uid)

        served.cluster.apply = refused  # type: ignore[method-assign]
        served.run(seconds=30)
        assert served.condition("RolledOut") == ("False", "ApplyRefused")
        assert served.condition("Available")[0] == "True"
        served.cluster.apply = apply  # type: ignore[method-assign]
        served.settle()
        assert served.condition("Ready")[0] == "True"

    def test_pods_that_a_node_turned_away_do_not_pile_up(self, served: Stage) -> None:
        """C21."""
        (deployment,) = served.cluster.of_kind("Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        for at in range(9):
            head = {"name": f"refused-{at}", "namespace": NAMESPACE, "labels": dict(labels)}
            status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device"}
            served.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": {}, "status": status})
        served.settle()
        assert sum("refused-" in pod["metadata"]["name"] for pod in served.cluster.of_kind("Pod")) == 3


def served_part(stage: Stage) -> str:
    return next(iter(stage.deployments()))


def test_an_engine_that_runs_with_something_else_is_named(served: Stage) -> None:
    assert not served.described("EngineMatchesSpec")
    served.pods.engine = {"blockSizeTokens": 32, "maxRunningRequests": 16, "kvBlocks": 512}
    served.settle()
    assert served.condition("EngineMatchesSpec") == ("True", "Reconciled")
    served.pods.engine = {"blockSizeTokens": 128, "maxRunningRequests": 16}
    served.settle()
    assert served.condition("EngineMatchesSpec") == ("False", "EngineDiffers")
    assert served.described("EngineMatchesSpec")["message"] == ("`engine.blockSizeTokens` is asked to be 32 and is 128")
    assert served.condition("Ready")[0] == "True"


def test_a_deleted_pipeline_is_left_to_the_garbage_collector(served: Stage) -> None:
    """C11: no finalizer, so nothing has to be done, and nothing is."""
    assert "finalizers" not in served.cluster.objects[Ref(names.KIND, NAMESPACE, NAME)]["metadata"]
    before = len(served.cluster.writes)
    served.cluster.objects[Ref(names.KIND, NAMESPACE, NAME)]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert served.step() is None
    served.cluster.drop(Ref(names.KIND, NAMESPACE, NAME))
    assert served.step() is None
    assert served.cluster.writes[before:] == []
    assert served.children() == {}


def test_two_long_names_get_children_of_their_own() -> None:
    """C10."""
    stem = "9-legal.docs.search-for-the-international-customer-support-team"
    stage = Stage()
    keys = [stage.put(spec(), name=f"{stem}-{end}") for end in ("prod", "test")]
    for key in keys:
        stage.settle(key)
    assert len(stage.cluster.of_kind("Service")) == 2
    for ref in stage.cluster.objects:
        if ref.kind not in (names.KIND, "Pod", "Event"):
            assert len(ref.name) <= names.MAX_CHILD_NAME
            assert "." not in ref.name


def test_latency_is_looked_at_on_a_resync_alone(served: Stage) -> None:
    def latencies(count: float) -> dict[str, Any]:
        return {
            pod["metadata"]["name"]: {0.1: count * 0.9, 1.0: count, float("inf"): count}
            for pod in served.cluster.of_kind("Pod")
        }

    served.pods.latencies = latencies(100)
    served.step(sample=True)
    assert "p99Milliseconds" not in served.status()
    served.pods.latencies = latencies(300)
    served.step()
    assert "p99Milliseconds" not in served.status()
    served.step(sample=True)
    assert 100 < served.status()["p99Milliseconds"] <= 1000


def test_events_tell_each_thing_once(served: Stage) -> None:
    served.put(spec(**OTHER_ENGINE))
    served.settle()
    told = [each["reason"] for each in served.cluster.of_kind("Event")]
    assert sorted(told) == ["IndexBuilt", "RolledOut", "RolledOut"]


@pytest.mark.parametrize("damage", ["gone", "unreadable", "from-another-release"])
def test_a_lost_history_in_mid_rollout_leaves_what_serves(served: Stage, damage: str) -> None:
    """I2: the Service never turns from pods that answer to pods that do not."""
    serving = served.served()
    except_for(served, serving, Fate(ready=False))
    served.put(spec(**OTHER_ENGINE))
    served.run(seconds=30)
    history = served.child("ConfigMap", "history")
    if damage == "gone":
        served.cluster.drop(Ref("ConfigMap", NAMESPACE, history["metadata"]["name"]))
    elif damage == "unreadable":
        served.cluster.put(history | {"data": {"history.json": "{"}})
    else:
        known = json.loads(history["data"]["history.json"])
        known["failure"] = {"name": known["candidate"]["name"], "reason": "SomethingNewer", "message": "m", "at": "now"}
        served.cluster.put(history | {"data": {"history.json": json.dumps(known | {"switchedAt": "lately"})}})
    served.run(seconds=120)
    assert served.served() == serving
    assert served.condition("Available")[0] == "True"
