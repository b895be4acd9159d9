"""Writes the files that a cluster starts from."""

from pathlib import Path

from tailhold_local import cgroups, control_plane, node
from tailhold_local.addresses import Addresses
from tailhold_local.binaries import Binaries
from tailhold_local.certificates import Authority, kubeconfig, write_service_account_keys
from tailhold_local.gpus import encode, named
from tailhold_local.layout import Layout
from tailhold_local.plan import Plan, Settings

COMPONENTS_WITH_KUBECONFIG = ("controller-manager", "scheduler", "kube-proxy", "coredns")


def write(layout: Layout, settings: Settings, binaries: Binaries) -> None:
    """Write certificates, configurations and the plan; the settings were written first of all."""
    addresses = Addresses(settings.slot)
    layout.logs.mkdir(parents=True, exist_ok=True)
    _write_pki(layout, addresses, settings)
    for path, text in configurations(layout, addresses, settings).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    layout.plan.write_text(plan(layout, addresses, settings, binaries).to_json())


def plan(layout: Layout, addresses: Addresses, settings: Settings, binaries: Binaries) -> Plan:
    """What the supervisor will run."""
    holders = tuple(node.holder(layout, letter) for letter in settings.letters)
    components = [*control_plane.components(layout, addresses, binaries)]
    for letter in settings.letters:
        components += node.components(layout, addresses, settings, binaries, letter)
    return Plan(cgroups.name_of(layout.name), layout.logs, holders, tuple(components))


def configurations(layout: Layout, addresses: Addresses, settings: Settings) -> dict[Path, str]:
    """Every configuration file and its text."""
    texts = {
        layout.config("audit.json"): control_plane.audit_policy(),
        layout.config("Corefile"): control_plane.corefile(layout, addresses),
    }
    for letter in settings.letters:
        texts |= _node_configurations(layout, addresses, settings, letter)
    return texts


def _node_configurations(layout: Layout, addresses: Addresses, settings: Settings, letter: str) -> dict[Path, str]:
    paths, own = layout.node(letter), addresses.node(letter)
    group = cgroups.name_of(layout.name)
    preset = node.PRESET_SYSCTLS.items()
    sysctls = {paths.folder / "sysctl" / key.replace("/", "."): f"{value}\n" for key, value in preset}
    return {
        layout.config(f"containerd-{letter}.toml"): node.containerd_config(paths),
        layout.config(f"kubelet-{letter}.json"): node.kubelet_config(layout, addresses, own, group),
        layout.config(f"kube-proxy-{letter}.json"): node.proxy_config(layout, addresses, own),
        paths.folder / "cni.d" / "10-tailhold.conflist": node.cni_config(own),
        paths.gpus: encode(named(settings.numa_of_gpus())),
        **sysctls,
    }


def make_node_folders(layout: Layout, letters: tuple[str, ...]) -> None:
    """Make what is mounted on each node's fixed paths, and those paths."""
    for letter in letters:
        paths = layout.node(letter)
        for point in node.MOUNT_POINTS:
            Path(point).mkdir(parents=True, exist_ok=True)
            (paths.folder / Path(point).name).mkdir(parents=True, exist_ok=True)


def _write_pki(layout: Layout, addresses: Addresses, settings: Settings) -> None:
    authority = Authority.create(layout.pki)
    for subject in control_plane.subjects(addresses, settings):
        authority.issue(subject)
    write_service_account_keys(layout.pki)
    nodes = [addresses.node(letter).name for letter in settings.letters]
    for component in (*COMPONENTS_WITH_KUBECONFIG, *nodes):
        text = kubeconfig(addresses.api_url, layout.pki, component)
        _write_private(layout.component_kubeconfig(component), text)
    _write_private(layout.kubeconfig, kubeconfig(addresses.api_url, layout.pki, "admin"))


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
