"""What is read from a word of the command line: times, shapes, distributions. Faults name the allowed forms."""

import re
from collections.abc import Mapping
from typing import Any

from tailhold_bench.load.arrivals import Bursts, Shape, bursts, ramp, steady, steps
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.lengths import Fixed, Lengths, LogNormal, Uniform

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SHAPES = "steady, ramp:to=50, steps:10,20,40 or bursts:factor=5,burst=2s,quiet=18s,tail=1.5 (each key may be left out)"
LENGTHS = "16, 8-64, or lognormal:median=16,sigma=0.6,most=200"


def seconds(text: str, option: str) -> float:
    """`250ms`, `30s`, `2m`, `1h`. Raises LoadError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text.strip())
    if not match or float(match[1]) == 0:
        raise LoadError(f"{option} {text!r}: write a time above 0 with its unit, as in 250ms, 30s, 2m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def shape(text: str, rate: float, duration: float, seed: int) -> Shape:
    """A rate over time, from `--shape`. Raises LoadError."""
    kind, _, rest = text.partition(":")
    if kind == "steady" and not rest:
        return steady(rate, duration)
    if kind == "steps":
        return steps([_number("--shape", text, each, SHAPES) for each in rest.split(",")], duration)
    if kind == "ramp":
        to = _pairs("--shape", text, rest, {"to": None}, SHAPES)["to"]
        return ramp(rate, to, duration)
    if kind == "bursts":
        return bursts(rate, duration, _bursts(text, rest), seed)
    raise LoadError(f"--shape {text!r}: allowed are {SHAPES}")


def _bursts(text: str, rest: str) -> Bursts:
    usual = Bursts()
    found = _pairs(
        "--shape",
        text,
        rest,
        {"factor": usual.factor, "burst": usual.burst_seconds, "quiet": usual.quiet_seconds, "tail": usual.tail},
        SHAPES,
    )
    if found["tail"] <= 1:
        raise LoadError(f"--shape {text!r}: tail must be above 1, or bursts have no mean length")
    return Bursts(found["factor"], found["burst"], found["quiet"], found["tail"])


def lengths(text: str, option: str) -> Lengths:
    """A distribution of whole numbers, from `--question-words` or `--max-tokens`. Raises LoadError."""
    if re.fullmatch(r"[1-9]\d*", text):
        return Fixed(int(text))
    if match := re.fullmatch(r"([1-9]\d*)-([1-9]\d*)", text):
        least, most = int(match[1]), int(match[2])
        if least <= most:
            return Uniform(least, most)
    kind, _, rest = text.partition(":")
    if kind == "lognormal":
        found = _pairs(option, text, rest, {"median": None, "sigma": 0.6, "most": 4096.0}, LENGTHS)
        return LogNormal(found["median"], found["sigma"], int(found["most"]))
    raise LoadError(f"{option} {text!r}: allowed are {LENGTHS}")


def _pairs(option: str, text: str, rest: str, usual: Mapping[str, Any], allowed: str) -> dict[str, float]:
    given: dict[str, float] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        if key not in usual:
            raise LoadError(f"{option} {text!r}: no {key!r}; allowed are {allowed}")
        given[key] = _number(option, text, value.removesuffix("s"), allowed)
    missing = [key for key, value in usual.items() if value is None and key not in given]
    if missing:
        raise LoadError(f"{option} {text!r}: {missing[0]} is missing; allowed are {allowed}")
    return {**usual, **given}


def _number(option: str, text: str, value: str, allowed: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", value) or float(value) == 0:
        raise LoadError(f"{option} {text!r}: {value!r} is no number above 0; allowed are {allowed}")
    return float(value)
