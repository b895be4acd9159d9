"""`tailhold demo`: the whole product on this machine, from nothing to three cited answers."""

import os
import time
from typing import Any

import yaml
from rich.console import Console

from tailhold import provision, watch
from tailhold.ask import Endpoint
from tailhold.asking import print_answer
from tailhold.closing import print_next_steps
from tailhold.demo import EMBEDDER, claims_folder, snapshots_folder
from tailhold.questions import hit_rate, load_questions
from tailhold.steps import Steps
from tailhold.target import Target
from tailhold_local import Cluster, down
from tailhold_local.layout import cache_root

ROOT = provision.ROOT
CLUSTER = "demo"
NAMESPACE = provision.NAMESPACE
EXAMPLE = ROOT / "examples" / "ragpipeline.yaml"
QUESTIONS = ROOT / "examples" / "questions.yaml"
READY_SECONDS = 900
ASKED = 3
ANSWER_TOKENS = 96


def stop(console: Console) -> None:
    """Stop the demo's cluster; no process, mount or interface of it is left, and what the next start uses again is."""
    with Steps(console).step("stopping the demo's cluster"):
        down(CLUSTER)


def run(console: Console, *, full: bool) -> None:
    """Set up, apply, wait, ask, and say what to try next."""
    start = time.monotonic()
    steps = Steps(console)
    cluster, target = provision.local_cluster(steps, CLUSTER, full=full)
    with steps.step("kubectl apply -f examples/ragpipeline.yaml"):
        target.kubectl("apply", "-n", NAMESPACE, "-f", str(EXAMPLE))
    pipeline = _wait(steps, target)
    console.print(target.kubectl("get", "ragp", "-n", NAMESPACE), markup=False)
    questions = load_questions(QUESTIONS)
    url = service_url(target, NAMESPACE, pipeline["metadata"]["name"])
    for question in questions[:ASKED]:
        console.rule()
        console.print(f"[bold]{question.text}[/bold]")
        print_answer(console, Endpoint(url), question.text, ANSWER_TOKENS)
    _print_hit_rate(console, cluster, pipeline)
    _print_next(console, cluster, url, time.monotonic() - start)


def service_url(target: Target, namespace: str, name: str) -> str:
    """Where this machine reaches the pipeline: the Service's own address."""
    service = target.get("service", name, "-n", namespace)
    if service is None:
        raise watch.NotReadyError(f"there is no Service {name} in namespace {namespace}")
    return f"http://{service['spec']['clusterIP']}/v1"


def _wait(steps: Steps, target: Target) -> dict[str, Any]:
    name = yaml.safe_load(EXAMPLE.read_text())["metadata"]["name"]
    with steps.step("waiting for READY") as note:
        return watch.until_ready(target, NAMESPACE, name, timeout_seconds=READY_SECONDS, on_change=note)


def _print_hit_rate(console: Console, cluster: Cluster, pipeline: dict[str, Any]) -> None:
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # heard by the next import alone
    from tailhold.index import searcher

    store, embedder = snapshots_folder(cache_root(), cluster.name), claims_folder(cache_root()) / "models" / EMBEDDER
    search = searcher(store, pipeline["status"]["snapshot"]["digest"], embedder)
    found = hit_rate(load_questions(QUESTIONS), search)
    console.rule()
    console.print(f"hit rate at 5 over {found.asked} questions: {found.rate:.2f}")
    for miss in found.misses:
        console.print(f"  missed: {miss}", markup=False, style="dim", soft_wrap=True)


def _print_next(console: Console, cluster: Cluster, url: str, seconds: float) -> None:
    console.rule()
    console.print(f"ready after {seconds:.0f} s", highlight=False)
    print_next_steps(
        console,
        cluster,
        "kubectl get ragp -o wide",
        """kubectl patch ragp handbook --type merge -p '{"spec":{"retrieval":{"topK":3}}}'   # restarts nothing""",
        f'tailhold ask --url {url} "How do I add a user to a group?"',
        "scripts/demo --down",
    )
