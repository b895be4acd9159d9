"""The cluster that commands speak to: the local one, or the user's own by its context."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LOG_LINE = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n?", re.MULTILINE)
"""What kubectl's libraries log beside its own words, once for each of their attempts."""


class CommandError(Exception):
    """kubectl or helm refused; the message is its own."""


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
            said = done.stderr or done.stdout
            raise CommandError(f"{' '.join(words[:4])} ...: {(_LOG_LINE.sub('', said) or said).strip()}")
        return done.stdout
