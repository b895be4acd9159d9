"""The cluster that commands speak to: the local one, or the user's own by its context."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LOGGED = re.compile(r"^[IWEF]\d{4} \d\d:.*\n?", re.MULTILINE)
"""A line of kubectl's own log: it says five times why there is no cluster before it says it."""
_UNREACHABLE = re.compile(
    r"The connection to the server .* was refused|Unable to connect to the server|cluster unreachable"
    r"|error loading config file|context was not found|context \S+ does not exist"
)
_NO_SUCH_KIND = "the server doesn't have a resource type"


class CommandError(Exception):
    """kubectl or helm refused; the message is its own."""


class UnreachableError(CommandError):
    """No cluster answers; the message says which one was tried and how to name another."""


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster, by the programs and the configuration that reach it."""

    kubectl_path: str
    helm_path: str
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Environment of both, with the KUBECONFIG that they read."""
    context: str | None = None
    """The configuration's current context where it is not given."""

    @property
    def where(self) -> str:
        """The context and the configuration, for people."""
        config = self.env.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        return f"{f'the context `{self.context}`' if self.context else 'the current context'} of {config}"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl printed. Raises CommandError."""
        context = ("--context", self.context) if self.context else ()
        return self._run((self.kubectl_path, *context, *words), stdin)

    def helm(self, *words: str) -> str:
        """What helm printed. Raises CommandError."""
        context = ("--kube-context", self.context) if self.context else ()
        return self._run((self.helm_path, *words, *context), None)

    def get(self, *words: str) -> dict[str, Any] | None:
        """One object or list, or None where it is not there."""
        text = self.kubectl("get", *words, "-o", "json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else None

    def apply(self, *objects: dict[str, Any]) -> str:
        """Apply objects server-side."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))

    def _run(self, words: tuple[str, ...], stdin: str | None) -> str:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, env=self.env, check=False)
        if done.returncode:
            raise refused(words, done.stderr or done.stdout, self.env)
        return done.stdout


def refused(words: tuple[str, ...], said: str, env: Mapping[str, str]) -> CommandError:
    """What a program that failed says to the user, without its own log."""
    told = _LOGGED.sub("", said).strip() or said.strip()
    if _UNREACHABLE.search(told):
        told = told.removesuffix(" - did you specify the right host or port?")
        return UnreachableError(f"no cluster is reached: {told}\n{_next_step(env)}")
    missing = "; install Tailhold there: `tailhold up --context NAME`" if _NO_SUCH_KIND in told else ""
    return CommandError(f"{' '.join(words[:4])} ...: {told}{missing}")


def _next_step(env: Mapping[str, str]) -> str:
    usual = Path(env.get("HOME", "~")).expanduser() / ".kube" / "config"
    kept = f"{usual} is read" if usual.exists() else f"there is no {usual}"
    given = env.get("KUBECONFIG")
    found = f"KUBECONFIG is {given}" if given else f"KUBECONFIG is not set, and {kept}"
    return f"{found}. Set it, or name a context with --context; `tailhold status` prints the line for a local cluster"
