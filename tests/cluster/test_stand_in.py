"""Stand-in engines in real pods: ready without a model, loaded, and made worse one pod or node at a time."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
import yaml
from rich.console import Console
from spec_examples import merged
from waiting import until

from tailhold import provision, watch
from tailhold.target import Target
from tailhold.walkthrough import service_url
from tailhold_api import names
from tailhold_api.stand_in import parsed
from tailhold_bench.load.command import measure
from tailhold_bench.load.options import Options
from tailhold_bench.load.samples import Outcome
from tailhold_local import Cluster, faults

pytestmark = pytest.mark.cluster

NAME, NAMESPACE = "canary", provision.NAMESPACE
EXAMPLES = provision.ROOT / "examples" / "canary"
TIMES = 4.0


def change(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def target(equipped: Target) -> Iterator[Target]:
    """With the example on it, which goes with the last test."""
    documents, pipeline = yaml.safe_load_all((EXAMPLES / "pipeline.yaml").read_text())
    began = time.monotonic()
    equipped.apply(documents | {"metadata": documents["metadata"] | {"namespace": NAMESPACE}})
    equipped.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(merged(pipeline, change("node-faults"))))
    ready(equipped)
    print(f"READY {time.monotonic() - began:.0f} s after apply, inspection and index among them")
    yield equipped
    equipped.kubectl("delete", "-n", NAMESPACE, "-f", str(EXAMPLES / "pipeline.yaml"))
    until(lambda: pods(equipped), lambda found: not found, seconds=120)


def ready(target: Target) -> dict[str, Any]:
    return watch.until_ready(target, NAMESPACE, NAME, timeout_seconds=300, on_change=print)


def pods(target: Target) -> dict[str, dict[str, Any]]:
    """By name, those that go on running."""
    labels = f"app.kubernetes.io/instance={NAME},{names.LABEL_COMPONENT}={names.COMPONENT_SERVER}"
    listed = target.get("pods", "-n", NAMESPACE, "-l", labels) or {"items": []}
    return {each["metadata"]["name"]: each for each in listed["items"] if "deletionTimestamp" not in each["metadata"]}


def all_ready(found: dict[str, dict[str, Any]]) -> bool:
    """Both of them."""
    conditions = [each for pod in found.values() for each in pod["status"].get("conditions", [])]
    return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions) == len(found) == 2


def patched(target: Target, spec: dict[str, Any]) -> None:
    target.kubectl("patch", "ragp", NAME, "-n", NAMESPACE, "--type", "merge", "-p", json.dumps(spec))


def seconds(pod: dict[str, Any], least_of: int = 5) -> float:
    """The shortest of some answers of this pod alone; what the machine does beside makes some of them longer."""
    with httpx.Client(base_url=f"http://{pod['status']['podIP']}:{names.HTTP_PORT}", timeout=60) as client:
        return min(_asked(client) for _ in range(least_of))


def _asked(client: httpx.Client) -> float:
    began = time.monotonic()
    body = {"messages": [{"role": "user", "content": "When does the branch close?"}]}
    client.post("/v1/chat/completions", json=body).raise_for_status()
    return time.monotonic() - began


def stated() -> float:
    """The shortest that a whole answer may take."""
    _, pipeline = yaml.safe_load_all((EXAMPLES / "pipeline.yaml").read_text())
    told = parsed(pipeline["spec"]["pod"]["env"][0]["value"])
    whole = told.first_token_milliseconds + (told.answer_tokens - 1) * told.token_milliseconds
    return whole * (1 - told.jitter_percent / 100) / 1000


def test_it_is_ready_without_a_model_and_named_as_what_it_is(target: Target) -> None:
    status = ready(target)
    assert "no model is loaded" in watch.condition(status, "Accepted")["message"]
    assert not status["status"].get("memory"), "nothing is added up of models that nobody read"
    for name, pod in pods(target).items():
        told = httpx.get(f"http://{pod['status']['podIP']}:{names.INTERNAL_PORT}/v1/tuning").json()
        assert told["engine"]["name"] == "stand-in"
        used = target.kubectl("exec", "-n", NAMESPACE, name, "--", "cat", "/proc/1/status")
        print(name, *(line for line in used.splitlines() if line.startswith(("RssAnon", "VmRSS"))))


def test_answers_stream_through_the_service_with_citations_of_what_was_indexed(target: Target) -> None:
    client = openai.OpenAI(base_url=service_url(target, NAMESPACE, NAME), api_key="none", timeout=60)
    asked: list[Any] = [{"role": "user", "content": "When does the branch close on Saturdays?"}]
    chunks = list(client.chat.completions.create(model=NAME, messages=asked, stream=True))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text.startswith("You asked: When does the branch close on Saturdays?")
    opening, ending = ((chunk.model_extra or {})["tailhold"] for chunk in (chunks[0], chunks[-1]))
    assert opening["sources"][0]["title"] == "Hours"
    assert ending["engine"] == "stand-in"


def test_every_request_of_an_open_loop_is_answered(target: Target) -> None:
    """How fast is printed: a machine that does other things beside is no reason to fail."""
    options = Options(url=service_url(target, NAMESPACE, NAME), rate=20, duration="8s")
    report = measure(Console(quiet=True), options)
    assert sum(report.outcomes.values()) == report.outcomes[Outcome.OK] == report.made_up
    print(*report.latencies[:2], report.generator.verdict, sep="\n")


def test_one_pod_is_made_slow_and_well_again_and_the_other_is_not(target: Target, cluster: Cluster) -> None:
    before = pods(target)
    (sick, *_), (well, *_) = list(before.items())[:1], list(before.items())[1:]
    faults.slow(cluster, sick[0], TIMES, namespace=NAMESPACE)
    slow, usual = seconds(sick[1]), seconds(well[1])
    print(f"slow pod {slow:.3f} s, the other {usual:.3f} s")
    assert slow >= TIMES * stated() > usual
    faults.heal(cluster, sick[0], namespace=NAMESPACE)
    assert seconds(sick[1]) < TIMES * stated()
    assert {each["metadata"]["uid"] for each in pods(target).values()} == {
        each["metadata"]["uid"] for each in before.values()
    }, "no revision changed, nothing was restarted"


def test_one_pod_is_made_to_fail(target: Target, cluster: Cluster) -> None:
    sick, well = pods(target).items()
    faults.fail(cluster, sick[0], 100, namespace=NAMESPACE)
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        until(lambda: seconds(sick[1], 1), lambda _: False, seconds=10)
    seconds(well[1])
    faults.heal(cluster, sick[0], namespace=NAMESPACE)


def test_a_node_is_made_slow_and_a_pod_that_takes_anothers_place_there_is_too(target: Target, cluster: Cluster) -> None:
    node = "node-a"
    faults.slow(cluster, node, TIMES)
    try:
        first, *_ = (name for name, pod in pods(target).items() if pod["spec"]["nodeName"] == node)
        target.kubectl("delete", "pod", "-n", NAMESPACE, first, "--wait=false")
        until(lambda: pods(target), lambda found: first not in found and all_ready(found), seconds=60)
        there = [pod for pod in pods(target).values() if pod["spec"]["nodeName"] == node]
        assert there
        assert all(seconds(pod, 2) >= TIMES * stated() for pod in there)
    finally:
        faults.heal(cluster, node)


def test_a_change_that_never_gets_ready_leaves_what_serves(target: Target) -> None:
    before = pods(target)
    patched(target, change("never-ready"))
    until(lambda: pods(target), lambda found: len(found) > len(before), seconds=60)
    now = target.get("ragp", NAME, "-n", NAMESPACE) or {}
    assert watch.condition(now, "Available")["status"] == "True"
    assert set(before) <= set(pods(target))
    patched(target, {"spec": {"pod": {"env": [{"name": names.STAND_IN_VARIABLE, "value": "slot=3"}]}}})
    seen = until(
        lambda: target.get("ragp", NAME, "-n", NAMESPACE) or {},
        lambda found: "did you mean `slots`" in watch.condition(found, "Accepted")["message"],
        seconds=60,
    )
    assert watch.condition(seen, "Available")["status"] == "True"
    _, pipeline = yaml.safe_load_all((EXAMPLES / "pipeline.yaml").read_text())
    patched(target, {"spec": {"pod": {"env": pipeline["spec"]["pod"]["env"]}}})  # what serves: nothing is on trial
    ready(target)
