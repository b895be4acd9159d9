"""The local cluster does what a Kubernetes does, and leaves nothing."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tailhold_local import Cluster, LocalError, cgroups, network, processes
from tailhold_local.addresses import Addresses
from tailhold_local.base_image import ensure_base_image
from tailhold_local.layout import Layout, cache_root, state_root
from tailhold_local.lifecycle import down, names, status, up
from tailhold_local.node import OWN_MOUNT_POINTS
from tailhold_local.progress import Silent

pytestmark = pytest.mark.cluster

NAMESPACE = "local-tests"
SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080)"
SLEEP = "import time; time.sleep(9999)"
ONE_CORE = {"cpu": "1", "memory": "64Mi"}
CRASHING = f"crash-{os.getpid()}"


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def image(cluster: Cluster) -> str:
    tag = ensure_base_image()
    for node in cluster.nodes:
        if tag not in cluster.image_ids(node):
            cluster.load_image(cache_root() / "images" / f"base-{tag.rsplit(':', 1)[1]}.tar", node=node)
    return tag


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    cluster.kubectl("create", "namespace", NAMESPACE)
    until(lambda: "default" in cluster.kubectl("get", "serviceaccounts", "-n", NAMESPACE, "-o", "name"))
    yield NAMESPACE
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true", timeout=60)


@pytest.fixture(scope="module")
def run(cluster: Cluster, image: str, namespace: str) -> Callable[..., None]:
    """Start a pod of one Python program."""

    def start(name: str, program: str, *, resources: dict[str, str] | None = None, ready: bool = True) -> None:
        container = {
            "name": "program",
            "image": image,
            "imagePullPolicy": "Never",
            "command": ["python3", "-u", "-c", program],
            "resources": {"limits": resources or {}},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        if ready:
            cluster.kubectl("wait", "-n", namespace, "--for=condition=Ready", f"pod/{name}", "--timeout=30s")

    return start


@pytest.fixture(scope="module")
def web(cluster: Cluster, run: Callable[..., None], namespace: str) -> str:
    """The address of a Service before a web server."""
    run("server", SERVE)
    cluster.kubectl("expose", "pod", "server", "-n", namespace, "--name=web", "--port=80", "--target-port=8080")
    address = cluster.kubectl("get", "service", "web", "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")
    until(lambda: bool(_endpoints(cluster)))
    return address


def _endpoints(cluster: Cluster) -> str:
    path = "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses}"
    labels = "kubernetes.io/service-name=web"
    return cluster.kubectl("get", "endpointslices", "-n", NAMESPACE, "-l", labels, "-o", path)


@pytest.fixture(scope="module")
def inside(cluster: Cluster, run: Callable[..., None], namespace: str) -> Callable[[str], str]:
    """Run Python in a pod."""
    run("client", SLEEP)

    def execute(program: str) -> str:
        return cluster.kubectl("exec", "-n", namespace, "client", "--", "python3", "-c", program).strip()

    return execute


def _delete(cluster: Cluster, *pods: str) -> None:
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, *pods, "--grace-period=0", "--force", "--wait=true")


def _gpus(cluster: Cluster, kind: str) -> str:
    return cluster.kubectl("get", "node", "node-a", "-o", f"jsonpath={{.status.{kind}.nvidia\\.com/gpu}}")


@pytest.fixture
def gpus(cluster: Cluster) -> Iterator[int]:
    if cluster.settings.gpus < 2:
        pytest.skip("this cluster was started with fewer than two stand-in GPUs")
    until(lambda: _gpus(cluster, "allocatable") == str(cluster.settings.gpus))
    yield cluster.settings.gpus
    cluster.gpus().restore()


def test_every_component_runs_and_every_node_is_ready(cluster: Cluster) -> None:
    found = status(cluster.name)
    assert found.ready
    assert set(found.nodes) == set(cluster.nodes)


def test_up_again_changes_nothing(cluster: Cluster) -> None:
    before = cluster.pids()
    settings = cluster.settings
    again = up(
        cluster.name,
        nodes=settings.nodes,
        gpus=settings.gpus,
        gpu_numa=settings.gpu_numa,
        progress=Silent(),
    )
    assert again == cluster
    assert cluster.pids() == before


def test_up_with_another_shape_is_refused(cluster: Cluster) -> None:
    with pytest.raises(LocalError, match="tailhold down"):
        up(cluster.name, gpus=cluster.settings.gpus + 1, progress=Silent())


def test_the_slot_of_a_running_cluster_is_refused_to_another(cluster: Cluster) -> None:
    with pytest.raises(LocalError, match=cluster.name):
        up("another", slot=cluster.settings.slot, progress=Silent())
    assert "another" not in names()


def test_a_service_answers_the_host_and_a_pod(web: str, inside: Callable[[str], str]) -> None:
    assert urllib.request.urlopen(f"http://{web}/", timeout=5).status == 200
    ask = "import urllib.request as u; print(u.urlopen('http://web/', timeout=5).status)"
    assert inside(ask) == "200"


def test_names_of_services_resolve_in_a_pod(web: str, inside: Callable[[str], str]) -> None:
    resolve = f"import socket; print(socket.gethostbyname('web.{NAMESPACE}.svc.cluster.local'))"
    assert inside(resolve) == web


def test_names_outside_the_cluster_are_answered_no_at_once(inside: Callable[[str], str]) -> None:
    took = inside(
        "import socket, time\nstarted = time.monotonic()\n"
        "try: socket.gethostbyname('www.example.com')\n"
        "except socket.gaierror: print(time.monotonic() - started)"
    )
    assert float(took) < 2


def test_addresses_outside_the_cluster_are_unreachable_at_once(inside: Callable[[str], str]) -> None:
    reason = inside(
        "import socket\n"
        "try: socket.create_connection(('192.0.2.1', 80), 5)\n"
        "except OSError as error: print(error.errno)"
    )
    assert reason == "101"


def test_the_kubernetes_api_answers_a_pod(inside: Callable[[str], str]) -> None:
    version = inside(
        "import ssl, urllib.request as u\n"
        "ca = '/var/run/secrets/kubernetes.io/serviceaccount/ca.crt'\n"
        "tls = ssl.create_default_context(cafile=ca)\n"
        "print(u.urlopen('https://kubernetes.default.svc/version', context=tls, timeout=5).read().decode())"
    )
    assert json.loads(version)["gitVersion"].startswith("v1.34.")


def test_logs_of_a_pod_can_be_read(cluster: Cluster, web: str) -> None:
    assert "Serving HTTP" in cluster.kubectl("logs", "-n", NAMESPACE, "server")


def test_helm_reaches_the_cluster(cluster: Cluster) -> None:
    assert isinstance(json.loads(cluster.helm("list", "--all-namespaces", "--output", "json")), list)


def test_who_did_what_is_in_the_audit_log(cluster: Cluster) -> None:
    lines = (cluster.logs / "audit.log").read_text().splitlines()
    users = {json.loads(line)["user"]["username"] for line in lines[-2000:]}
    assert "kubernetes-admin" in users or "system:node:node-a" in users


def test_a_guaranteed_pod_owns_a_core_alone(cluster: Cluster, run: Callable[..., None]) -> None:
    run("owner", SLEEP, resources=ONE_CORE)
    run("other", SLEEP)
    owned, shared = _cores(cluster, "owner"), _cores(cluster, "other")
    assert len(owned) == 1
    assert shared
    assert not owned & shared
    _delete(cluster, "owner", "other")


def _cores(cluster: Cluster, pod: str) -> set[int]:
    program = "import os; print(*os.sched_getaffinity(0))"
    printed = cluster.kubectl("exec", "-n", NAMESPACE, pod, "--", "python3", "-c", program)
    return {int(core) for core in printed.split()}


def test_a_pod_gets_the_gpus_it_asks_for(cluster: Cluster, run: Callable[..., None], gpus: int) -> None:
    run("one-gpu", SLEEP, resources={**ONE_CORE, "nvidia.com/gpu": "1"})
    given = cluster.kubectl("exec", "-n", NAMESPACE, "one-gpu", "--", "printenv", "NVIDIA_VISIBLE_DEVICES")
    assert given.strip() in {gpu.id for gpu in cluster.gpus().gpus()}
    run("too-many", SLEEP, resources={"nvidia.com/gpu": str(gpus)}, ready=False)
    until(lambda: "Insufficient nvidia.com/gpu" in _why_pending(cluster, "too-many"))
    _delete(cluster, "one-gpu", "too-many")


def _why_pending(cluster: Cluster, pod: str) -> str:
    path = "jsonpath={.status.conditions[*].message}"
    return cluster.kubectl("get", "pod", "-n", NAMESPACE, pod, "-o", path)


def test_gpus_fail_vanish_and_return(cluster: Cluster, gpus: int) -> None:
    control, fewer, all_of_them = cluster.gpus(), str(gpus - 1), str(gpus)
    control.fail("gpu-0")
    until(lambda: (_gpus(cluster, "allocatable"), _gpus(cluster, "capacity")) == (fewer, all_of_them))
    control.vanish("gpu-0")
    until(lambda: (_gpus(cluster, "allocatable"), _gpus(cluster, "capacity")) == (fewer, fewer))
    control.restore("gpu-0")
    until(lambda: (_gpus(cluster, "allocatable"), _gpus(cluster, "capacity")) == (all_of_them, all_of_them))


def test_a_killed_kubelet_and_device_plugin_come_back(cluster: Cluster, gpus: int) -> None:
    before = cluster.pids()
    for name in ("kubelet-a", "gpus-a"):
        psutil.Process(before[name].pid).kill()
    until(lambda: _new(cluster, before, "kubelet-a") and _new(cluster, before, "gpus-a"))
    until(lambda: status(cluster.name).ready and _gpus(cluster, "allocatable") == str(gpus), seconds=30)


def _new(cluster: Cluster, before: dict[str, Any], name: str) -> bool:
    now = cluster.pids()
    return name in now and now[name] != before[name]


def test_a_cluster_that_comes_and_goes_does_not_disturb_another(cluster: Cluster, crashing: Layout) -> None:
    before = cluster.pids()
    up(CRASHING, progress=Silent())
    down(CRASHING, progress=Silent())
    assert cluster.pids() == before
    assert status(cluster.name).ready
    socket = "/var/lib/kubelet/device-plugins/kubelet.sock"
    seen = ["nsenter", "--mount", "--target", str(before["kubelet-a"].pid), "test", "-S", socket]
    assert subprocess.run(seen, check=False).returncode == 0


def remains(layout: Layout, slot: int, members: list[psutil.Process]) -> list[str]:
    """What a cluster left behind, in words."""
    folder = str(layout.folder)
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder in line]
    groups = [str(group) for group in cgroups.leftovers(layout.name)]
    alive = [f"process {each.pid}" for each in members if each.is_running()]
    link = Addresses(slot).link
    links = [link] if network.exists(link) else []
    routes = [route for route, interface in network.routes().items() if interface == link]
    files = [str(path) for path in (layout.folder, layout.lock) if path.exists()]
    points = [point for point in OWN_MOUNT_POINTS if Path(point).exists() and not names()]
    return [*mounts, *groups, *alive, *links, *routes, *files, *points]


def _members(layout: Layout) -> list[psutil.Process]:
    supervisor = processes.find_supervisor(layout)
    return [supervisor, *supervisor.children(recursive=True)] if supervisor else []


@pytest.fixture
def crashing() -> Iterator[Layout]:
    down(CRASHING, progress=Silent())
    yield Layout(state_root(), CRASHING)
    down(CRASHING, progress=Silent())


def _start_and_stop(seconds: float, how: signal.Signals) -> None:
    """Run `up` in a process of its own and cut it off."""
    # As in a terminal: a shell has what it runs in the background ignore Ctrl-C.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tailhold_local", "up", "--name", CRASHING]
    env = {**os.environ, "PYTHONPATH": str(Path(processes.__file__).parents[1])}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.send_signal(how)
    process.wait(timeout=10)


@pytest.mark.parametrize(("seconds", "how"), [(0.35, signal.SIGKILL), (0.6, signal.SIGINT), (2.5, signal.SIGKILL)])
def test_down_leaves_nothing_of_an_up_that_was_cut_off(crashing: Layout, seconds: float, how: signal.Signals) -> None:
    _start_and_stop(seconds, how)
    members = _members(crashing)
    slot = Cluster.find(CRASHING).settings.slot if CRASHING in names() else 9
    down(CRASHING, progress=Silent())
    assert remains(crashing, slot, members) == []


def test_up_goes_on_after_a_crash_and_down_leaves_nothing(crashing: Layout, image_archive: Path) -> None:
    _start_and_stop(1.5, signal.SIGKILL)
    started = up(CRASHING, nodes=1, progress=Silent())
    assert status(CRASHING).ready
    started.load_image(image_archive)
    pod = {"containers": [{"name": "c", "image": ensure_base_image(), "imagePullPolicy": "Never"}]}
    pod["containers"][0] |= {"command": ["python3", "-c", SLEEP]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left"}, "spec": pod}
    started.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    started.kubectl("wait", "--for=condition=Ready", "pod/left", "--timeout=30s")
    members = _members(crashing)
    assert any(member.name() == "python3" for member in members)
    processes.find_supervisor(crashing).kill()  # a crash of all, in one blow
    down(CRASHING, progress=Silent())
    assert remains(crashing, started.settings.slot, members) == []


@pytest.fixture
def image_archive() -> Path:
    tag = ensure_base_image()
    return cache_root() / "images" / f"base-{tag.rsplit(':', 1)[1]}.tar"
