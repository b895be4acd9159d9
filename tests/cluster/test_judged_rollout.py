"""Rollouts that a judge decides, on a real cluster under an open loop of requests, with stand-in engines.

They say nothing about serving: the latency is the one that the manifest states.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from recording import Load, Recording, loaded
from spec_examples import merged
from waiting import until

from tailhold import provision, watch
from tailhold.target import Target
from tailhold.walkthrough import service_url
from tailhold_api import names

pytestmark = pytest.mark.cluster

NAME, NAMESPACE = "judged", provision.NAMESPACE
EXAMPLES = provision.ROOT / "examples" / "canary"
RATE = 25.0
VERDICT_SECONDS = 300
"""By far: some 160 requests of a candidate decide, half a minute of them at most."""
PROMISE = {
    "slo": {
        # Far beyond what the manifest states: a machine that does other things beside breaks no promise.
        "objectives": [{"metric": "EndToEnd", "thresholdMilliseconds": 500, "percent": 95}],
    },
    "rollout": {
        "steps": [
            {"weightPercent": 25, "minRequests": 40, "maxSeconds": 30},
            {"weightPercent": 50, "minRequests": 40, "maxSeconds": 30},
        ],
    },
}


def engine(words: str) -> dict[str, Any]:
    return {"spec": {"pod": {"env": [{"name": names.STAND_IN_VARIABLE, "value": words}]}}}


GOOD = "firstTokenMilliseconds=38 tokenMilliseconds=8 slots=16 jitterPercent=20"
SLOW = f"{GOOD} slowPercent=40 slowTimes=5"
FAILING = "firstTokenMilliseconds=10 tokenMilliseconds=2 slots=16 failPercent=40"


@pytest.fixture(scope="module")
def target(equipped: Target) -> Iterator[Target]:
    """With a pipeline that serves and promises something."""
    documents, pipeline = yaml.safe_load_all((EXAMPLES / "pipeline.yaml").read_text())
    equipped.apply(documents | {"metadata": documents["metadata"] | {"namespace": NAMESPACE}})
    judged = merged(pipeline, {"metadata": {"name": NAME}, "spec": PROMISE})
    equipped.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(judged))
    watch.until_ready(equipped, NAMESPACE, NAME, timeout_seconds=300, on_change=print)
    yield equipped
    equipped.kubectl("delete", "ragp", NAME, "-n", NAMESPACE)


@pytest.fixture
def recording(target: Target) -> Iterator[Recording]:
    """Of one rollout; told with the test's output, whether it passed or not."""
    recording = Recording(target, NAMESPACE, NAME)
    yield recording
    print("status over time:", recording, sep="\n")


def load(target: Target, folder: Path) -> Any:
    return loaded(service_url(target, NAMESPACE, NAME), folder / "load", RATE)


def edit(target: Target, change: dict[str, Any]) -> None:
    target.kubectl("patch", "ragp", NAME, "-n", NAMESPACE, "--type", "merge", "-p", json.dumps(change))


def stable(pipeline: dict[str, Any]) -> str:
    return str(pipeline["status"]["stable"]["name"])


def ended(recording: Recording, revision_before: str, reason: str) -> dict[str, Any]:
    """The pipeline once its rollout has ended so."""
    return until(
        recording.pipeline,
        lambda found: (
            watch.condition(found, "RolledOut")["reason"] == reason
            and found["status"]["observedGeneration"] == found["metadata"]["generation"]
            and not found["status"].get("rollout")
            and (stable(found) != revision_before) == (reason == "Reconciled")
        ),
        seconds=VERDICT_SECONDS,
        every=1,
    )


def all_answered(load: Load) -> None:
    print("requests:", load.outcomes)
    assert set(load.outcomes) == {"ok"}, load.outcomes


