"""When a question is refused rather than queued."""

from tailhold_api.serving import Admission, AdmissionPolicy
from tailhold_server.errors import Failure, ServeError

OVERLOADED = "overloaded"
"""The code of what had no place, whoever asked: a client beyond its own limit reads another."""
_SECONDS_WITHOUT_EXPERIENCE = 1


def refusal(admission: Admission, *, held: int, running_limit: int, seconds_each: float | None) -> ServeError | None:
    """None if a question may enter beside the `held` ones, else what its client reads.

    `seconds_each` is how long an answer took lately: the queue moves by `running_limit` in that time.
    """
    room = running_limit + admission.max_queued
    if admission.policy is AdmissionPolicy.OFF or held < room:
        return None
    return ServeError(
        Failure.OVERLOADED,
        f"{running_limit} questions are answered and {admission.max_queued} wait: no more now. Try again.",
        code=OVERLOADED,
        retry_after_seconds=retry_after_seconds(held, running_limit, seconds_each),
    )


def retry_after_seconds(held: int, running_limit: int, seconds_each: float | None) -> int:
    """When the queue will have moved, from 1 to 60 seconds."""
    if seconds_each is None:
        return _SECONDS_WITHOUT_EXPERIENCE
    waiting = max(held - running_limit, 0) + 1
    return int(min(60, max(1, round(waiting * seconds_each / running_limit))))


class Gate:
    """Counts the questions that are held, from admission to the last token. Event loop only."""

    def __init__(self, running_limit: int) -> None:
        self._running_limit = running_limit
        self._held = 0
        self._seconds_each: float | None = None

    @property
    def held(self) -> int:
        """Questions admitted and not ended."""
        return self._held

    def enter(self, admission: Admission) -> None:
        """Raises ServeError when full. Each success is followed by exactly one `leave`."""
        refused = refusal(
            admission, held=self._held, running_limit=self._running_limit, seconds_each=self._seconds_each
        )
        if refused:
            raise refused
        self._held += 1

    def leave(self, seconds: float | None = None) -> None:
        """One question less; `seconds` is how long it took where it was answered."""
        self._held -= 1
        if seconds is not None:
            self._seconds_each = seconds if self._seconds_each is None else 0.9 * self._seconds_each + 0.1 * seconds
