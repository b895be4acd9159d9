"""Filters over a file's attributes, as values; a document passes or does not."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tailhold_server.handlers.documents import Scalar


class Comparing(StrEnum):
    """How an attribute is compared with a value."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NIN = "nin"


@dataclass(frozen=True)
class Comparison:
    """One attribute against a value; `in` and `nin` against several."""

    key: str
    how: Comparing
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Junction:
    """All of the parts, or any."""

    all_of: bool
    parts: tuple["Filter", ...]


Filter = Comparison | Junction


def passes(wanted: Filter, attributes: Mapping[str, Scalar]) -> bool:
    """An attribute that a file has not is equal to nothing, and neither less nor greater."""
    if isinstance(wanted, Junction):
        return (all if wanted.all_of else any)(passes(each, attributes) for each in wanted.parts)
    negative = wanted.how in (Comparing.NE, Comparing.NIN)
    if wanted.key not in attributes:
        return negative
    found = attributes[wanted.key]
    if wanted.how in (Comparing.EQ, Comparing.NE, Comparing.IN, Comparing.NIN):
        return any(_same(found, each) for each in wanted.values) != negative
    return _ordered(wanted.how, found, wanted.values[0])


def _same(one: Scalar, other: Scalar) -> bool:
    """True is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _ordered(how: Comparing, found: Scalar, value: Scalar) -> bool:
    """Numbers with numbers, texts with texts; nothing else has an order."""
    if isinstance(found, bool) or isinstance(value, bool) or isinstance(found, str) != isinstance(value, str):
        return False
    less, same = found < value, found == value  # type: ignore[operator]  # of one kind: seen above
    return {
        Comparing.LT: less,
        Comparing.LTE: less or same,
        Comparing.GT: not less and not same,
        Comparing.GTE: not less,
    }[how]
