"""Rollouts of pipelines that promise something: judged step by step, and taken back where they are not good."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cards import Cards
from traffic import NAME, OBJECTIVE
from worlds import KEY, NAMESPACE, Stage, spec

from tailhold_api import names
from tailhold_api.status import ProbeStatus
from tailhold_operator.kinds import Ref
from tailhold_operator.testing import FakePods, Fate

OTHER = {"engine": {"blockSizeTokens": 64}}
THIRD = {"engine": {"blockSizeTokens": 128}}
CONTENT = {"retrieval": {"topK": 7}}


def promised(**changes: Any) -> dict[str, Any]:
    return spec(**({"slo": {"objectives": [OBJECTIVE]}} | changes))


def serving(cards: int = 1000, rate: float = 40.0, **changes: Any) -> Stage:
    """A pipeline that serves requests and keeps its promise."""
    stage = Stage()
    stage.controllers = Cards(stage.cluster, cards=cards)
    stage.put(promised(**changes))
    stage.settle()
    stage.traffic.rate = rate
    stage.serve(60)
    return stage


def stable(stage: Stage) -> str:
    return str(stage.status()["stable"]["name"])


def candidate(stage: Stage) -> str:
    return str(stage.status()["candidate"]["name"])


def only_good(stage: Stage, share: float = 0.4) -> None:
    """All revisions but the one that serves break the objective."""
    good = stable(stage)
    stage.traffic.bad = lambda revision: 0.01 if revision == good else share


def edit(stage: Stage, *, seconds: float = 0, **changes: Any) -> None:
    """Apply another spec: as another user would, without the annotations of before."""
    stage.put(promised(**changes))
    stage.serve(seconds)


def until(stage: Stage, holds: Callable[[], bool], seconds: float = 7200) -> float:
    """How long it takes."""
    begun = stage.clock.now
    while not holds():
        stage.serve(3)
        assert (stage.clock.now - begun).total_seconds() < seconds, (
            stage.status().get("rollout"),
            stage.condition("RolledOut"),
        )
    return (stage.clock.now - begun).total_seconds()


def phase(stage: Stage) -> str:
    return str(stage.status().get("rollout", {}).get("phase", ""))


def history(stage: Stage) -> dict[str, Any]:
    return dict(json.loads(stage.child("ConfigMap", "history")["data"]["history.json"]))


def ended(stage: Stage) -> bool:
    """Whether the newest edit was seen, and is either rolled out or given up."""
    seen = stage.status()["observedGeneration"] == stage.cluster.objects[KEY]["metadata"]["generation"]
    return seen and not phase(stage) and (stage.condition("RolledOut")[0] == "True" or "failure" in history(stage))


def reason(stage: Stage) -> str:
    return stage.condition("RolledOut")[1]


def test_a_good_candidate_is_promoted_step_by_step() -> None:
    stage = serving()
    old = stable(stage)
    edit(stage, **OTHER)
    weights, phases = [], []
    while not (ended(stage) and stable(stage) != old):
        stage.serve(3)
        weights.append(stage.status().get("weightPercent"))
        phases.append(phase(stage))
    assert [each for each in dict.fromkeys(weights) if each] == [5, 25, 50]
    assert [each for each in dict.fromkeys(phases) if each][-2:] == ["Stepping", "Promoting"]
    stage.serve(30)
    assert stage.condition("Ready") == ("True", "Reconciled")
    assert "weightPercent" not in stage.status()
    assert set(stage.deployments()) == {stage.served()}
    assert stage.traffic.lost == 0
    trial = history(stage)["trials"][0]
    assert trial["ended"] == "Promoted"
    assert [each["weightPercent"] for each in trial["passed"]] == [5, 25, 50]
    assert all(each["requests"] >= 200 and each["stableRequests"] for each in trial["passed"])


def test_a_bad_candidate_is_taken_back_and_says_why() -> None:
    stage = serving()
    old = stable(stage)
    only_good(stage)
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage))
    assert stage.condition("RolledOut") == ("False", "SloBroken")
    assert NAME in stage.described("RolledOut")["message"]
    assert stable(stage) == old
    assert stage.condition("Available")[0] == "True"
    bad = history(stage)["failure"]["name"]
    seen = stage.traffic.answered[bad]
    stage.serve(10)
    assert stage.traffic.answered[bad] == seen, "I3: traffic is off within 10 s"
    assert list(stage.deployments()) == [old[:10]]


def test_it_is_not_tried_again_by_itself_but_when_asked_to() -> None:
    """C29."""
    stage = serving()
    only_good(stage)
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage))
    failed = history(stage)["failure"]["name"]
    stage.traffic.lose()
    stage.serve(600)
    assert reason(stage) == "SloBroken"
    edit(stage, seconds=60, replicas=3, **OTHER)
    assert reason(stage) == "SloBroken"
    stage.put(promised(replicas=3, **OTHER), annotations={names.ANNOTATION_RETRY: failed})
    stage.traffic.bad = lambda revision: 0.01
    until(stage, lambda: stable(stage) == failed)
    assert history(stage)["trials"][0]["ended"] == "Promoted"


def test_a_retry_is_made_once() -> None:
    stage = serving()
    only_good(stage)
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage))
    failed = history(stage)["failure"]["name"]
    for value in (failed, f"{failed}@again"):
        stage.put(promised(**OTHER), annotations={names.ANNOTATION_RETRY: value})
        stage.serve(20)
        assert phase(stage)
        until(stage, lambda: ended(stage))
        stage.serve(200)
        assert reason(stage) == "SloBroken"
    assert len([each for each in stage.status()["ended"] if each["name"] == failed]) == 3


def test_going_back_to_what_serves_is_ready_at_once() -> None:
    stage = serving()
    only_good(stage)
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage))
    edit(stage, seconds=20)
    assert stage.condition("Ready") == ("True", "Reconciled")


@pytest.mark.parametrize("at_step", [1, 2, 3])
def test_another_edit_begins_anew_against_what_serves(at_step: int) -> None:
    """C27."""
    stage = serving()
    old = stable(stage)
    edit(stage, **OTHER)
    until(
        stage,
        lambda: stage.status().get("rollout", {}).get("step") == at_step and bool(stage.status()["weightPercent"]),
    )
    second = candidate(stage)
    edit(stage, **THIRD)
    stage.serve(6)
    assert stage.status()["weightPercent"] in (0, 5)
    until(stage, lambda: bool(stage.status().get("weightPercent")))
    told = stage.status()["rollout"]
    assert (told["step"], stage.status()["weightPercent"], told["stable"]) == (1, 5, old)
    assert told["revision"] not in (old, second)
    assert second[:10] not in stage.deployments()
    until(stage, lambda: ended(stage) and stable(stage) == told["revision"])


def test_an_autoscaler_does_not_begin_it_anew() -> None:
    """C35."""
    stage = serving()
    edit(stage, **OTHER)
    until(stage, lambda: stage.status().get("rollout", {}).get("step") == 2 and stage.status()["weightPercent"] == 25)
    since = stage.status()["rollout"]["since"]
    edit(stage, seconds=9, replicas=4, **OTHER)
    assert stage.status()["rollout"]["since"] == since
    assert stage.deployments()[stage.served()] == 4
    until(stage, lambda: ended(stage))
    stage.serve(30)
    assert list(stage.deployments().values()) == [4]


def test_without_requests_it_holds_and_says_so() -> None:
    """C25."""
    stage = serving(rollout={"steps": [{"weightPercent": 50, "maxSeconds": 300}]})
    edit(stage, **OTHER, rollout={"steps": [{"weightPercent": 50, "maxSeconds": 300}]})
    stage.traffic.rate = 0
    stage.serve(200)
    told = stage.status()["rollout"]["verdict"]
    assert (told["answer"], told["why"]) == ("Undecided", "NoTraffic")
    stage.serve(7200)
    assert stage.condition("RolledOut") == ("False", "NoVerdict")
    assert stage.status()["weightPercent"] == 50
    quiet = len(stage.cluster.writes)
    stage.serve(600)
    assert len(stage.cluster.writes) == quiet, "I11"
    stage.traffic.rate = 40
    until(stage, lambda: ended(stage))
    assert stage.condition("Ready")[0] == "True"


@pytest.mark.parametrize(("blind", "rate"), [(True, 40.0), (False, 0.0)])
def test_without_a_verdict_in_time_it_is_taken_back_where_that_is_asked_for(blind: bool, rate: float) -> None:
    rules = {"steps": [{"weightPercent": 50, "maxSeconds": 300}], "onUnknown": "Rollback"}
    stage = serving(rollout=rules)
    stage.traffic.blind, stage.traffic.rate = blind, rate
    edit(stage, **OTHER, rollout=rules)
    took = until(stage, lambda: ended(stage))
    assert reason(stage) == "NoVerdict"
    assert 300 <= took < 340


def test_a_metrics_outage_freezes_the_weight() -> None:
    """C49."""
    stage = serving()
    edit(stage, **OTHER)
    until(stage, lambda: stage.status().get("weightPercent") == 25)
    stage.traffic.blind = True
    stage.serve(3000)
    assert stage.status()["weightPercent"] == 25
    assert stage.status()["rollout"]["verdict"]["answer"] == "Blind"
    stage.traffic.blind = False
    until(stage, lambda: ended(stage))
    assert stage.condition("Ready")[0] == "True"


def test_a_new_operator_goes_on_where_the_last_one_stopped() -> None:
    """C32."""
    stage = serving()
    edit(stage, **OTHER)
    until(stage, lambda: stage.status().get("weightPercent") == 25)
    before = stage.status()["rollout"]
    stage.traffic.lose()
    stage.cluster.objects[KEY].pop("status")
    stage.serve(6)
    after = stage.status()["rollout"]
    same = ("revision", "stable", "phase", "step", "since", "probe")
    assert [after.get(each) for each in same] == [before.get(each) for each in same]
    assert stage.status()["weightPercent"] == 25


def test_paused_keeps_the_weight_and_changes_nothing() -> None:
    stage = serving()
    edit(stage, **OTHER)
    until(stage, lambda: stage.status().get("weightPercent") == 5)
    edit(stage, seconds=3, paused=True, **OTHER)
    writes = [each for each in stage.cluster.writes if "status" not in each]
    stage.serve(1200)
    assert [each for each in stage.cluster.writes if "status" not in each] == writes
    assert stage.status()["weightPercent"] == 5
    assert stage.condition("RolledOut") == ("False", "Paused")
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage))
    assert stage.condition("Ready")[0] == "True"


def test_a_person_promotes_and_takes_back() -> None:
    stage = serving(rate=0)
    edit(stage, seconds=60, **OTHER)
    new = candidate(stage)
    stage.put(promised(**OTHER), annotations={names.ANNOTATION_PROMOTE: "another"})
    stage.serve(30)
    assert phase(stage) == "Stepping"
    stage.put(promised(**OTHER), annotations={names.ANNOTATION_PROMOTE: new})
    stage.serve(60)
    assert stable(stage) == new
    assert history(stage)["trials"][0]["byHand"]
    edit(stage, seconds=60, **THIRD)
    third = candidate(stage)
    stage.put(promised(**THIRD), annotations={names.ANNOTATION_ABORT: third})
    stage.serve(30)
    assert reason(stage) == "Aborted"
    assert (stable(stage), list(stage.deployments())) == (new, [new[:10]])


def test_an_abort_without_a_rollout_does_nothing() -> None:
    """Argo #1292."""
    stage = serving()
    before = len([each for each in stage.cluster.writes if "status" not in each])
    stage.put(promised(), annotations={names.ANNOTATION_ABORT: stable(stage)})
    stage.serve(60)
    assert len([each for each in stage.cluster.writes if "status" not in each]) == before
    assert stage.condition("Ready")[0] == "True"


