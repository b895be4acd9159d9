"""The operator as a process of its own, with no more rights than it says it needs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import worlds
import yaml
from api_server import OPERATOR_TOKEN, OPERATOR_USER, ApiServer, free_ports, kubeconfig_of

from tailhold_api import names
from tailhold_operator.kinds import CHILD_KINDS, Manifest, path_of
from tailhold_operator.rbac import PIPELINE_RULES, RELEASE_RULES, Rule

RELEASE = "tailhold"
RESULT = json.dumps({"snapshot": "5" * 64, "documents": 3, "failedDocuments": 0, "chunks": 9})
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Site:
    """Two namespaces, one for the operator and one for a pipeline, and the operator's processes."""

    def __init__(self, api: ApiServer, admin: httpx.Client, folder: Path) -> None:
        self.api = api
        self.admin = admin
        self.folder = folder
        self.home, self.team = f"home-{folder.name}", f"team-{folder.name}"

    def make(self, path: str, body: Manifest) -> None:
        answer = self.admin.post(path, json=body)
        assert answer.is_success, answer.text

    def prepare(self) -> None:
        for namespace, level in ((self.home, "baseline"), (self.team, "restricted")):
            labels = {"pod-security.kubernetes.io/enforce": level}
            self.make("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
        self.grant(self.team, PIPELINE_RULES)
        self.grant(self.home, RELEASE_RULES)
        config = kubeconfig_of(self.api.url, self.api.ca, OPERATOR_TOKEN)
        (self.folder / "kubeconfig").write_text(yaml.safe_dump(config))

    def grant(self, namespace: str, rules: tuple[Rule, ...]) -> None:
        path = f"{RBAC}/namespaces/{namespace}"
        self.make(f"{path}/roles", {"metadata": {"name": "operator"}, "rules": [rendered(each) for each in rules]})
        subject = {"kind": "User", "name": OPERATOR_USER, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "Role", "name": "operator", "apiGroup": "rbac.authorization.k8s.io"}
        self.make(
            f"{path}/rolebindings",
            {"metadata": {"name": "operator"}, "subjects": [subject], "roleRef": reference},
        )

    @contextmanager
    def operator(self) -> Iterator["Process"]:
        (health,) = free_ports(1)
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "TAILHOLD_NAMESPACES": json.dumps([self.team]),
            "TAILHOLD_RELEASE_NAME": RELEASE,
            "TAILHOLD_RELEASE_NAMESPACE": self.home,
            "TAILHOLD_RESYNC_SECONDS": "5",
            "TAILHOLD_HEALTH_PORT": str(health),
            "TAILHOLD_METRICS_PORT": "0",
        }
        log = self.folder / f"operator-{health}.log"
        with log.open("wb") as out:
            command = [sys.executable, "-m", "tailhold_operator"]
            process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=self.folder)
            try:
                yield Process(process, health, log)
            finally:
                process.kill()
                process.wait()

    def put(self, body: dict[str, Any]) -> None:
        manifest = worlds.pipeline(body)
        manifest["metadata"]["namespace"] = self.team
        headers = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": "user", "force": "true"}
        answer = self.admin.patch(self.path(names.KIND, worlds.NAME), json=manifest, params=query, headers=headers)
        assert answer.is_success, answer.text

    def path(self, kind: str, name: str | None = None, sub: str | None = None) -> str:
        return path_of(kind, self.team, name, sub)

    def get(self, kind: str, name: str) -> Manifest:
        answer = self.admin.get(self.path(kind, name))
        return dict(answer.json()) if answer.is_success else {}

    def all(self, kind: str) -> list[Manifest]:
        query = {"labelSelector": names.LABEL_PIPELINE_UID}
        return list(self.admin.get(self.path(kind), params=query).json()["items"])

    def condition(self, kind: str) -> Manifest:
        found = self.get(names.KIND, worlds.NAME).get("status", {}).get("conditions", ())
        return next((each for each in found if each["type"] == kind), {})

    def versions(self) -> dict[str, str]:
        found = [(kind, each) for kind in CHILD_KINDS for each in self.all(kind)]
        found.append((names.KIND, self.get(names.KIND, worlds.NAME)))
        return {f"{kind}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for kind, each in found}

    def bind_job(self) -> None:
        """Play the scheduler."""
        name = self.job_pod(names.LABEL_BUILD)["metadata"]["name"]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "nowhere"}}
        assert self.admin.post(self.path("Pod", name, "binding"), json=binding).is_success

    def job_pod(self, label: str) -> Manifest:
        def made() -> Manifest:
            return next((each for each in self.all("Pod") if label in each["metadata"]["labels"]), {})

        return dict(until(made))

    def finish_jobs(self) -> None:
        """Play kubelet, for both Jobs."""
        self.finish_inspection()
        self.finish(self.job_pod(names.LABEL_BUILD), RESULT)

    def finish_inspection(self) -> None:
        pod = self.job_pod(names.LABEL_INSPECTION)
        config = next(each for each in self.all("ConfigMap") if worlds.is_inspected(each | {"kind": "ConfigMap"}))
        self.finish(pod, worlds.found(config))

    def finish(self, pod: Manifest, message: str) -> None:
        ended = {
            "exitCode": 0,
            "message": message,
            "reason": "Completed",
            "finishedAt": "2026-01-01T00:00:00Z",
        }
        container = {"name": "index", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [container | {"state": {"terminated": ended}}]}
        path = self.path("Pod", pod["metadata"]["name"], "status")
        headers = {"Content-Type": "application/merge-patch+json"}
        assert self.admin.patch(path, json={"status": status}, headers=headers).is_success

    def seen(self) -> list[tuple[str, str, str]]:
        """What the operator did in these namespaces: group, resource with subresource, verb."""
        lines = map(json.loads, self.api.audit_log.read_text().splitlines())
        mine = (each for each in lines if each["user"]["username"] == OPERATOR_USER and "objectRef" in each)
        here = (each for each in mine if each["objectRef"].get("namespace") in (self.home, self.team))
        return [
            (each["objectRef"].get("apiGroup", ""), resource(each["objectRef"]), verb)
            for each in here
            for verb in verbs(each)
        ]


