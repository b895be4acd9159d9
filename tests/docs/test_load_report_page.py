"""The page of the load report's fields is what the code prints."""

from tailhold_api.generate import ROOT
from tailhold_bench.load.reference import page


def test_the_page_is_the_one_that_is_printed() -> None:
    assert (ROOT / "docs" / "reference" / "load-report.md").read_text() == page()