def test_a_candidate_that_ends_is_taken_back_at_once() -> None:
    stage = serving()
    edit(stage, **OTHER)
    until(stage, lambda: stage.status().get("weightPercent") == 5)
    new = candidate(stage)[:10]
    fate = Fate(ready=False, exit_code=137, ending={"reason": "OOMKilled", "message": "out of memory"}, restarts=1)
    stage.controllers.fate = lambda owner: (
        fate if owner["metadata"]["labels"].get(names.LABEL_POD_PART) == new else Fate()
    )
    stage.serve(9)
    assert stage.condition("RolledOut")[0] == "False"
    assert new not in stage.deployments()
    assert "out of memory" in stage.described("RolledOut")["message"]


def test_a_candidate_whose_node_went_away_is_not_to_blame() -> None:
    stage = serving()
    edit(stage, **OTHER)
    until(stage, lambda: stage.status().get("weightPercent") == 5)
    new = candidate(stage)
    lost = f"{names.child_name('handbook', new[:10])}-0"
    stage.controllers.away = {lost}
    stage.pods.deaf = {lost}
    stage.serve(120)
    assert phase(stage) == "Stepping"
    assert stage.status()["weightPercent"] == 0
    stage.cluster.drop(Ref("Pod", NAMESPACE, lost))
    stage.controllers.away, stage.pods.deaf = set(), set()
    until(stage, lambda: ended(stage))
    assert stable(stage) == new


