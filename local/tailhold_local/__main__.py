"""`python -m tailhold_local up|down|status|worsen|heal`."""

import argparse
import sys

from tailhold_local import faults
from tailhold_local.addresses import API_PORT, DNS_PORT, ETCD_PORT, KUBELET_PORT
from tailhold_local.cluster import Cluster
from tailhold_local.errors import LocalError
from tailhold_local.lifecycle import DEFAULT_NAME, Status, down, status, up

PORTS = {"etcd": ETCD_PORT, "kube-apiserver": API_PORT, "coredns": DNS_PORT, "kubelet": KUBELET_PORT}
"""Where components listen, in the network of the cluster."""


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks; 1 if a person must put something right."""
    options = _parser().parse_args(arguments)
    try:
        _act(options)
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run the command again to go on, or `down` to clean up", file=sys.stderr)
        return 130
    return 0


def describe(found: Status) -> str:
    """A status, for a person."""
    cluster = found.cluster
    rows = [_row(name, pid) for name, pid in found.components.items()]
    known = {name: found.nodes.get(name) for name in cluster.nodes}
    nodes = [f"  {name:26} {'Ready' if ready else 'not Ready'}" for name, ready in known.items()]
    facts = {
        "cluster": f"{cluster.name}, {'ready' if found.ready else 'not ready'}",
        "slot": f"{cluster.settings.slot}, addresses {cluster.addresses.everything}",
        "API server": f"{cluster.addresses.control} port {API_PORT}",
        "kubeconfig": str(cluster.kubeconfig),
        "shell": cluster.shell_line,
        "logs": str(cluster.logs),
    }
    lines = [f"{name:12} {fact}" for name, fact in facts.items()]
    return "\n".join([*lines, "components", *rows, "nodes", *nodes])


def _row(component: str, pid: int | None) -> str:
    port = PORTS.get(component) or PORTS.get(component[:-2])
    state = f"pid {pid}" if pid else "does not run"
    return f"  {component:26} {state:14} {f'port {port}' if port else ''}".rstrip()


def _act(options: argparse.Namespace) -> None:
    if options.command == "up":
        up(options.name, nodes=options.nodes, gpus=options.gpus, gpu_numa=options.gpu_numa, slot=options.slot)
        print(describe(status(options.name)))
    elif options.command == "down":
        down(options.name)
    elif options.command == "worsen":
        faults.worsen(Cluster.find(options.name), options.what, " ".join(options.pairs), namespace=options.namespace)
    elif options.command == "heal":
        faults.heal(Cluster.find(options.name), options.what, namespace=options.namespace)
    else:
        print(describe(status(options.name)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tailhold_local", description="A real Kubernetes on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start a cluster")
    start.add_argument("--nodes", type=int, default=1, help="1 or 2")
    start.add_argument("--gpus", type=int, default=0, help="stand-in GPUs on each node")
    start.add_argument("--gpu-numa", type=_numbers, default=(0,), help="NUMA nodes of the GPUs, such as 0,1")
    start.add_argument("--slot", type=int, help="0 to 9: which range of addresses to use")
    stop = commands.add_parser("down", help="stop a cluster and remove all it left")
    show = commands.add_parser("status", help="say what runs")
    worsen = commands.add_parser("worsen", help="make stand-in engines slower or worse: `worsen node-b times=5`")
    heal = commands.add_parser("heal", help="take their faults away")
    for command in (worsen, heal):
        command.add_argument("what", help="a pod or a node")
        command.add_argument("-n", "--namespace", default="default", help="the pod's namespace")
    worsen.add_argument("pairs", nargs="+", help="as in TAILHOLD_STAND_IN: times=5 failPercent=30")
    for command in (start, stop, show, worsen, heal):
        command.add_argument("--name", default=DEFAULT_NAME, help="the cluster's name")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
