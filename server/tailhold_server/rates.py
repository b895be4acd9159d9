"""How fast the engine is, and what it is asked for, measured on its own answers."""

from dataclasses import dataclass, field

from tailhold_server.capacity import Rates, Shape
from tailhold_server.ports import Delta

_WINDOW_SECONDS = 1.0
_STREAM_TOKENS = 8
"""Shorter answers say nothing of a stream's pace."""
_PROMPT_READER = 0.1
"""A reader that is away for more of the time than this sets the pace itself."""
_SPARE = 0.3
"""Share of a window that has to be left for decoding, for its tokens to say something."""


@dataclass
class Average:
    """Exponentially weighted: the mean of the first ten, then each new one counts for a tenth."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """One more."""
        self.count += 1
        self.value += (value - self.value) * max(1 / self.count, 0.1)

    @property
    def known(self) -> float | None:
        """None before the first."""
        return self.value if self.count else None


@dataclass(eq=False)
class Run:
    """A request in the engine."""

    prompt_tokens: int
    began: float
    alone: bool
    """Whether no other prompt was computed beside its own."""
    cached: int = 0
    tokens: int = 0
    first_tokens: int = 0
    first_at: float | None = None
    last_at: float = 0.0
    away: float = 0.0
    """Seconds in which its reader did something else."""
    finished: bool = False

    @property
    def fresh_tokens(self) -> int:
        """Prompt tokens that had to be computed."""
        return max(1, self.prompt_tokens - self.cached)


@dataclass
class _Window:
    """Some time in which the engine always had something to do."""

    began: float
    at: float
    tokens: int = 0
    fresh: int = 0
    area: float = 0.0
    """Streams times seconds."""
    whole: bool = True
    """Whether no prompt was begun before it: how much of one was computed within it cannot be seen."""


@dataclass
class Meter:
    """Fed with what requests gain, on the event loop; times are on one monotonic clock, in seconds.

    A prompt's rate is taken where no other prompt was computed beside it and most of it was not in the cache, from its
    first step to its first token where the engine tells both, which leaves the queue out. What all
    streams together gain is taken over busy seconds, less the time that the prompts of that second took; seconds in
    which a prompt was computed in part only are left out.
    """

    prefill: Average = field(default_factory=Average)
    stream: Average = field(default_factory=Average)
    curve: dict[int, Average] = field(default_factory=dict)
    """Tokens per second of all streams, by how many there were; powers of two."""
    lookup: Average = field(default_factory=Average)
    """Seconds of embedding and search for a question."""
    fresh: Average = field(default_factory=Average)
    prompt: Average = field(default_factory=Average)
    answer: Average = field(default_factory=Average)
    fresh_square: Average = field(default_factory=Average)
    _silent: set[Run] = field(default_factory=set)
    """Requests whose prompt is computed or waits for it."""
    _speaking: int = 0
    """Requests past their first token."""
    _window: _Window | None = None

    def begin(self, prompt_tokens: int, now: float) -> Run:
        """A request goes to the engine."""
        for other in self._silent:
            other.alone = False
        run = Run(prompt_tokens, now, alone=not self._silent)
        if self._window is None:
            self._window = _Window(now, now)
        self._silent.add(run)
        return run

    def gain(self, run: Run, delta: Delta, now: float) -> None:
        """It gained this."""
        run.cached = max(run.cached, delta.cached_tokens)
        run.finished = run.finished or delta.finish_reason is not None
        if not delta.token_count:
            return
        self._pass_to(now)
        if run.first_at is None:
            run.first_at, run.first_tokens = now, delta.token_count
            self._silent.discard(run)
            self._speaking += 1
            times = delta.times
            self._prefilled(run, times.first_token - times.scheduled if times else now - run.began)
        elif self._window:
            self._window.tokens += delta.token_count
        run.tokens += delta.token_count
        run.last_at = now
        self._close_window(now)

    def end(self, run: Run, now: float) -> None:
        """It is over, finished or not."""
        self._pass_to(now)
        self._silent.discard(run)
        self._speaking -= run.first_at is not None
        if not self._silent and not self._speaking:
            self._window = None
        if run.finished:
            self._finished(run)

    def looked_up(self, questions: int, seconds: float) -> None:
        """A batch was embedded and searched."""
        self.lookup.add(seconds / max(questions, 1))

    def measured(self, streams: int, tokens_per_second: float) -> None:
        """So many streams gained so much together."""
        self.curve.setdefault(_power_of_two(streams), Average()).add(tokens_per_second)
        if streams == 1:
            self.stream.add(tokens_per_second)

    def rates(self) -> Rates:
        """What is known so far."""
        points = tuple(sorted((streams, each.value) for streams, each in self.curve.items()))
        return Rates(self.prefill.known, self.stream.known, points)

    def shape(self) -> Shape | None:
        """What requests were like; None before the first."""
        if not self.answer.count:
            return None
        spread = max(0.0, self.fresh_square.value / self.fresh.value**2 - 1)
        return Shape(
            self.prompt.value, self.fresh.value, self.answer.value, self.lookup.known or 0.0, spread, self.answer.count
        )

    def _prefilled(self, run: Run, seconds: float) -> None:
        if self._window:
            self._window.fresh += run.fresh_tokens
        if run.alone and 2 * run.cached <= run.prompt_tokens and seconds > 0:
            self.prefill.add(run.fresh_tokens / seconds)

    def _finished(self, run: Run) -> None:
        self.prompt.add(run.prompt_tokens)
        self.fresh.add(run.fresh_tokens)
        self.fresh_square.add(run.fresh_tokens**2)
        self.answer.add(run.tokens)
        span = run.last_at - (run.first_at or run.last_at)
        if run.tokens - run.first_tokens >= _STREAM_TOKENS and span > 0 and run.away <= _PROMPT_READER * span:
            self.stream.add((run.tokens - run.first_tokens) / span)

    def _pass_to(self, now: float) -> None:
        if self._window:
            self._window.area += self._speaking * (now - self._window.at)
            self._window.at = now

    def _close_window(self, now: float) -> None:
        window = self._window
        if window is None or now - window.began < _WINDOW_SECONDS:
            return
        self._window = _Window(now, now, whole=not self._silent)
        seconds, prefill = now - window.began, self.prefill.known
        if self._silent or not window.whole or (window.fresh and not prefill):
            return
        spare = seconds - (window.fresh / prefill if prefill else 0.0)
        streams = round(window.area / spare) if spare >= _SPARE * seconds else 0
        if streams and window.tokens:
            self.curve.setdefault(_power_of_two(streams), Average()).add(window.tokens / spare)


def _power_of_two(count: int) -> int:
    """The nearest, upwards where two are as near."""
    below = 1 << (count.bit_length() - 1)
    return below if count - below < 2 * below - count else 2 * below