def test_never_ready_is_given_up_at_its_deadline_without_a_single_request() -> None:
    """C38."""
    rules = {"rollout": {"deadlineSeconds": 300}}
    stage = serving(**rules)
    old = stable(stage)[:10]
    label = names.LABEL_POD_PART
    stage.controllers.fate = lambda owner: Fate(ready=owner["metadata"]["labels"].get(label) in (old, None))
    edit(stage, **OTHER, **rules)
    until(stage, lambda: ended(stage), 400)
    assert reason(stage) == "DeadlineExceeded"
    assert len(stage.traffic.answered) == 1


def test_what_does_not_answer_the_probe_gets_no_traffic() -> None:
    stage = serving()
    stage.pods.probed = lambda pod, probe: ProbeStatus(requests=20, failed=3, message="500: broken")
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage), 100)
    assert reason(stage) == "ProbeFailed"
    assert "3 of 20" in stage.described("RolledOut")["message"]
    assert len(stage.traffic.answered) == 1


def test_an_index_that_finds_too_little_gets_no_traffic() -> None:
    stage = serving()
    stage.pods.probed = lambda pod, probe: ProbeStatus(requests=20, recall_percent=61)
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage), 100)
    assert "61 %" in stage.described("RolledOut")["message"]


def test_what_could_not_be_taken_back_is_not_started() -> None:
    stage = serving()
    old = stable(stage)
    stage.cluster.drop(Ref("ConfigMap", NAMESPACE, names.child_name("handbook", "pod", old[:10])))
    edit(stage, seconds=20, **OTHER)
    assert reason(stage) == "NoWayBack"
    assert old[:10] in stage.described("RolledOut")["message"]
    assert list(stage.deployments()) == [old[:10]]


