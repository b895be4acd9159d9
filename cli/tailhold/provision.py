"""A cluster with Tailhold on it: the local one from nothing, or the user's own by its context."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tailhold_local
from tailhold import volumes
from tailhold.demo import claims_folder, ensure_corpus, ensure_models, ensure_snapshots
from tailhold.install import Image, install, local_values
from tailhold.steps import Steps
from tailhold.target import Target, UnreachableError
from tailhold_local import Cluster, LocalError, binaries, machine
from tailhold_local.build_images import build_images
from tailhold_local.layout import OWN_FOLDER, Layout, cache_root, state_root
from tailhold_local.locks import locked

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "tailhold"
NAMESPACE = "default"
"""Where the example and its claims live."""


def local_cluster(
    steps: Steps, name: str, *, nodes: int = 1, gpus: int = 2, slot: int | None = None, full: bool = False
) -> tuple[Cluster, Target]:
    """A running local cluster with Tailhold installed and the example's claims in place."""
    with _alone(name):
        with steps.step("local Kubernetes"):
            cluster = tailhold_local.up(name, nodes=nodes, gpus=gpus, slot=slot)
        return cluster, equip(steps, cluster, full=full)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Refuse a second set-up of a cluster at once: it would wait for the first one, and then both would install."""
    machine.require_root()
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(Layout(state_root(), name).setup_lock, wait=False))
        except BlockingIOError:
            raise LocalError(
                f"cluster {name!r} is being set up by another command: wait until it has ended, or take another --name"
            ) from None
        yield


def equip(steps: Steps, cluster: Cluster, *, full: bool = False) -> Target:
    """Install Tailhold on a running local cluster, and put the example's claims in place."""
    target = target_of(cluster)
    with steps.step("models and documents"):
        _claim_folders(target, cache_root(), cluster)
    _install_local(steps, cluster, target, full=full)
    return target


def _claim_folders(target: Target, cache: Path, cluster: Cluster) -> None:
    """Put the example's claims in place and wait until they are bound: no pod is to be scheduled before."""
    ensure_models(cache)
    ensure_corpus(cache)
    claims = claims_folder(cache)
    folders = {
        "models": claims / "models",
        "documents": claims / "documents",
        "snapshots": ensure_snapshots(cache, cluster.name),
        "node": _node_folders(cluster),
    }
    target.apply(*volumes.manifests(folders, NAMESPACE))
    bound = ("--for=jsonpath={.status.phase}=Bound", "--timeout=60s")
    target.kubectl("wait", "-n", NAMESPACE, *bound, *(f"persistentvolumeclaim/{name}" for name in folders))


def _node_folders(cluster: Cluster) -> Path:
    """A path that is another folder on each node: a pod that claims it sees what holds for its node alone."""
    for letter in cluster.settings.letters:
        cluster.layout.node(letter).own.mkdir(parents=True, exist_ok=True)
    return Path(OWN_FOLDER)


def target_of(cluster: Cluster) -> Target:
    """The local cluster as commands speak to it."""
    programs = binaries.located()
    return Target(programs["kubectl"], programs["helm"], cluster.env)


def _install_local(steps: Steps, cluster: Cluster, target: Target, *, full: bool) -> None:
    with steps.step("images"):
        images = build_images(full=full)
        for image in images.values():
            cluster.load_image(image.archive)
    with steps.step("helm install tailhold"):
        operator, server = (Image.parse(images[key].reference) for key in ("operator", "server"))
        install(target, CHART, local_values(operator, server, mounted=not full))


def own_cluster(steps: Steps, context: str) -> Target:
    """Tailhold on the cluster of `context`, from the published images. Raises CommandError."""
    _program("helm")
    target = user_target(context)
    with steps.step(f"reaching {context}"):
        target.kubectl("version", "-o", "json", "--request-timeout", "10s")
    with steps.step("helm install tailhold"):
        install(target, CHART, {})
    return target


def user_target(context: str | None) -> Target:
    """The cluster of the user's own kubeconfig. Raises UnreachableError."""
    return Target(_program("kubectl"), shutil.which("helm") or "helm", context=context)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UnreachableError(
            f"{name} is not on PATH: install it, or start a local cluster with `tailhold up`, which brings its own;"
            " `tailhold status` prints the line for your shell"
        )
    return found
