"""Whether the server is alive and ready, from what is known of its start and its engine."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """How far the server is; those before `serving` are steps of its start, some of them side by side."""

    RESOLVE = "resolve"
    READ_FILES = "readFiles"
    IMPORT = "import"
    LOAD_TOKENIZER = "loadTokenizer"
    LOAD_ENCODER = "loadEncoder"
    LOAD_SNAPSHOT = "loadSnapshot"
    START_ENGINE = "startEngine"
    WARM_UP = "warmUp"
    CALIBRATE = "calibrate"
    SERVING = "serving"
    RETIRING = "retiring"
    """Told to stop: not ready, and what still comes on open connections is answered and the connection closed."""
    DRAINING = "draining"
    """What was accepted is answered, and nothing new."""
    FAILED = "failed"


ANSWERING = (Phase.SERVING, Phase.RETIRING)
STARTED = (*ANSWERING, Phase.DRAINING)


@dataclass(frozen=True)
class Verdict:
    """A probe's answer."""

    ok: bool
    reason: str


@dataclass(frozen=True)
class Look:
    """What one look at the engine showed."""

    tokens: int
    """Given to readers since the start."""
    beats: int
    """Heartbeats answered since the start."""
    waiting: int = 0
    """Requests whose answer waits for the engine; not those whose answer waits for its reader."""
    beat_waits: bool = False
    """Whether a heartbeat is unanswered."""
    at_work: bool = False
    """Whether a thread of its processes ran, wanted to run or waited for the disk; only asked of a silent engine."""
    stopped: bool = False
    """Whether one of its processes is stopped, as by SIGSTOP."""


@dataclass(frozen=True)
class Watch:
    """What all looks so far add up to."""

    seen_at: float
    """Of the last look, on the monotonic clock."""
    tokens: int = 0
    beats: int = 0
    still_seconds: float = 0.0
    """How long it has been asked for something, gave no sign and did not work."""
    fruitless_seconds: float = 0.0
    """How long it has been asked for something and gave nothing, working or not."""
    stopped: bool = False


def advance(watch: Watch, look: Look, *, now: float, most_seconds: float) -> Watch:
    """The watch after one more look.

    A look counts for `most_seconds` at most: where our own process did not run, nobody looked, and its silence is no
    evidence against the engine.
    """
    passed = min(max(now - watch.seen_at, 0.0), most_seconds)
    gave, beat = look.tokens > watch.tokens, look.beats > watch.beats
    still = look.stopped or (bool(look.waiting or look.beat_waits) and not (gave or beat or look.at_work))
    fruitless = not gave if look.waiting else look.beat_waits and not beat
    return Watch(
        now,
        look.tokens,
        look.beats,
        watch.still_seconds + passed if still else 0.0,
        watch.fruitless_seconds + passed if fruitless else 0.0,
        look.stopped,
    )


def judge_started(phase: Phase) -> Verdict:
    """The start is over; a start that goes on is no failure of liveness."""
    return Verdict(phase in STARTED, phase.value)


def judge_engine(alive: bool, watch: Watch, *, stall_seconds: float, patience_seconds: float) -> Verdict:
    """One that is asked and neither answers nor works for `stall_seconds` is as good as dead.

    One that works is given `patience_seconds`: computing can be slow, and a loop that leads nowhere looks like it.
    """
    if not alive:
        return Verdict(False, "the engine's process has ended")
    if watch.still_seconds >= stall_seconds:
        why = "its process is stopped" if watch.stopped else "it was asked, gave no sign and none of its threads ran"
        return Verdict(False, f"the engine stands still for {watch.still_seconds:.0f} s: {why}")
    if watch.fruitless_seconds >= patience_seconds:
        return Verdict(False, f"the engine is asked for {watch.fruitless_seconds:.0f} s, works and gives no token")
    return Verdict(True, "the engine runs")


def patience(seconds: float, longest_tokens: int, prefill_tokens_per_second: float | None) -> float:
    """Seconds in which a working engine gives a token: at least `seconds`, and four times the longest prefill."""
    return max(seconds, 4 * longest_tokens / prefill_tokens_per_second) if prefill_tokens_per_second else seconds


def judge_alive(phase: Phase, engine: Verdict) -> Verdict:
    """Before the start is over nothing is asked of the engine."""
    return engine if phase in STARTED else Verdict(phase is not Phase.FAILED, phase.value)


def judge_ready(phase: Phase, engine: Verdict) -> Verdict:
    """A question went through the whole path, the engine moves, and the server is not on its way out."""
    return engine if phase is Phase.SERVING else Verdict(False, phase.value)
