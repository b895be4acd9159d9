"""How far a fetch is, in words and in few writes."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_api.conditions import Reason
from tailhold_api.status import Progress
from tailhold_operator.diagnosis import diagnose
from tailhold_operator.observe import Report, read_pod
from tailhold_operator.progress import coarse, read_progress, words

GIB = 1024**3


def progress(done: int, total: int, left: int | None = None) -> Progress:
    return Progress(step="fetching team/m at 0123456789", done=done, total=total, unit="bytes", eta_seconds=left)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (progress(int(3.1 * GIB), int(14.9 * GIB), 120), "3.1 of 14.9 GiB, about 2 min left"),
        (progress(0, 5 * 1024**2), "0.0 of 5.0 MiB"),
        (progress(3, 9, 40), "3 of 9 bytes, about 40 s left"),
    ],
)
def test_bytes_are_said_in_units_that_people_read(told: Progress, said: str) -> None:
    assert words(told) == f"fetching team/m at 0123456789: {said}"


def test_other_steps_are_said_as_they_count() -> None:
    told = Progress(step="embedding", done=3, total=9, unit="chunks", eta_seconds=7)
    assert (words(told), coarse(told)) == ("embedding: 3 of 9 chunks", told)
    assert words(progress(0, 0)) == "fetching team/m at 0123456789"


@given(total=st.integers(1, 10**13), rate=st.integers(1, 10**9))
def test_a_fetch_of_any_length_is_written_few_times(total: int, rate: int) -> None:
    """Looked at a thousand times at an even pace."""
    looks = (total * at // 1000 for at in range(1001))
    told = {coarse(progress(done, total, (total - done) // rate if done else None)) for done in looks}
    assert len(told) <= 101 + 6 + 60 + 144


@given(done=st.integers(0, 10**12), total=st.integers(0, 10**12), left=st.none() | st.integers(0, 10**7))
def test_no_more_is_said_than_is_there(done: int, total: int, left: int | None) -> None:
    told = coarse(progress(done, total, left))
    assert told.done <= done or not total
    assert (told.eta_seconds is None) == (left is None or (left > 86400 and total > 0))
    assert told.eta_seconds is None or left is None or left <= told.eta_seconds <= left + 600


@pytest.mark.parametrize("told", [None, {}, {"step": 7}, {"step": "x", "done": -1, "unit": "bytes"}])
def test_nonsense_is_no_progress(told: Mapping[str, Any] | None) -> None:
    assert read_progress(told) is None


def test_a_pod_that_fetches_says_how_far_it_is() -> None:
    pod = read_pod(
        {"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Running", "containerStatuses": [{"state": {}}]}}
    )
    report = Report("p", "", "", phase="resolve", progress=progress(GIB, 4 * GIB, 180))
    found = diagnose([pod], None, {"a": report}, "nvidia.com/gpu")
    assert found.reason is Reason.LOADING_MODEL
    assert found.message == "pod a: fetching team/m at 0123456789: 1.0 of 4.0 GiB, about 3 min left"
