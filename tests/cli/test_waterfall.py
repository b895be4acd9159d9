"""Where an answer's time went, as text."""

from hypothesis import given
from hypothesis import strategies as st

from tailhold.waterfall import waterfall

STAGES = {"embed": 100.0, "queue": 0.0, "prefill": 300.0, "decode": 590.0, "unaccounted": 10.0, "total": 1000.0}


def test_a_bar_begins_where_the_one_before_ended() -> None:
    assert list(waterfall(STAGES, width=10)) == [
        "embed             100.0 ms  10.0 %  █",
        "queue               0.0 ms   0.0 %",
        "prefill           300.0 ms  30.0 %   ███",
        "decode            590.0 ms  59.0 %      ██████",
        "unaccounted        10.0 ms   1.0 %",
        "total            1000.0 ms 100.0 %",
    ]


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "total"]), st.floats(0, 1e6), max_size=4))
def test_any_answer_of_any_server_can_be_drawn(stages: dict[str, float]) -> None:
    lines = list(waterfall(stages, width=10))
    assert len(lines) == len(stages)
    assert max((len(line.partition("%")[2]) for line in lines), default=0) <= 12
