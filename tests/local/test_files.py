"""What a cluster is started from: plans, configurations, versions, certificates."""

import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from tailhold_local import binaries, control_plane, files, go, node
from tailhold_local.addresses import Addresses
from tailhold_local.certificates import Authority, Subject, kubeconfig
from tailhold_local.errors import LocalError
from tailhold_local.layout import Layout, cache_root, state_root
from tailhold_local.plan import Plan, Settings

LAYOUT = Layout(Path("/state"), "demo")


def plan_of(settings: Settings) -> Plan:
    return files.plan(LAYOUT, Addresses(settings.slot), settings, binaries.located())


@pytest.mark.parametrize("settings", [Settings(0), Settings(9, nodes=2, gpus=3, gpu_numa=(0, 1)), Settings(1, gpus=64)])
def test_settings_and_plans_survive_being_written(settings: Settings) -> None:
    assert Settings.from_json(settings.to_json()) == settings
    plan = plan_of(settings)
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("fields", [{"slot": 10}, {"slot": -1}, {"slot": 0, "nodes": 3}, {"slot": 0, "gpus": -1}])
def test_a_cluster_that_cannot_be_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(LocalError):
        Settings(**fields)


def test_gpus_take_the_numa_nodes_in_turn() -> None:
    assert Settings(0, gpus=3, gpu_numa=(0, 1)).numa_of_gpus() == (0, 1, 0)


@pytest.mark.parametrize("nodes", [1, 2])
def test_every_node_has_its_own_components(nodes: int) -> None:
    names = [component.name for component in plan_of(Settings(0, nodes=nodes, gpus=1)).components]
    assert len(names) == len(set(names)) == 5 + 4 * nodes


def test_only_a_cluster_with_gpus_runs_the_device_plugin() -> None:
    assert not any(component.name.startswith("gpus") for component in plan_of(Settings(0)).components)


def test_every_configuration_that_is_json_can_be_read() -> None:
    written = files.configurations(LAYOUT, Addresses(0), Settings(0, nodes=2, gpus=1))
    texts = [text for path, text in written.items() if path.suffix in (".json", ".conflist")]
    assert len(texts) == 9
    assert all(isinstance(json.loads(text), dict) for text in texts)


def test_the_kubelet_gives_exclusive_cores_and_aligned_devices() -> None:
    config = json.loads(node.kubelet_config(LAYOUT, Addresses(2), Addresses(2).node("b"), "tailhold-demo"))
    assert config["cpuManagerPolicy"] == "static"
    assert config["topologyManagerPolicy"] == "single-numa-node"
    assert config["clusterDNS"] == [Addresses(2).dns_service]
    assert config["cgroupRoot"] == "/tailhold-demo/node-b"


def test_the_api_server_authorizes_by_node_and_rbac_and_keeps_an_audit_log() -> None:
    command = next(c for c in plan_of(Settings(0)).components if c.name == "kube-apiserver").command
    assert "--authorization-mode=Node,RBAC" in command
    assert f"--audit-log-path={LAYOUT.logs / 'audit.log'}" in command


def test_the_versions_are_those_of_the_modules() -> None:
    read = {
        build.name: binaries.required_version((build.folder / "go.mod").read_text(), build.module)
        for build in binaries.BUILDS
    }
    assert read["kubernetes"].startswith("v1.34.")
    assert all(version.startswith("v") for version in read.values())


def test_a_requirement_in_a_block_is_read_too() -> None:
    text = "module x\n\nrequire (\n\tk8s.io/api v0.1.0\n\tk8s.io/apiserver v0.34.4 // indirect\n)\n"
    assert binaries.required_version(text, "k8s.io/apiserver") == "v0.34.4"
    with pytest.raises(ValueError, match=r"k8s\.io/kubelet"):
        binaries.required_version(text, "k8s.io/kubelet")


def test_kubernetes_is_told_its_version() -> None:
    flags = binaries.link_flags(binaries.BUILDS[0], "v1.34.4")
    assert "gitVersion=v1.34.4" in flags
    assert "gitMinor=34 " in flags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.9 linux/arm64", (1, 9)),
        ("go version devel +abc", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_the_version_of_go_is_read(text: str, expected: tuple[int, int]) -> None:
    assert go.version(text) == expected


def test_folders_follow_the_environment() -> None:
    assert state_root({}) == Path("/var/lib/tailhold")
    assert state_root({"TAILHOLD_STATE": "/s"}) == Path("/s")
    assert cache_root({"HOME": "/h"}) == Path("/h/.cache/tailhold")
    assert cache_root({"HOME": "/h", "XDG_CACHE_HOME": "/x"}) == Path("/x/tailhold")
    assert cache_root({"XDG_CACHE_HOME": "/x", "TAILHOLD_CACHE": "/c"}) == Path("/c")


@pytest.mark.parametrize("name", ["", "Demo", "a/b", "-a", "a-", "a" * 21, ".."])
def test_a_name_that_is_no_label_is_refused(name: str) -> None:
    with pytest.raises(LocalError, match="cluster name"):
        Layout(Path("/state"), name)


def test_a_state_folder_too_deep_for_sockets_is_refused() -> None:
    with pytest.raises(LocalError, match="TAILHOLD_STATE"):
        Layout(Path("/" + "d" * 70), "demo")


def test_a_certificate_is_good_for_its_addresses_and_the_strictest_check(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    authority.issue(Subject("x", "system:node:node-a", "system:nodes", ("10.200.0.2", "node-a")))
    certificate = x509.load_pem_x509_certificate((tmp_path / "x.crt").read_bytes())
    certificate.verify_directly_issued_by(authority.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["10.200.0.2", "node-a"]
    assert certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    assert (tmp_path / "x.key").stat().st_mode & 0o077 == 0


def test_a_kubeconfig_needs_no_other_file(tmp_path: Path) -> None:
    Authority.create(tmp_path).issue(Subject("admin", "someone", "system:masters"))
    text = kubeconfig("https://10.200.0.2:6443", tmp_path, "admin")
    assert str(tmp_path) not in text
    assert json.loads(text)["clusters"][0]["cluster"]["server"] == "https://10.200.0.2:6443"
    ssl.create_default_context().load_cert_chain(tmp_path / "admin.crt", tmp_path / "admin.key")


def test_every_subject_has_a_file_of_its_own() -> None:
    found = [each.file for each in control_plane.subjects(Addresses(0), Settings(0, nodes=2))]
    assert len(found) == len(set(found))
