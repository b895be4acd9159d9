"""Starts, stops and describes clusters.

A cluster is either whole behind a running supervisor or it is remains: `up` and `down` treat whatever a
crash, Ctrl-C or SIGKILL left behind as remains, remove it, and go on.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tailhold_local import addons, binaries, cgroups, files, images, machine, network, node, processes
from tailhold_local.addresses import SLOTS, Addresses
from tailhold_local.cluster import Cluster
from tailhold_local.errors import LocalError
from tailhold_local.layout import Layout, cache_root, state_root
from tailhold_local.locks import locked
from tailhold_local.plan import Settings
from tailhold_local.progress import Progress

DEFAULT_NAME = "demo"
READY_WITHIN = 90.0
SLOTS_LOCK = ".slots.lock"
"""Held while slots are shared out, and so while anything that clusters share comes or goes."""


@dataclass(frozen=True)
class Status:
    """How a cluster is."""

    cluster: Cluster
    components: dict[str, int | None]
    """Every component and its process id, None for one that does not run."""
    nodes: dict[str, bool]
    """Every node that the API server knows, and whether it is Ready."""

    @property
    def ready(self) -> bool:
        """Whether everything runs."""
        known = set(self.nodes) >= set(self.cluster.nodes)
        return known and all(self.nodes.values()) and None not in self.components.values()


def up(
    name: str = DEFAULT_NAME,
    *,
    nodes: int = 1,
    gpus: int = 0,
    gpu_numa: tuple[int, ...] = (0,),
    slot: int | None = None,
    progress: Progress | None = None,
) -> Cluster:
    """Start a cluster, or find it running, and return it once every node is Ready."""
    progress = progress or Progress()
    layout = Layout(state_root(), name)
    wanted = Settings(slot if slot is not None else 0, nodes, gpus, gpu_numa)
    machine.require_root()
    _refuse_a_namesake(layout)
    disk = machine.DISK_TO_BUILD if binaries.missing() else machine.DISK
    with locked(layout.lock):
        running = _running(layout)
        if running:
            _refuse_another_shape(running, wanted, slot)
            progress.say(f"cluster {name} is running already")
            return _finish(running, progress)
        machine.check(cache_root(), disk)
        machine.install_missing(progress)
        built = binaries.ensure(progress)
        images.ensure_pause_image(progress)
        with progress.step(f"starting cluster {name}"):
            cluster = _start(layout, wanted, slot, built)
        return _finish(cluster, progress)


def down(name: str = DEFAULT_NAME, *, progress: Progress | None = None) -> None:
    """Stop a cluster and remove all it left: processes, mounts, links, cgroups and files."""
    progress = progress or Progress()
    layout = Layout(state_root(), name)
    if (other := namesake(layout)) and not layout.folder.exists():
        progress.say(f"cluster {name} runs from {other.parent}: `{_down(other)}` stops it")
    if not layout.root.exists():
        return
    machine.require_root()
    with locked(layout.lock), progress.step(f"stopping cluster {name}"):
        _remove(layout)
        with locked(layout.root / SLOTS_LOCK):
            _remove_mount_points()
    _remove_if_empty(layout.root)


def status(name: str = DEFAULT_NAME) -> Status:
    """What runs of a cluster and what its API server says."""
    cluster = Cluster.find(name)
    pids = cluster.pids()
    plan = files.plan(cluster.layout, cluster.addresses, cluster.settings, binaries.located())
    running = {name: identity.pid for name, identity in pids.items()}
    components = {each.name: running.get(each.name) for each in plan.components}
    nodes = cluster.api.nodes() if (cluster.layout.pki / "admin.crt").exists() else {}
    return Status(cluster, components, nodes)


def names() -> tuple[str, ...]:
    """The clusters of this machine, running or not."""
    return tuple(sorted(path.parent.name for path in state_root().glob("*/cluster.json")))


def namesake(layout: Layout) -> Path | None:
    """The folder of a cluster of the same name that runs from another state folder."""
    return next((home for home in processes.homes() if home.name == layout.name and home != layout.folder), None)


def choose_slot(wanted: int | None, taken: dict[int, str], clash: Callable[[int], str | None]) -> int:
    """The slot to use: the wanted one if it is free, else the first free one."""
    for slot in SLOTS if wanted is None else (wanted,):
        reason = f"cluster {taken[slot]!r} has it" if slot in taken else clash(slot)
        if reason is None:
            return slot
        if wanted is not None:
            raise LocalError(f"slot {slot} cannot be used: {reason}. Leave --slot out, or name another")
    raise LocalError(
        f"all slots are in use ({', '.join(sorted(taken.values())) or 'by foreign routes'}):"
        " `tailhold down --name NAME` frees one"
    )


def _start(layout: Layout, wanted: Settings, slot: int | None, built: binaries.Binaries) -> Cluster:
    with locked(layout.root / SLOTS_LOCK):
        _remove(layout)
        taken = {Cluster.find(name).settings.slot: name for name in names()}
        chosen = choose_slot(slot, taken, lambda each: network.clash(Addresses(each)))
        settings = replace(wanted, slot=chosen)
        layout.folder.mkdir(parents=True)
        layout.settings.write_text(settings.to_json())
    files.write(layout, settings, built)
    files.make_node_folders(layout, settings.letters)
    network.create(layout, Addresses(chosen), settings.letters)
    cgroups.create(layout.name, tuple(f"node-{letter}" for letter in settings.letters))
    processes.start_supervisor(layout)
    return Cluster(layout, settings)


def _finish(cluster: Cluster, progress: Progress) -> Cluster:
    with progress.step("loading the pause image"):
        for letter in cluster.settings.letters:
            _load_pause(cluster, letter, images.ensure_pause_image(progress))
    with progress.step("waiting for the API server"):
        _wait(cluster, "kube-apiserver", cluster.api.ready)
    with progress.step("setting up DNS"):
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=addons.manifests(cluster.addresses))
    with progress.step(f"waiting for {' and '.join(cluster.nodes)}"):
        for letter in cluster.settings.letters:
            _wait(cluster, f"kubelet-{letter}", partial(_node_ready, cluster, f"node-{letter}"))
        _wait(cluster, "kube-controller-manager", cluster.api.has_default_account)
    return cluster


def _node_ready(cluster: Cluster, name: str) -> bool:
    return cluster.api.nodes().get(name, False)


def _load_pause(cluster: Cluster, letter: str, archive: Path) -> None:
    name = cluster.addresses.node(letter).name
    _wait(cluster, f"containerd-{letter}", cluster.layout.node(letter).containerd_socket.exists)
    if node.PAUSE not in cluster.image_ids(name):
        cluster.load_image(archive, node=name)


def _wait(cluster: Cluster, component: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while not ready():
        if time.monotonic() > deadline:
            raise LocalError(
                f"{component} is not ready after {READY_WITHIN:.0f} s; `tailhold down --name {cluster.name}`"
                f" cleans up. Log: {cluster.logs / component}.log and ends:\n{cluster.tail(component, 8)}"
            )
        time.sleep(0.1)


def _running(layout: Layout) -> Cluster | None:
    alive = layout.settings.exists() and processes.find_supervisor(layout)
    return Cluster.find(layout.name) if alive else None


def _refuse_another_shape(running: Cluster, wanted: Settings, slot: int | None) -> None:
    same_slot = replace(wanted, slot=running.settings.slot)
    if running.settings != same_slot or slot not in (None, running.settings.slot):
        raise LocalError(
            f"cluster {running.name!r} runs with {running.settings.described()}, and was asked for with"
            f" {wanted.described()}: `tailhold down --name {running.name}` first, or take another --name"
        )


def _refuse_a_namesake(layout: Layout) -> None:
    if other := namesake(layout):
        raise LocalError(
            f"a cluster named {layout.name!r} runs already, from the state folder {other.parent}, and control groups go"
            f" by that name: take another --name, or stop it first: `{_down(other)}`"
        )


def _down(home: Path) -> str:
    return f"TAILHOLD_STATE={home.parent} tailhold down --name {home.name}"


def _remove(layout: Layout) -> None:
    supervisor = processes.find_supervisor(layout)
    if supervisor:
        processes.kill(supervisor)
    settings = Settings.from_json(layout.settings.read_text()) if layout.settings.exists() else None
    network.remove(layout, Addresses(settings.slot).link if settings else None)
    if not namesake(layout):
        cgroups.remove(layout.name)
    if layout.folder.exists():
        shutil.rmtree(layout.folder)


def _remove_mount_points() -> None:
    """Remove the folders made for nodes to mount on, unless a cluster uses them.

    The kernel lets a folder go that is mounted on in another namespace, and takes the mount away with it.
    """
    if not names() and not processes.homes():
        for point in node.OWN_MOUNT_POINTS:
            _remove_if_empty(Path(point))


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
