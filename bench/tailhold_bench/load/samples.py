"""What is known of each request."""

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. Only `ok` has a latency: all others count as slower than any."""

    OK = "ok"
    SHED = "shed"
    """Refused with 429, over gRPC with RESOURCE_EXHAUSTED: the server says that it is full."""
    ERROR = "error"
    """Another status, an error in the stream, or no connection."""
    TIMEOUT = "timeout"
    """No answer within the time that was given to it, by the generator or, over gRPC, by the server."""
    CUT = "cut"
    """The stream ended before the answer did."""
    UNFINISHED = "unfinished"
    """The run was stopped while it was under way."""
    UNSENT = "unsent"
    """So many were under way that it was not sent."""


@dataclass(slots=True)
class Sample:
    """One request. Times are seconds from the start of the run; None is what never came."""

    number: int
    due: float
    max_tokens: int
    begun: float | None = None
    """When it was handed to the socket, or began to open one."""
    first_byte: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    ended: float | None = None
    worst_gap: float = 0.0
    """Longest time between two messages with text, in seconds. A message can hold several tokens."""
    messages: int = 0
    """Messages with text."""
    prompt_tokens: int | None = None
    """As the server counts them."""
    output_tokens: int | None = None
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each stage, as the server measured them."""
    outcome: Outcome = Outcome.UNFINISHED
    detail: str = ""
    """Why it is not `ok`."""
    trace: str = ""
    """Id of its trace, where the server has one."""
    made_up: bool = False
    """Whether the server says that a stand-in engine answered, and no model."""

    @property
    def lag(self) -> float | None:
        """Seconds by which the generator was late."""
        return None if self.begun is None else self.begun - self.due

    def token(self, now: float) -> None:
        """A message with text has come."""
        if self.last_token is None:
            self.first_token = now
        else:
            self.worst_gap = max(self.worst_gap, now - self.last_token)
        self.last_token = now
        self.messages += 1

    def fail(self, outcome: Outcome, detail: str) -> None:
        """It has no answer."""
        self.outcome = outcome
        self.detail = detail[:300]