def test_a_good_candidate_is_promoted_and_nobody_notices(target: Target, recording: Recording, tmp_path: Path) -> None:
    before = stable(recording.pipeline())
    with load(target, tmp_path) as sent:
        edit(target, engine(GOOD))
        after = ended(recording, before, "Reconciled")
    all_answered(sent)
    trial = recording.history()["trials"][0]
    assert trial["ended"] == "Promoted"
    assert [step["weightPercent"] for step in trial["passed"]] == [25, 50]
    assert all(step["requests"] >= 40 and step["stableRequests"] >= 40 for step in trial["passed"])
    assert trial["revision"] == stable(after)


@pytest.mark.parametrize("words", [SLOW, FAILING], ids=["slow", "failing"])
def test_a_bad_candidate_is_taken_back(target: Target, recording: Recording, tmp_path: Path, words: str) -> None:
    before = stable(recording.pipeline())
    with load(target, tmp_path) as sent:
        edit(target, merged(engine(words), {"spec": {"rollout": {"probe": {"requests": 0}}}}))
        ended(recording, before, "SloBroken")
        until(recording.pipeline, lambda found: found["status"]["replicas"] == 2, seconds=60, every=1)
    # A slow answer is one, and where a candidate fails before its first byte the stable side answers.
    all_answered(sent)
    failure = recording.history()["failure"]
    off = recording.seconds_to_off(failure["name"], datetime.fromisoformat(failure["at"].replace("Z", "+00:00")))
    print(f"from the verdict to the candidate's last request: {off:.0f} s")
    assert off <= 10
    assert recording.moments[-1].counted.get(before, 0) > 0


def test_one_that_fails_is_found_before_it_gets_a_request(target: Target, recording: Recording) -> None:
    before = stable(recording.pipeline())
    edit(target, merged(engine(f"{FAILING} jitterPercent=1"), {"spec": {"rollout": {"probe": {"requests": 20}}}}))
    ended(recording, before, "ProbeFailed")
    assert not any(moment.weight for moment in recording.moments)


def test_without_traffic_a_candidate_waits(target: Target, recording: Recording) -> None:
    before = stable(recording.pipeline())
    edit(target, engine(f"{GOOD} answerTokens=15"))
    until(
        recording.pipeline,
        lambda found: (found["status"].get("rollout") or {}).get("phase") == "Stepping",
        seconds=120,
        every=1,
    )
    seen = until(
        recording.pipeline,
        lambda found: watch.condition(found, "RolledOut")["reason"] == "NoVerdict",
        seconds=180,
        every=1,
    )
    assert stable(seen) == before
    assert watch.condition(seen, "Available")["status"] == "True"
    assert not seen["status"].get("rollout", {}).get("verdict", {}).get("candidate", {}).get("requests")
    target.kubectl(
        "annotate", "ragp", NAME, "-n", NAMESPACE, f"tailhold.dev/abort={seen['status']['candidate']['name']}"
    )
    ended(recording, before, "Aborted")


def test_where_every_gpu_is_taken_an_old_pod_makes_room_and_the_candidate_is_judged_all_the_same(
    target: Target, recording: Recording, tmp_path: Path
) -> None:
    first = stable(recording.pipeline())
    unjudged = {"placement": {"gpu": {"count": 1}}, "rollout": {"steps": []}}
    edit(target, merged(engine(GOOD), {"spec": unjudged}))
    before = stable(ended(recording, first, "Reconciled"))
    with load(target, tmp_path) as sent:
        one_step = {"rollout": {"steps": [{"weightPercent": 50, "minRequests": 40, "maxSeconds": 30}]}}
        edit(target, merged(engine(f"{GOOD} answerTokens=14"), {"spec": one_step}))
        ended(recording, before, "Reconciled")
    all_answered(sent)
    trial = recording.history()["trials"][0]
    assert (trial["ended"], trial["strategy"]) == ("Promoted", "DrainFirst")
    assert trial["passed"][0]["stableRequests"] >= 40, "the pod that stayed is what it was compared with"
