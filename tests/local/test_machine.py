"""What this machine must have, and which processes and groups are a cluster's own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tailhold_local import caches, cgroups, gpus, images, lifecycle, machine, processes, supervisor
from tailhold_local.api import readiness
from tailhold_local.device_plugin import devices
from tailhold_local.errors import LocalError
from tailhold_local.layout import Layout
from tailhold_local.locks import locked
from tailhold_local.machine import GIB, Machine
from tailhold_local.plan import Component, Holder, Plan
from tailhold_local.processes import Identity

GOOD = Machine(linux=True, root=True, memory=8 * GIB, disk=50 * GIB)


def test_a_good_machine_is_not_objected_to() -> None:
    assert machine.objection(GOOD, machine.DISK) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Machine(False, True, 8 * GIB, 50 * GIB), ("Linux",)),
        (Machine(True, False, 8 * GIB, 50 * GIB), ("root", "sudo")),
        (Machine(True, True, 3 * GIB, 50 * GIB), ("4 GiB", "3.0", "tailhold down")),
        (Machine(True, True, 8 * GIB, 1 * GIB), ("5 GiB", "1.0", "TAILHOLD_CACHE")),
    ],
)
def test_an_objection_names_need_and_have_and_the_next_step(found: Machine, said: tuple[str, ...]) -> None:
    reason = machine.objection(found, machine.DISK)
    assert reason is not None
    assert all(part in reason for part in said)


def test_available_memory_is_read() -> None:
    assert machine.available_memory("MemTotal: 10 kB\nMemAvailable:    4 kB\n") == 4096


def test_each_missing_package_is_named_once() -> None:
    present = {program: program not in ("containerd", "containerd-shim-runc-v2", "nft") for program in machine.PROGRAMS}
    assert machine.missing_packages(present) == ("containerd", "nftables")


def test_a_process_id_that_was_used_again_is_not_taken_for_the_first() -> None:
    child = subprocess.Popen(["sleep", "30"])
    identity = Identity.of(psutil.Process(child.pid))
    assert identity.process() is not None
    assert Identity(child.pid, identity.started - 1).process() is None
    child.kill()
    child.wait()
    assert identity.process() is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/usr/bin/python3", "-m", "tailhold_local.supervisor", "/s/demo/plan.json"], True),
        (["/usr/bin/python3", "-m", "tailhold_local.supervisor", "/s/other/plan.json"], False),
        (["unshare", "--pid", "python3", "-m", "tailhold_local.supervisor", "/s/demo/plan.json"], False),
        (["less", "/s/demo/plan.json"], False),
        ([], False),
    ],
)
def test_only_the_supervisor_of_a_plan_is_taken_for_it(command: list[str], expected: bool) -> None:
    assert processes.is_supervisor(command, Path("/s/demo/plan.json")) is expected


@pytest.fixture
def short_path() -> Iterator[Path]:
    """pytest's own folders are too deep for the sockets of a cluster."""
    with tempfile.TemporaryDirectory(prefix="tailhold-") as folder:
        yield Path(folder)