def test_a_broken_stable_side_does_not_block_the_fix() -> None:
    """C31."""
    stage = serving()
    old = stable(stage)
    loops = Fate(
        ready=False, waiting="CrashLoopBackOff", exit_code=1, ending={"reason": "", "message": "no"}, restarts=9
    )
    label = names.LABEL_POD_PART
    stage.controllers.fate = lambda owner: loops if owner["metadata"]["labels"].get(label) == old[:10] else Fate()
    stage.serve(20)
    edit(stage, seconds=20, **OTHER)
    assert stage.served() != old[:10]
    assert phase(stage) == "Proving"
    until(stage, lambda: ended(stage))
    assert stable(stage) != old
    assert history(stage)["trials"][0]["passed"][0]["stableRequests"] == 0


def test_where_both_break_the_promise_it_is_nobodys_fault() -> None:
    stage = serving()
    stage.traffic.bad = lambda revision: 0.2
    edit(stage, seconds=3000, **OTHER)
    assert phase(stage) == "Stepping"
    assert stage.status()["rollout"]["verdict"]["why"] == "BothBeyond"


def test_a_fix_passes_beside_a_stable_side_that_breaks_the_promise() -> None:
    stage = serving()
    old = stable(stage)
    stage.traffic.bad = lambda revision: 0.2 if revision == old else 0.01
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage))
    assert stable(stage) != old


def test_the_first_revision_is_not_judged() -> None:
    stage = Stage()
    stage.traffic.rate = 0
    stage.put(promised())
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")


def test_no_steps_means_no_judgement() -> None:
    stage = serving(rollout={"steps": []})
    only_good(stage)
    edit(stage, **OTHER, rollout={"steps": []})
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")


DRAINS: dict[str, dict[str, Any]] = {
    "asked for": {"replicas": 1, "rollout": {"strategy": "DrainFirst"}, "cards": 1000},
    "one card": {"replicas": 1, "rollout": {"strategy": "Auto"}, "cards": 1},
    "two, asked for": {"replicas": 2, "rollout": {"strategy": "DrainFirst"}, "cards": 2},
}


def drained(how: str, bad: float) -> tuple[Stage, str]:
    given = dict(DRAINS[how])
    stage = serving(given.pop("cards"), **given)
    old = stable(stage)
    only_good(stage, bad)
    edit(stage, **OTHER, **given)
    until(stage, lambda: phase(stage) == "Proving")
    stage.serve(15)
    assert stage.status()["rollout"]["strategy"] == "DrainFirst"
    assert stage.status()["weightPercent"] == 100
    return stage, old


@pytest.mark.parametrize("how", DRAINS)
def test_in_the_place_of_the_old_it_is_proved_alone(how: str) -> None:
    stage, old = drained(how, 0.01)
    until(stage, lambda: ended(stage))
    assert stable(stage) != old
    assert history(stage)["trials"][0]["passed"]
    assert stage.controllers.most <= DRAINS[how]["replicas"]


