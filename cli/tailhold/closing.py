"""What `tailhold up` and `tailhold demo` end with: how to go on from here."""

from rich.console import Console

from tailhold_local import Cluster


def next_steps(cluster: Cluster, *steps: str) -> str:
    """Where the kubeconfig is, the line that makes a shell ready, and commands to try."""
    ready = f"kubeconfig: {cluster.kubeconfig}\nfor kubectl, helm and tailhold in this shell:\n  {cluster.shell_line}"
    return "\n".join((ready, "try next:", *(f"  {step}" for step in steps)))


def print_next_steps(console: Console, cluster: Cluster, *steps: str) -> None:
    """Print them unbroken: they are there to be copied."""
    console.print(next_steps(cluster, *steps), markup=False, highlight=False, soft_wrap=True)
