"""The page of metrics names what the code has, and nothing else."""

import re
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from tailhold_api.generate import ROOT
from tailhold_operator import controller
from tailhold_server.objectives import Counted
from tailhold_server.telemetry import OUTCOMES, Telemetry

PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(tailhold_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
TYPES = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}

Described = tuple[str, str, tuple[str, ...]]


def documented(section: str) -> set[Described]:
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(text)}


def described(metric: MetricWrapperBase) -> Described:
    kind = TYPES[type(metric)]
    (family,) = metric.describe()
    return family.name + "_total" * (kind == "counter"), kind, tuple(metric._labelnames)


def collected(registry: CollectorRegistry) -> Iterator[Described]:
    """Those that are made at each scrape."""
    for collector in registry._collector_to_names:
        if not isinstance(collector, MetricWrapperBase):
            for family in collector.collect():
                labels = tuple(getattr(family, "_labelnames", ()))
                yield family.name + "_total" * (family.type == "counter"), family.type, labels


def registered(registry: CollectorRegistry) -> Iterator[MetricWrapperBase]:
    yield from (each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase))


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_is_on_the_page(outcome: str) -> None:
    assert f"`{outcome}`" in PAGE


def test_the_servers_metrics_are_on_the_page() -> None:
    telemetry = Telemetry()
    telemetry.registry.register(Counted())
    found = {described(each) for each in registered(telemetry.registry)} | set(collected(telemetry.registry))
    assert documented("Server") == found


def test_the_operators_metrics_are_on_the_page() -> None:
    found = (each for each in vars(controller).values() if isinstance(each, MetricWrapperBase))
    assert documented("Operator") == {described(each) for each in found}
