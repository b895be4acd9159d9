"""What pods can carry, as it gets into the status."""

from typing import Any

import pytest
from worlds import Stage, spec


def rates(per_second: Any = 4.0, seen: int = 7, **others: Any) -> dict[str, Any]:
    return {
        "prefillTokensPerSecond": 1000.4,
        "decodeTokensPerSecond": 100.0,
        "requests": {"seen": seen},
        "capacity": {"requestsPerSecond": per_second, "limitedBy": "engine", "why": "w"},
        **others,
    }


@pytest.fixture
def served() -> Stage:
    stage = Stage()
    stage.put(spec(replicas=2))
    stage.settle()
    return stage


def test_all_pods_together_and_one_are_told(served: Stage) -> None:
    served.pods.rates = rates(4.3219)
    served.step()
    assert served.status()["capacity"] == {
        "pods": 2,
        "requestsPerSecond": 8.6,
        "requestsPerSecondPerPod": 4.3,
        "limitedBy": "engine",
        "prefillTokensPerSecond": 1000,
        "decodeTokensPerSecond": 100,
        "requestsSeen": 7,
    }


def test_figures_that_move_are_written_on_a_resync_alone(served: Stage) -> None:
    served.pods.rates = rates(4)
    served.step()
    served.pods.rates = rates(5)
    served.step()
    assert served.status()["capacity"]["requestsPerSecond"] == 8
    served.step(sample=True)
    assert served.status()["capacity"]["requestsPerSecond"] == 10


def test_a_pod_more_is_counted_at_once(served: Stage) -> None:
    served.pods.rates = rates(4)
    served.step()
    served.put(spec(replicas=3))
    served.settle()
    assert served.status()["capacity"]["pods"] == 3
    assert served.status()["capacity"]["requestsPerSecond"] == 12


@pytest.mark.parametrize(
    "told",
    [
        {},
        rates(None),
        rates("many"),
        rates(-1),
        rates(float("inf")),
        rates(requests=None),
        rates(capacity=[1]),
        rates(prefillTokensPerSecond=None),
    ],
)
def test_what_cannot_be_understood_is_not_told(served: Stage, told: dict[str, Any]) -> None:
    served.pods.rates = told
    served.step(sample=True)
    assert "capacity" not in served.status()
