"""What a pipeline promises."""

from enum import StrEnum
from typing import ClassVar

from tailhold_api.fields import Model, Rule, policy
from tailhold_api.scraping import MetricsSource


class ObjectiveMetric(StrEnum):
    """What is timed, from when a request has arrived as a whole."""

    TIME_TO_FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105
    END_TO_END = "EndToEnd"
    RETRIEVAL = "Retrieval"
    """Until the passages are found."""
    INTER_TOKEN = "InterToken"  # noqa: S105
    """The longest wait of an answer for its next token."""


class Objective(Model):
    """So many percent of the requests within so many milliseconds."""

    metric: ObjectiveMetric = policy()
    """What is timed: `TimeToFirstToken`, `EndToEnd`, `Retrieval` (until the passages are found), or `InterToken` (the
    longest wait of an answer for its next token; a reader that lags behind does not stretch it)."""
    threshold_milliseconds: int = policy(ge=1, le=600000)
    """A request that takes longer is bad, and so is one that fails, is shed with 429, or is given up by its client
    after that time."""
    percent: float = policy(99.0, ge=50, le=99.99)
    """Of the requests that have to be within it. 99 allows one bad request in a hundred. The closer to 100, the more
    requests it takes to know: about ten times as many for 99.9 as for 99."""

    @property
    def name(self) -> str:
        """As metrics and status name it."""
        return f"{self.metric.value}-{self.threshold_milliseconds}ms"

    @property
    def threshold_seconds(self) -> float:
        """The threshold, as metrics have it."""
        return self.threshold_milliseconds / 1000

    @property
    def allowed(self) -> float:
        """Share of the requests that may be bad."""
        return 1 - self.percent / 100


class Slo(Model):
    """What the pipeline promises. Every server counts its requests against it, in `tailhold_objective_seconds`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.objectives.all(a, self.objectives.all(b, a.metric != b.metric || a.percent == b.percent"
            " || (a.percent < b.percent) == (a.thresholdMilliseconds < b.thresholdMilliseconds)))",
            "`objectives` of one metric contradict each other: a higher `percent` needs a higher"
            " `thresholdMilliseconds`; raise it, or take one of them out",
            {
                "objectives": [
                    {"metric": "EndToEnd", "thresholdMilliseconds": 500, "percent": 90},
                    {"metric": "EndToEnd", "thresholdMilliseconds": 900, "percent": 99},
                ]
            },
            {
                "objectives": [
                    {"metric": "EndToEnd", "thresholdMilliseconds": 900, "percent": 90},
                    {"metric": "EndToEnd", "thresholdMilliseconds": 500, "percent": 99},
                ]
            },
        ),
        Rule(
            "self.objectives.all(a, self.objectives.exists_one(b, a.metric == b.metric"
            " && a.thresholdMilliseconds == b.thresholdMilliseconds))",
            "`objectives` has one metric with one `thresholdMilliseconds` twice: keep the higher `percent`",
            {"objectives": [{"metric": "EndToEnd", "thresholdMilliseconds": 900}]},
            {
                "objectives": [
                    {"metric": "EndToEnd", "thresholdMilliseconds": 900, "percent": 90},
                    {"metric": "EndToEnd", "thresholdMilliseconds": 900, "percent": 99},
                ]
            },
        ),
        Rule(
            "!has(self.marginPercent) || self.marginPercent >= 0.01",
            "`marginPercent` must be at least 0.01; leave it out for as much as the objective allows",
            {"marginPercent": 0.5},
            {"marginPercent": 0},
        ),
    )

    objectives: tuple[Objective, ...] = policy((), max_length=8)
    """All have to be kept. A change reaches the running pods within a minute and restarts nothing."""
    error_percent: float = policy(5.0, ge=1, le=20)
    """How often at most a good candidate is called bad over a whole rollout, and one that is worse by the margin good.
    Half of it takes about a fifth more requests."""
    margin_percent: float | None = policy(None, ge=0.01, le=50)
    """By how much the candidate's share of bad requests may be above that of what serves, in percent of all requests.
    As much as the objective allows where it is not given."""
    source: MetricsSource | None = None
    """Where the operator reads what the pods counted: the pods themselves where it is not given."""


class Objectives(Model):
    """What the operator tells running pods to count."""

    objectives: tuple[Objective, ...] = policy(max_length=8)
    """In the order of the spec."""
