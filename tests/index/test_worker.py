import os
import signal
from pathlib import Path

import pytest

from tailhold_server.ingest.report import UnreadableError, Why
from tailhold_server.ingest.worker import Reader


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def test_c94_a_parser_that_hangs_or_dies_costs_one_document() -> None:
    others = set(children())
    with Reader() as reader:
        assert reader.read("a.md", b"# One\ntext").title == "One"
        [child] = set(children()) - others
        os.kill(child, signal.SIGKILL)
        with pytest.raises(UnreadableError) as failed:
            reader.read("b.md", b"two")
        assert failed.value.reason is Why.CRASHED
        assert reader.read("c.md", b"three").text == "three"
        [child] = set(children()) - others
        os.kill(child, signal.SIGSTOP)
        reader.document_seconds = 0.2
        with pytest.raises(UnreadableError) as failed:
            reader.read("d.md", b"four")
        assert failed.value.reason is Why.TOO_SLOW
        assert reader.read("e.md", b"five").text == "five"
    assert set(children()) <= others


def test_a_failure_crosses_the_border_with_its_reason() -> None:
    with Reader() as reader, pytest.raises(UnreadableError) as failed:
        reader.read("a.pdf", b"%PDF-1.4 rubbish")
    assert failed.value.reason is Why.BROKEN
    assert failed.value.detail
