"""A trace as Jaeger's API gives it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ORDER = (
    "tokenize",
    "batch.wait",
    "embed",
    "vector.search",
    "prompt.build",
    "transport",
    "queue",
    "prefill",
    "decode",
)
"""Spans of an answer up to the engine's last token."""


@dataclass(frozen=True)
class SeenSpan:
    """One span; times in microseconds since 1970."""

    name: str
    span_id: str
    parent_id: str | None
    start: int
    duration: int
    tags: dict[str, Any]
    resource: dict[str, Any]

    @property
    def end(self) -> int:
        return self.start + self.duration


def spans(trace: dict[str, Any]) -> list[SeenSpan]:
    """In order of time, the outermost first."""
    found = [_span(each, trace["processes"][each["processID"]]) for each in trace["spans"]]
    return sorted(found, key=lambda each: (each.start, -each.duration))


def outline(trace: dict[str, Any], tags: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each span, indented below its parent: when it began and how long it took."""
    every = spans(trace)
    known = {each.span_id for each in every}
    top = [each for each in every if each.parent_id not in known]
    for root in top:
        yield from _lines(root, every, root.start, 0, tags)


def _lines(span: SeenSpan, every: list[SeenSpan], zero: int, depth: int, tags: tuple[str, ...]) -> Iterator[str]:
    told = "".join(f"  {name}={span.tags[name]}" for name in tags if name in span.tags)
    name = "  " * depth + span.name
    yield f"{name:18} {(span.start - zero) / 1000:9.1f} ms + {span.duration / 1000:8.1f} ms{told}"
    for child in (each for each in every if each.parent_id == span.span_id):
        yield from _lines(child, every, zero, depth + 1, tags)


def _span(span: dict[str, Any], process: dict[str, Any]) -> SeenSpan:
    parent = next((each["spanID"] for each in span["references"] if each["refType"] == "CHILD_OF"), None)
    resource = _tags(process["tags"]) | {"service.name": process["serviceName"]}
    name, start, duration = span["operationName"], span["startTime"], span["duration"]
    return SeenSpan(name, span["spanID"], parent, start, duration, _tags(span["tags"]), resource)


def _tags(tags: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["key"]: each["value"] for each in tags}
