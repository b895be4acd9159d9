"""Where an answer's time went, as lines of text."""

from collections.abc import Iterator, Mapping

_SUMS = ("unaccounted", "total")
"""No stages: what none of them explains, and all together."""


def waterfall(stages: Mapping[str, float], width: int = 50) -> Iterator[str]:
    """A line for each stage with its milliseconds, its share and a bar that begins where the one before ended.

    `stages` are milliseconds in the order in which the answer went through them, then `unaccounted` and `total`.
    """
    total = max(stages.get("total", 0.0), sum(spent for name, spent in stages.items() if name not in _SUMS))
    at = 0.0
    for name, spent in stages.items():
        if name in _SUMS:
            yield _line(name, spent, total, "")
            continue
        yield _line(name, spent, total, _bar(at, spent, total, width))
        at += spent


def _line(name: str, spent: float, total: float, bar: str) -> str:
    share = 100 * spent / total if total else 0.0
    return f"{name:12} {spent:10.1f} ms {share:5.1f} %  {bar}".rstrip()


def _bar(at: float, spent: float, total: float, width: int) -> str:
    """At least one mark for what took any time."""
    if not spent or not total:
        return ""
    start = min(round(width * at / total), width - 1)
    end = min(max(round(width * (at + spent) / total), start + 1), width)
    return " " * start + "█" * (end - start)
