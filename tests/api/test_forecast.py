"""What an edit is said to do."""

import json
from typing import Any

import pytest
from spec_examples import MINIMAL, merged

from tailhold_api.codec import load
from tailhold_api.forecast import Outage, forecast
from tailhold_api.room import Amount, Node, could_fit, fitting
from tailhold_api.spec import Spec


def spec(**change: Any) -> Spec:
    return load(Spec, json.dumps(merged(MINIMAL, change)))


def room(free: list[int] | None) -> list[Node] | None:
    """Nodes with so many free GPUs of eight, and much of all else."""
    whole = Amount(8, 64000, 1 << 20)
    return None if free is None else [Node(whole._replace(gpus=each), whole) for each in free]


NOTHING = (False, False, False)
EDITS: dict[str, tuple[dict[str, Any], tuple[bool, bool, bool]]] = {
    "the same": ({}, NOTHING),
    "a policy": ({"rollout": {"strategy": "Surge"}}, NOTHING),
    "scaling": ({"replicas": 3}, NOTHING),
    "what a build is given": ({"index": {"buildMillicores": 2000}}, NOTHING),
    "a prompt": ({"prompt": {"system": "Be brief."}}, (False, False, True)),
    "chunks": ({"corpus": {"chunking": {"maxTokens": 100}}}, (False, True, True)),
    "limits of a client": ({"server": {"limits": {"requestsPerMinute": 60}}}, (False, False, True)),
    "how long connections stay": ({"server": {"http": {"keepAliveSeconds": 30}}}, (True, False, False)),
    "a block size": ({"engine": {"blockSizeTokens": 64}}, (True, False, False)),
    "the embedder": ({"embedder": {"queryPrefix": "query: "}}, (True, True, False)),
}


@pytest.mark.parametrize(("change", "expected"), EDITS.values(), ids=EDITS)
def test_an_edit_makes_pods_index_or_content(change: dict[str, Any], expected: tuple[bool, bool, bool]) -> None:
    found = forecast("docs", spec(), spec(**change), nodes=room([8]))
    assert (found.new_pods, found.new_index, found.new_content) == expected
    assert bool(found.changes) == bool(change)


KEYS = {"auth": {"apiKeys": {"secretName": "clients"}}}


def opened(*tenants: str, name: str = "a") -> Spec:
    source = {"name": name, "configMap": {"name": "a"}, "tenants": list(tenants)}
    return spec(corpus={"sources": [source]}, server=KEYS)


def test_a_source_is_opened_to_a_tenant_without_an_index_or_a_restart() -> None:
    found = forecast("docs", opened("risk"), opened("risk", "audit"), nodes=room([8]))
    assert (found.new_pods, found.new_index, found.new_content) == (False, False, True)
    assert [(each.path, each.field_class.value) for each in found.changes] == [("corpus.sources[0].tenants", "live")]


def test_a_source_that_is_opened_and_renamed_is_indexed() -> None:
    found = forecast("docs", opened("risk"), opened("audit", name="b"), nodes=room([8]))
    assert (found.new_index, [each.path for each in found.changes]) == (True, ["corpus.sources"])


def test_the_rebuild_annotation_builds_and_restarts_nothing() -> None:
    found = forecast("docs", spec(), spec(), nodes=None, rebuild=True)
    assert (found.new_index, found.new_content, found.new_pods) == (True, True, False)


ROOM: dict[str, tuple[str, int, list[int] | None, str | None, Outage | None]] = {
    "room beside": ("Auto", 2, [1, 1], "Surge", Outage.NONE),
    "for one of two": ("Auto", 2, [1, 0], "DrainFirst", Outage.FEWER_PODS),
    "for none": ("Auto", 1, [0], "DrainFirst", Outage.UNTIL_READY),
    "not known": ("Auto", 1, None, None, None),
    "surge as asked": ("Surge", 1, [0], "Surge", Outage.NONE),
    "drained as asked": ("DrainFirst", 2, [8], "DrainFirst", Outage.UNTIL_READY),
}


@pytest.mark.parametrize(("asked", "replicas", "free", "strategy", "outage"), ROOM.values(), ids=ROOM)
def test_room_decides_the_strategy(
    asked: str, replicas: int, free: list[int] | None, strategy: str | None, outage: Outage | None
) -> None:
    change = {"replicas": replicas, "rollout": {"strategy": asked}, "engine": {"blockSizeTokens": 64}}
    found = forecast("docs", spec(replicas=replicas), spec(**change), room(free))
    assert (found.strategy, found.outage) == (strategy, outage)
    assert (found.gpus_for_all, found.gpus_beside) == (replicas, replicas)


def test_a_pods_gpus_are_on_one_node() -> None:
    pair = {"placement": {"gpu": {"count": 2}}}
    found = forecast("docs", spec(**pair), spec(**pair, engine={"blockSizeTokens": 64}), nodes=room([1, 1, 3]))
    assert (found.fitting, found.strategy) == (1, "Surge")
    found = forecast("docs", spec(**pair), spec(**pair, engine={"blockSizeTokens": 64}), nodes=room([1, 1]))
    assert (found.fitting, found.outage) == (0, Outage.UNTIL_READY)


def test_a_first_one_replaces_nothing() -> None:
    found = forecast("docs", None, spec(), nodes=room([0]))
    assert (found.new_pods, found.new_index, found.strategy, found.gpus_beside) == (True, True, None, 0)
    assert found.outage is Outage.NONE


def test_a_pod_is_on_one_node_and_takes_of_all_that_is_counted() -> None:
    each, whole = Amount(1, 2000, 1024), Amount(4, 8000, 8192)
    assert fitting(each, [Node(whole, whole)]) == 4
    assert fitting(each, [Node(Amount(4, 3999, 8192), whole), Node(Amount(0, 8000, 8192), whole)]) == 1
    assert fitting(each, []) == 0
    assert could_fit(each, [Node(Amount(), whole)])
    assert not could_fit(Amount(0, 8001, 1), [Node(whole, whole)])