def test_a_cluster_of_the_same_name_from_another_state_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short_path: Path
) -> None:
    there, here, cache = short_path / "there", short_path / "here", short_path / "cache"
    plan = there / "twice" / "plan.json"
    plan.parent.mkdir(parents=True)
    used = Component("used", ("sh", "-c", "exec sleep 20", str(cache)))
    plan.write_text(Plan("tailhold-absent", plan.parent, (), (used,)).to_json())
    env = {**os.environ, "PYTHONPATH": str(Path(supervisor.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-m", processes.MODULE, str(plan)], env=env)
    try:
        assert lifecycle.namesake(Layout(here, "twice")) == plan.parent
        assert lifecycle.namesake(Layout(there, "twice")) is None, "it is no namesake of itself"
        assert lifecycle.namesake(Layout(here, "other")) is None
        monkeypatch.setenv("TAILHOLD_STATE", str(here))
        stop = f"TAILHOLD_STATE={there} tailhold down --name twice"
        lifecycle.down("twice")
        assert stop in capsys.readouterr().err
        assert process.poll() is None
        if os.geteuid() == 0:
            with pytest.raises(LocalError, match=f"another --name, or stop it first: `{stop}`"):
                lifecycle.up("twice")
        caches.refuse_while_used("demo")
        monkeypatch.setenv("TAILHOLD_CACHE", str(cache))
        with pytest.raises(LocalError, match=stop):
            caches.refuse_while_used("demo")
    finally:
        process.kill()
        process.wait()


def test_what_is_kept_is_shown_with_its_size_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILHOLD_CACHE", str(tmp_path / "cache"))
    for name in ("bin/helm", "uv-1.2/uv", "snapshots/demo/x", "mine/notes"):
        file = tmp_path / "cache" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * 100_000)
    found = caches.kept({"snapshots": "indexes"})
    assert [each.folder.name for each in found] == ["bin", "uv-1.2", "snapshots"]
    assert all(each.bytes_on_disk > 90_000 for each in found)
    caches.remove(found)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mine"]


def test_caches_stay_while_a_build_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILHOLD_CACHE", str(tmp_path))
    (tmp_path / "bin").mkdir()
    with images.alone(), pytest.raises(LocalError, match="a build runs"):
        caches.remove(caches.kept())
    assert (tmp_path / "bin").is_dir()


def test_mounts_are_taken_down_from_within() -> None:
    line = "36 35 98:0 / {} rw - overlay overlay rw"
    points = ("/c/images", "/c/images/store/overlay", "/c/images/store/overlay/1/merged", "/c/images-2", "/")
    mountinfo = "\n".join(line.format(point) for point in points)
    assert caches.mounts_below(Path("/c/images"), mountinfo) == (points[2], points[1], points[0])


def test_a_component_is_known_by_its_command_without_what_led_to_it() -> None:
    plan = Plan("g", Path("/l"), (), (Component("a", ("nsenter", "--net=x", "kubelet", "--config=a")),))
    assert processes.name_of(["kubelet", "--config=a"], plan) == "a"
    assert processes.name_of(["kubelet", "--config=b"], plan) is None
    assert processes.name_of([], plan) is None


def test_an_ended_component_is_due_again_after_a_pause() -> None:
    running = [
        supervisor.Running(Component("a", ("a",)), pid=7),
        supervisor.Running(Component("b", ("b",)), pid=8),
    ]
    supervisor.note_ended(running, {8: 1, 99: 0}, now=100.0)
    assert (running[0].pid, running[1].pid, running[1].due) == (7, None, 100.0 + supervisor.RESTART_AFTER)


def test_a_supervisor_makes_namespaces_first_and_starts_what_has_ended_again(tmp_path: Path) -> None:
    script = f"echo made >> {tmp_path}/once.log; echo made; exec sleep 3"
    holders = (Holder(tmp_path / "mnt.ns", ("sh", "-c", script)),)
    once = Component("once", ("sh", "-c", "echo started; exit 3"))
    plan = tmp_path / "plan.json"
    plan.write_text(Plan("tailhold-absent", tmp_path, holders, (once,)).to_json())
    command = [sys.executable, "-m", "tailhold_local.supervisor", str(plan)]
    env = {**os.environ, "PYTHONPATH": str(Path(supervisor.__file__).parents[1])}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while (tmp_path / "once.log").exists() is False or lines(tmp_path).count("started") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == 0
    assert lines(tmp_path)[:3] == ["made", "started", "started"]


def lines(folder: Path) -> list[str]:
    return (folder / "once.log").read_text().splitlines()


def test_both_kinds_of_hierarchies_are_read() -> None:
    mounts = (
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
        "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n"
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n"
    )
    found = cgroups.hierarchies(mounts)
    assert [(str(tree.folder), tree.unified) for tree in found] == [
        ("/sys/fs/cgroup/cpuset", False),
        ("/sys/fs/cgroup/unified", True),
    ]
    assert "cpuset" in found[0].controllers


def test_a_control_file_makes_gpus_fail_vanish_and_return(tmp_path: Path) -> None:
    control = gpus.GpuControl(tmp_path / "gpus.json")
    control.file.write_text(gpus.encode(gpus.named((0, 0, 1))))
    control.fail("gpu-0")
    control.vanish("gpu-2")
    assert [(each.ID, each.health) for each in devices(control.gpus())] == [
        ("gpu-0", "Unhealthy"),
        ("gpu-1", "Healthy"),
    ]
    control.restore()
    assert [(each.ID, each.topology.nodes[0].ID) for each in devices(control.gpus())] == [
        ("gpu-0", 0),
        ("gpu-1", 0),
        ("gpu-2", 1),
    ]
    with pytest.raises(KeyError, match="gpu-9"):
        control.fail("gpu-9")


def test_a_node_without_conditions_is_not_ready() -> None:
    ready = {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    unknown = {"metadata": {"name": "b"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert readiness({"items": [ready, unknown, {"metadata": {"name": "c"}}]}) == {
        "a": True,
        "b": False,
        "c": False,
    }


def test_a_lock_leaves_no_file(tmp_path: Path) -> None:
    with locked(tmp_path / "x.lock"):
        assert (tmp_path / "x.lock").exists()
        with pytest.raises(BlockingIOError), locked(tmp_path / "x.lock", wait=False):
            pass
    assert not list(tmp_path.iterdir())
