"""Makes stand-in engines of a running cluster slower or worse, one pod or all of a node, and well again.

A stand-in reads `stand-in-faults` in the cache folder of its pod, and in its node's own folder where a volume mounts
that. Both are plain files of this machine: nothing in a pod is restarted, no revision changes, and a pod that is
replaced on the same node is as slow as the one before it.
"""

import json
from pathlib import Path

from tailhold_local.cluster import Cluster
from tailhold_local.errors import LocalError

FILE = "stand-in-faults"
_CACHE = Path("volumes") / "kubernetes.io~empty-dir" / "cache"
"""Of a server's pod, below kubelet's folder for it."""


def slow(cluster: Cluster, name: str, times: float, *, namespace: str = "default") -> None:
    """All answers of a pod, or of a node's pods, take so many times as long."""
    worsen(cluster, name, f"times={times:g}", namespace=namespace)


def fail(cluster: Cluster, name: str, percent: float, *, namespace: str = "default") -> None:
    """So many percent of the requests of a pod, or of a node's pods, fail at once."""
    worsen(cluster, name, f"failPercent={percent:g}", namespace=namespace)


def worsen(cluster: Cluster, name: str, pairs: str, *, namespace: str = "default") -> None:
    """Put `key=value` pairs over what the pod or the node of this name was told; within a fifth of a second.

    Raises LocalError where there is no such pod.
    """
    file = _file(cluster, name, namespace)
    fresh = file.with_suffix(".new")
    fresh.write_text(f"{pairs}\n")
    fresh.rename(file)


def heal(cluster: Cluster, name: str, *, namespace: str = "default") -> None:
    """Take the faults of a pod or a node away; none is no error."""
    _file(cluster, name, namespace).unlink(missing_ok=True)


def _file(cluster: Cluster, name: str, namespace: str) -> Path:
    if name in cluster.nodes:
        return cluster.layout.node(name.removeprefix("node-")).own / FILE
    pod = json.loads(cluster.kubectl("get", "pod", name, "-n", namespace, "-o", "json"))
    node, uid = str(pod["spec"].get("nodeName", "")), str(pod["metadata"]["uid"])
    folder = cluster.layout.node(node.removeprefix("node-")).kubelet / "pods" / uid / _CACHE
    if not folder.is_dir():
        raise LocalError(f"pod {name} has no cache folder on node {node or '(none yet)'}: is it one of a server's?")
    return folder / FILE
