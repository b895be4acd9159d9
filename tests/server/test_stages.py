"""Where an answer's time goes."""

from hypothesis import given
from hypothesis import strategies as st

from tailhold_server.ports import EngineTimes
from tailhold_server.stages import Interval, Marks, Stage, delivered_milliseconds, intervals, milliseconds

SECONDS = st.floats(0, 100, allow_nan=False)


def ordered(times: list[float]) -> Marks:
    """Marks in the order in which an answer passes them; so many as there are times."""
    names = ("tokenized", "batched", "embedded", "searched", "found", "written", "handed", "first_token", "finished")
    times = sorted(times)
    return Marks(times[0], **dict(zip(names, times[1:], strict=False)))


def answered(**change: object) -> Marks:
    """An answer whose stages have round lengths."""
    given: dict[str, object] = {
        "began": 10.0,
        "tokenized": 10.1,
        "batched": 10.3,
        "embedded": 10.6,
        "searched": 11.0,
        "found": 11.01,
        "written": 11.51,
        "handed": 11.61,
        "first_token": 13.1,
        "engine": EngineTimes(scheduled=12.0, first_token=13.0, last_token=15.0),
        "finished": 15.2,
    }
    return Marks(**(given | change))  # type: ignore[arg-type]


@st.composite
def any_marks(draw: st.DrawFn) -> Marks:
    """Of an answer that came as far as it likes, with an engine whose clock is read at other moments than ours."""
    marks = ordered(draw(st.lists(SECONDS, min_size=1, max_size=10)))
    if marks.first_token is not None and draw(st.booleans()):
        marks.engine = EngineTimes(*sorted(draw(st.tuples(SECONDS, SECONDS, SECONDS))))
    if marks.handed is not None:
        held = sorted(draw(st.lists(SECONDS, max_size=12)))
        marks.held.extend(zip(held[::2], held[1::2], strict=False))
    if marks.finished is not None and draw(st.booleans()):
        marks.delivered = marks.finished + draw(SECONDS)
    return marks


@given(any_marks(), SECONDS)
def test_stages_do_not_overlap_and_lie_within_the_answer(marks: Marks, later: float) -> None:
    ended = (marks.delivered or marks.finished or marks.began) + later
    at = marks.began
    for _, start, end in intervals(marks, ended):
        assert at <= start < end <= ended
        at = end


@given(any_marks())
def test_stages_and_what_none_explains_add_up_to_the_total(marks: Marks) -> None:
    *stages, total = milliseconds(marks).values()
    assert abs(sum(stages) - total) < 1e-6
    assert min(stages) >= 0


@given(any_marks())
def test_only_what_the_client_takes_at_the_end_comes_after_the_total(marks: Marks) -> None:
    before, after = milliseconds(marks), delivered_milliseconds(marks)
    assert list(after) == list(Stage)
    grown = {stage for stage in Stage if after[stage] > before[stage] + 1e-6}
    assert grown <= ({Stage.TRANSPORT} if marks.delivered else set())


def test_an_engine_whose_clock_is_ahead_claims_nothing_of_what_the_client_takes() -> None:
    marks = answered(engine=EngineTimes(12.0, 13.0, 15.4), delivered=16.0)
    assert round(delivered_milliseconds(marks)[Stage.DECODE]) == round(milliseconds(marks)[Stage.DECODE]) == 2200


def test_the_engines_own_times_divide_the_wait_for_it() -> None:
    said = {name: round(value) for name, value in milliseconds(answered()).items()}
    assert said == {
        "tokenize": 100,
        "wait": 200,
        "embed": 300,
        "search": 400,
        "prompt": 500,
        "queue": 390,
        "prefill": 1000,
        "decode": 2000,
        "postprocess": 200,
        "transport": 100,
        "unaccounted": 10,
        "total": 5200,
    }


def test_an_engine_that_does_not_say_has_its_queue_in_prefill() -> None:
    said = milliseconds(answered(engine=None))
    assert [round(said[stage]) for stage in (Stage.QUEUE, Stage.PREFILL, Stage.DECODE)] == [0, 1490, 2100]


def test_a_slow_client_is_transport_and_no_decode() -> None:
    """The engine was done at 15, the client held an earlier piece until 19."""
    marks = answered(finished=19.5)
    marks.held.extend([(12.5, 12.9), (13.1, 19.0)])
    said = milliseconds(marks)
    assert [round(said[stage]) for stage in (Stage.DECODE, Stage.TRANSPORT, Stage.POSTPROCESS)] == [2000, 4100, 500]


def test_an_answer_that_was_broken_off_has_the_stage_that_it_was_in() -> None:
    waiting = answered(engine=None, first_token=None, finished=None)
    assert intervals(waiting, 20.0)[-1] == Interval(Stage.PREFILL, 11.61, 20.0)
    speaking = answered(finished=None, engine=EngineTimes(12.0, 13.0, 13.0))
    assert intervals(speaking, 20.0)[-1] == Interval(Stage.DECODE, 13.0, 20.0)
    searching = Marks(1.0, tokenized=1.5)
    assert intervals(searching, 20.0) == (Interval(Stage.TOKENIZE, 1.0, 1.5),)
