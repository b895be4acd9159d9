"""The configuration and the commands of one node: containerd, kubelet, kube-proxy, stand-in GPUs."""

import json
import sys
from pathlib import Path

from tailhold_local.addresses import KUBELET_PORT, Addresses, NodeAddresses
from tailhold_local.binaries import Binaries
from tailhold_local.layout import Layout, NodeLayout
from tailhold_local.plan import Component, Holder, Settings

PAUSE = "localhost/tailhold/pause:1"
CNI_PROGRAMS = "/usr/lib/cni"

PRESET_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What the kubelet would write to the whole machine: it is shown these values instead, and writes nothing."""

OWN_MOUNT_POINTS = ("/var/lib/kubelet", "/var/lib/cni")
"""Folders that exist only for nodes to mount on, where no other Kubernetes is installed."""

MOUNT_POINTS = (*OWN_MOUNT_POINTS, "/var/log")
"""Folders that programs insist on, and that each node sees as its own."""


def containerd_config(node: NodeLayout) -> str:
    """The configuration of the node's containerd.

    `restrict_oom_score_adj` lets sandboxes start where lowering the OOM score is not permitted.
    """
    return f"""version = 2
root = "{node.folder}/containerd"
state = "/run/containerd"

[grpc]
address = "{node.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = "{node.folder}/cni.d"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
"""


def cni_config(node: NodeAddresses) -> str:
    """How pods get a network: a bridge of the node's own, and addresses from its range."""
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni",
        "ranges": [[{"subnet": node.pods, "gateway": node.gateway}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    config = {"cniVersion": "0.4.0", "name": "tailhold", "plugins": [bridge, portmap]}
    return json.dumps(config, indent=2)


def kubelet_config(layout: Layout, addresses: Addresses, node: NodeAddresses, cgroup: str) -> str:
    """The configuration of the node's kubelet: exclusive cores, aligned devices, no eviction for disk."""
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",  # noqa: S104 - in the node's own network namespace
        "port": KUBELET_PORT,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(layout.pki / f"{node.name}.key"),
        "containerRuntimeEndpoint": f"unix://{layout.node(node.letter).containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}/{node.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDNS": [addresses.dns_service],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
    }
    return json.dumps(config, indent=2)


def proxy_config(layout: Layout, addresses: Addresses, node: NodeAddresses) -> str:
    """The configuration of the node's kube-proxy; what comes from outside the pods is masqueraded."""
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": addresses.pods,
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": str(layout.component_kubeconfig("kube-proxy"))},
        "conntrack": {"maxPerCore": 0, "min": 0},
        "oomScoreAdj": 0,
        "nftables": {"minSyncPeriod": "100ms"},
    }
    return json.dumps(config, indent=2)


def holder(layout: Layout, letter: str) -> Holder:
    """Makes the node's mount namespace, with folders of its own where programs insist on fixed paths."""
    node = layout.node(letter)
    binds = [(node.folder / Path(point).name, point) for point in MOUNT_POINTS]
    binds += [(node.folder / "sysctl" / key.replace("/", "."), f"/proc/sys/{key}") for key in PRESET_SYSCTLS]
    script = [
        "set -e",
        "mount --make-rshared /",
        "mount -t tmpfs -o mode=755 tmpfs /run",
        *(f"mount --bind '{source}' '{target}'" for source, target in binds),
        "echo made",
        "exec sleep infinity",
    ]
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(script))
    return Holder(node.mounts, command)


def inside(node: NodeLayout) -> tuple[str, ...]:
    """The prefix of a command that runs in the node's namespaces."""
    return ("nsenter", f"--mount={node.mounts}", f"--net={node.network}")


def components(
    layout: Layout, addresses: Addresses, settings: Settings, binaries: Binaries, letter: str
) -> tuple[Component, ...]:
    """What runs on one node."""
    node, paths = addresses.node(letter), layout.node(letter)
    commands = {
        "containerd": ("containerd", "--config", str(layout.config(f"containerd-{letter}.toml"))),
        "kubelet": _kubelet(layout, node, binaries),
        "kube-proxy": (binaries["kube-proxy"], f"--config={layout.config(f'kube-proxy-{letter}.json')}"),
    }
    if settings.gpus:
        commands["gpus"] = (sys.executable, "-m", "tailhold_local.device_plugin", str(paths.gpus))
    return tuple(Component(f"{name}-{letter}", (*inside(paths), *command)) for name, command in commands.items())


def _kubelet(layout: Layout, node: NodeAddresses, binaries: Binaries) -> tuple[str, ...]:
    return (
        binaries["kubelet"],
        f"--config={layout.config(f'kubelet-{node.letter}.json')}",
        f"--kubeconfig={layout.component_kubeconfig(node.name)}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        "--root-dir=/var/lib/kubelet",
    )
