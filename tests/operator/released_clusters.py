"""What the operator of each release left in a cluster, for the operator of today to find."""

import json
from typing import Any

import yaml
from releases import OBJECTS
from worlds import Stage, spec

from tailhold_operator.kinds import ref_of
from tailhold_operator.render.setup import Setup

_NOTE = "# Kept by scripts/keep-release at the release; never edited.\n"


def keep_cluster(version: str) -> None:
    """Write all objects around a pipeline that serves its second revision."""
    stage = Stage()
    for body in (spec(), spec(engine={"blockSizeTokens": 64}, retrieval={"topK": 3})):
        stage.put(body)
        stage.settle()
    objects = json.loads(json.dumps(list(stage.cluster.objects.values())))
    path = OBJECTS / version / "cluster" / "objects.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_NOTE + yaml.safe_dump_all(objects, sort_keys=False, width=120, allow_unicode=True))


def upgraded(version: str) -> Stage:
    """The same cluster under the operator of today, with its newer image."""
    stage = Stage(setup=Setup(image="registry.example/tailhold/server:newer"))
    found: list[dict[str, Any]] = list(yaml.safe_load_all((OBJECTS / version / "cluster" / "objects.yaml").read_text()))
    stage.cluster.objects |= {ref_of(each): each for each in found}
    stage.cluster._counter = 1_000_000
    return stage
