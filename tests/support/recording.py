"""A live rollout as it was seen from outside: load, status over time, and whose requests they were."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from tailhold.target import Target
from tailhold_api import names
from tailhold_operator.judge.reading import read_objectives

LAG = "--max-lag=2s"
"""A machine that carries the cluster and the generator has no other choice."""


@dataclass
class Load:
    """An open loop of requests, streams included."""

    folder: Path
    report: dict[str, Any] = field(default_factory=dict)
    """Of `tailhold load`, once it ended."""

    @property
    def outcomes(self) -> dict[str, int]:
        """Requests by how they ended; those that were under way when the load was stopped are left out."""
        return {name: count for name, count in self.report["outcomes"].items() if count and name != "unfinished"}


@contextmanager
def loaded(url: str, folder: Path, rate: float) -> Iterator[Load]:
    """Requests at `rate` a second until the end of the block."""
    load = Load(folder)
    words = ["load", "--url", url, "--rate", str(rate), "--duration", "20m", "--output", str(folder), LAG]
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tailhold.main", *words]
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield load
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(90)
    load.report = json.loads((folder / "load.json").read_text())


@dataclass(frozen=True)
class Moment:
    """What one look found."""

    at: float
    """Seconds since the first."""
    phase: str
    weight: int
    answer: str
    requests: int
    """Of the candidate, by the last verdict that was told."""
    counted: dict[str, int]
    """Requests by revision, as the pods count them."""


@dataclass
class Recording:
    """Look by look, about one a second."""

    target: Target
    namespace: str
    name: str
    moments: list[Moment] = field(default_factory=list)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def pipeline(self) -> dict[str, Any]:
        """The object as it is now, kept as one more moment."""
        found = self.target.get("ragp", self.name, "-n", self.namespace) or {}
        status = found.get("status", {})
        told = status.get("rollout") or {}
        verdict = told.get("verdict") or {}
        self.moments.append(
            Moment(
                (datetime.now(UTC) - self.began).total_seconds(),
                told.get("phase", ""),
                status.get("weightPercent", 0),
                verdict.get("answer", ""),
                (verdict.get("candidate") or {}).get("requests", 0),
                counted(self.target, self.namespace, self.name),
            )
        )
        return found

    def history(self) -> dict[str, Any]:
        """What the operator remembers."""
        found = self.target.get("configmap", names.child_name(self.name, "history"), "-n", self.namespace) or {}
        return dict(json.loads(found["data"]["history.json"]))

    def seconds_to_off(self, revision: str, verdict: datetime) -> float:
        """From a verdict to the last look that saw one more request of a revision; to a second or two."""
        grew = [
            after.at
            for before, after in pairwise(self.moments)
            if after.counted.get(revision, 0) > before.counted.get(revision, 0)
        ]
        return max([0.0, *(at - (verdict - self.began).total_seconds() for at in grew)])

    def __str__(self) -> str:
        rows, last = [], None
        for each in self.moments:
            told = (each.phase, each.weight, each.answer)
            if told != last:
                rows.append(
                    f"  {each.at:6.1f} s  {each.phase or 'no rollout':<12} {each.weight:3d} %"
                    f"  {each.answer:<10} {each.requests} requests"
                )
            last = told
        return "\n".join(rows)


def counted(target: Target, namespace: str, name: str) -> dict[str, int]:
    """Requests by revision over all pods that can be read: each is counted where it came in."""
    listed = target.get("pods", "-n", namespace, "-l", f"app.kubernetes.io/instance={name}") or {"items": []}
    found: dict[str, int] = {}
    for pod in listed["items"]:
        for revision, count in _of(pod.get("status", {}).get("podIP", "")).items():
            found[revision] = found.get(revision, 0) + count
    return found


def _of(address: str) -> dict[str, int]:
    try:
        text = httpx.get(f"http://{address}:{names.INTERNAL_PORT}/metrics", timeout=2).text
    except httpx.HTTPError:
        return {}
    told: dict[str, int] = {}
    for counter, buckets in (read_objectives(text) or {}).items():
        told[counter.revision] = max(told.get(counter.revision, 0), round(buckets[float("inf")]))
    return told
