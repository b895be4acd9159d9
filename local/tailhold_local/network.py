"""The network namespaces of a cluster and the links between them.

host ── tailhold<slot> ══ eth0 of node a (control plane) ── node-b ══ eth0 of node b
"""

import subprocess
from pathlib import Path

from tailhold_local.addresses import Addresses, overlapping
from tailhold_local.errors import LocalError
from tailhold_local.layout import Layout

FORWARDING = "/proc/sys/net/ipv4/ip_forward"


def host_commands(addresses: Addresses, namespace: Path) -> tuple[str, ...]:
    """`ip` commands of the host: a link to the first node, and the way to everything behind it."""
    return (
        f"link add {addresses.link} type veth peer name eth0 netns {namespace}",
        f"address add {addresses.host} peer {addresses.control} dev {addresses.link}",
        f"link set {addresses.link} up",
        f"route add {addresses.everything} via {addresses.control} dev {addresses.link}",
    )


def first_node_commands(addresses: Addresses) -> tuple[str, ...]:
    """`ip` commands of the first node.

    The route for Services only lets packets pass the routing check: kube-proxy then gives them a real target.
    """
    return (
        "link set lo up",
        f"address add {addresses.control} peer {addresses.host} dev eth0",
        "link set eth0 up",
        f"route add {addresses.services} via {addresses.host} dev eth0",
    )


def second_node_commands(addresses: Addresses, namespace: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`ip` commands that join the second node: those of the first node, then those of the second."""
    second = addresses.node("b")
    first = (
        f"link add {second.name} type veth peer name eth0 netns {namespace}",
        f"link set {second.name} up",
        f"route add {second.address} dev {second.name}",
        f"route add {second.pods} via {second.address} dev {second.name}",
    )
    own = (
        "link set lo up",
        f"address add {second.address} peer {addresses.control} dev eth0",
        "link set eth0 up",
        f"route add {addresses.everything} via {addresses.control} dev eth0",
    )
    return first, own


def routes() -> dict[str, str]:
    """The host's IPv4 routes: destination to interface."""
    rows = [line.split() for line in _ip("-4 route show table main").splitlines()]
    return {row[0].replace("default", "0.0.0.0/0"): row[row.index("dev") + 1] for row in rows if "dev" in row}


def clash(addresses: Addresses) -> str | None:
    """Why the addresses of a slot cannot be used now, or None."""
    found = overlapping(addresses, routes())
    if found:
        destination, interface = found
        return f"its addresses {addresses.everything} are in use: {destination} is routed to {interface}"
    if exists(addresses.link):
        return f"the interface {addresses.link} is there already"
    return None


def exists(link: str) -> bool:
    """Whether the host has the interface."""
    return Path("/sys/class/net", link).exists()


def create(layout: Layout, addresses: Addresses, letters: tuple[str, ...]) -> None:
    """Make the namespaces and connect them."""
    for letter in letters:
        _create_namespace(layout.node(letter).network)
    first = layout.node("a").network
    _apply(host_commands(addresses, first))
    _apply(first_node_commands(addresses), first)
    if "b" in letters:
        second = layout.node("b").network
        on_first, on_second = second_node_commands(addresses, second)
        _apply(on_first, first)
        _apply(on_second, second)


def remove(layout: Layout, link: str | None, letters: tuple[str, ...] = ("a", "b")) -> None:
    """Remove links and namespaces, whatever of them is there."""
    if link and exists(link):
        _ip(f"link delete {link}")
    for letter in letters:
        handle = layout.node(letter).network
        if handle.is_mount() or _is_namespace(handle):
            subprocess.run(["umount", "--lazy", str(handle)], check=True)
        handle.unlink(missing_ok=True)


def _create_namespace(handle: Path) -> None:
    handle.touch()
    forward = f"echo 1 > {FORWARDING}"
    subprocess.run(["unshare", f"--net={handle}", "sh", "-c", forward], check=True)


def _is_namespace(handle: Path) -> bool:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(handle) for line in mounts)


def _apply(commands: tuple[str, ...], namespace: Path | None = None) -> None:
    prefix = ["nsenter", f"--net={namespace}"] if namespace else []
    command = [*prefix, "ip", "-batch", "-"]
    done = subprocess.run(command, input="\n".join(commands), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"the cluster's network could not be made: {done.stderr.strip()}")


def _ip(arguments: str) -> str:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"ip {arguments}: {done.stderr.strip()}")
    return done.stdout