class Process:
    """A running operator."""

    def __init__(self, process: subprocess.Popen[bytes], health: int, log: Path) -> None:
        self.process = process
        self.health = health
        self.log = log

    def healthy(self) -> int:
        try:
            return httpx.get(f"http://127.0.0.1:{self.health}/healthz", timeout=5).status_code
        except httpx.HTTPError:
            return 0

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def verbs(event: Manifest) -> tuple[str, ...]:
    """Server-side apply of what is not there is asked for as a patch, and needs the right to create."""
    made = event["verb"] == "patch" and event["responseStatus"]["code"] == httpx.codes.CREATED
    return ("patch", "create") if made else (event["verb"],)


def resource(reference: Manifest) -> str:
    return "/".join(filter(None, (reference.get("resource", ""), reference.get("subresource"))))


def rendered(rule: Rule) -> Manifest:
    found: Manifest = {
        "apiGroups": [rule.group],
        "resources": list(rule.resources),
        "verbs": list(rule.verbs),
    }
    if rule.resource_names:
        found["resourceNames"] = [name.format(release=RELEASE) for name in rule.resource_names]
    return found


def until(look: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("it never came")


@pytest.fixture
def site(api: ApiServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    folder = tmp_path / f"{abs(hash(request.node.name)) % 10**8}"
    folder.mkdir()
    with api.client() as admin:
        site = Site(api, admin, folder)
        site.prepare()
        yield site


def granted() -> set[tuple[str, str, str]]:
    rules = PIPELINE_RULES + RELEASE_RULES
    return {(rule.group, each, verb) for rule in rules for each in rule.resources for verb in rule.verbs}


def test_it_works_with_the_rights_that_it_says_it_needs_and_uses_them_all(site: Site) -> None:
    """C11, C12, C15, C17: one start, one life, one deletion."""
    with site.operator() as running:
        until(lambda: running.healthy() == httpx.codes.OK)
        site.put(worlds.spec())
        site.finish_inspection()
        site.bind_job()
        until(lambda: ("", "events", "list") in set(site.seen()))  # why its containers are not made
        site.finish(site.job_pod(names.LABEL_BUILD), RESULT)
        until(lambda: site.all("Deployment"))
        until(lambda: site.condition("RolledOut").get("reason") == "WaitingForPods")
        quiet = until_quiet(site)
        time.sleep(11)  # two resyncs
        assert site.versions() == quiet
        site.put(worlds.spec(engine={"blockSizeTokens": 64}))
        until(lambda: len(site.all("Deployment")) == 1 and site.versions() != quiet)
        refuse_pods(site, 5)
        until(lambda: refused(site) == 3)
        rebuild(site, 3)
        site.admin.delete(site.path(names.KIND, worlds.NAME))
        until(lambda: not any(site.all(kind) for kind in CHILD_KINDS if kind != "Pod"))
        assert running.healthy() == httpx.codes.OK
        assert running.stop() == 0, running.log.read_text()[-2000:]
        text = running.log.read_text()
    assert "Traceback" not in text
    assert "403" not in text
    used = set(site.seen())
    assert used - granted() == set()
    assert granted() - used == set()
    lease = site.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{site.home}/leases/{RELEASE}").json()
    assert lease["spec"].get("holderIdentity", "") == ""


def until_quiet(site: Site) -> dict[str, str]:
    """Versions once they have stood still for two seconds."""
    before: dict[str, str] = {}
    for _ in range(30):
        now = site.versions()
        if now == before:
            return now
        before = now
        time.sleep(2)
    raise AssertionError("never quiet")


def rebuild(site: Site, times: int) -> None:
    """Ask for new builds until old Jobs have to go."""
    headers = {"Content-Type": "application/merge-patch+json"}
    for at in range(times):
        body = {"metadata": {"annotations": {names.ANNOTATION_REBUILD: str(at)}}}
        before = {each["metadata"]["name"] for each in site.all("Job")}
        site.admin.patch(site.path(names.KIND, worlds.NAME), json=body, headers=headers).raise_for_status()
        until(lambda before=before: {each["metadata"]["name"] for each in site.all("Job")} - before)
    until(lambda: len(site.all("Job")) == 2)


def refuse_pods(site: Site, count: int) -> None:
    """Pods that a node did not admit."""
    template = site.all("Deployment")[0]["spec"]["template"]
    headers = {"Content-Type": "application/merge-patch+json"}
    for at in range(count):
        metadata = {"name": f"refused-{at}", "labels": template["metadata"]["labels"]}
        site.make(site.path("Pod"), {"metadata": metadata, "spec": template["spec"] | {"restartPolicy": "Never"}})
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device"}
        path = site.path("Pod", f"refused-{at}", "status")
        site.admin.patch(path, json={"status": status}, headers=headers).raise_for_status()


def refused(site: Site) -> int:
    return sum(each["metadata"]["name"].startswith("refused-") for each in site.all("Pod"))


def test_a_second_operator_waits_and_takes_over(site: Site) -> None:
    """C17: nothing is done twice, and little is waited for when the first one ends."""
    with site.operator() as first:
        until(lambda: first.healthy() == httpx.codes.OK)
        until(lambda: "leading" in first.log.read_text())
        with site.operator() as second:
            until(lambda: second.healthy() == httpx.codes.OK)
            site.put(worlds.spec())
            until(lambda: site.all("Job"))
            assert "leading" not in second.log.read_text()
            assert first.stop() == 0
            until(lambda: "leading" in second.log.read_text(), seconds=10)
            site.finish_jobs()
            until(lambda: site.all("Deployment"))
            assert len(site.all("Job")) == 1
            assert second.stop() == 0