@pytest.mark.parametrize("how", DRAINS)
def test_in_the_place_of_the_old_it_is_taken_back_for_the_old(how: str) -> None:
    stage, old = drained(how, 0.4)
    until(stage, lambda: ended(stage))
    stage.serve(60)
    assert reason(stage) == "SloBroken"
    assert stable(stage) == old
    assert stage.condition("Available")[0] == "True"
    assert list(stage.deployments()) == [old[:10]]
    assert stage.controllers.most <= DRAINS[how]["replicas"], "a rollback holds no more than was held"


def test_four_pods_and_one_spare_card() -> None:
    stage = serving(5, replicas=4)
    old = stable(stage)
    floor = []
    edit(stage, **OTHER, replicas=4)
    while not (ended(stage) and stable(stage) != old):
        stage.serve(3)
        floor.append(
            sum(
                1
                for each in stage.cluster.of_kind("Pod")
                if "tailhold.dev/pod-part" in each["metadata"]["labels"]
                and each.get("status", {}).get("phase") == "Running"
            )
        )
    assert min(floor) >= 4, "I4"
    weights = [each["weightPercent"] for each in history(stage)["trials"][0]["passed"]]
    assert weights == [5, 20, 20], "each pod had the same load"
    assert stage.traffic.lost == 0
    assert stage.controllers.most == 5


def test_four_pods_and_no_spare_card_give_one_up() -> None:
    stage = serving(4, replicas=4)
    old = stable(stage)
    edit(stage, **OTHER, replicas=4)
    while not (ended(stage) and stable(stage) != old):
        stage.serve(3)
    assert stage.traffic.lost == 0
    assert stage.controllers.most == 4
    assert history(stage)["trials"][0]["strategy"] == "DrainFirst"


def test_content_is_judged_on_one_pod_beside_the_others() -> None:
    stage = serving(replicas=3)
    old = stable(stage)
    edit(stage, **CONTENT, replicas=3)
    until(stage, lambda: phase(stage) == "Stepping")
    assert stage.status()["rollout"]["strategy"] == "InPlace"
    stage.serve(6)
    assert stage.status()["weightPercent"] == 33
    assert len(stage.traffic.answered) == 2
    until(stage, lambda: ended(stage))
    stage.settle()
    assert stable(stage) != old
    assert len(stage.deployments()) == 1
    assert len(history(stage)["trials"][0]["passed"]) == 1


@pytest.mark.parametrize("replicas", [1, 3])
def test_bad_content_is_taken_back_in_place(replicas: int) -> None:
    stage = serving(replicas=replicas)
    old = stable(stage)
    only_good(stage)
    edit(stage, **CONTENT, replicas=replicas)
    until(stage, lambda: ended(stage))
    stage.serve(10)
    assert reason(stage) == "SloBroken"
    assert stable(stage) == old
    assert {name for name, _ in running(stage.pods, stage)} == {old}


def running(servers: FakePods, stage: Stage) -> set[tuple[str, str]]:
    from traffic import pods, revision_of

    return {(revision_of(stage, each), each["metadata"]["name"]) for each in pods(stage)}


def test_one_pod_proves_content_alone() -> None:
    stage = serving(replicas=1)
    old = stable(stage)
    edit(stage, **CONTENT, replicas=1)
    until(stage, lambda: phase(stage) == "Proving")
    until(stage, lambda: ended(stage))
    stage.settle()
    assert stable(stage) != old
    assert history(stage)["trials"][0]["passed"]


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_pod_that_has_just_started_is_no_failure_of_a_candidate(replicas: int) -> None:
    """Kubelet looks every few seconds: until then a pod says that it serves and is not ready."""
    stage = serving(replicas=replicas)
    old = stable(stage)
    stage.controllers.seen_after = timedelta(seconds=9)
    stage.pods.phase = lambda pod: "serving"
    edit(stage, **OTHER)
    until(stage, lambda: ended(stage))
    assert stable(stage) != old


def test_a_pod_that_was_ready_and_is_not_any_more_is() -> None:
    stage = serving()
    old = stable(stage)
    edit(stage, **OTHER)
    until(stage, lambda: phase(stage) == "Stepping")
    own = stable(stage)[:10]
    stage.controllers.fate = lambda owner: Fate(ready=owner["metadata"]["labels"].get(names.LABEL_POD_PART) == own)
    until(stage, lambda: ended(stage), seconds=60)
    assert reason(stage) == "NotReady"
    assert stable(stage) == old
