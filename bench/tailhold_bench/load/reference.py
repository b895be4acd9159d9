"""Prints docs/reference/load-report.md: `python -m tailhold_bench.load.reference > docs/reference/load-report.md`."""

from collections.abc import Iterator
from typing import Any

from tailhold_bench.load.report import SCHEMA, LoadReport

_OPENING = f"""\
<!-- Printed by `python -m tailhold_bench.load.reference`; do not edit. -->
# The report of `tailhold load`

`load.json` of the folder named by `-o`. Its schema is `{SCHEMA}`. Latencies are in milliseconds from when a
request was due; `columns` are in seconds from the start of the run.

| field | type | description |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    schema = LoadReport.model_json_schema(by_alias=True)
    return _OPENING + "".join(f"| `{path}` | {kind} | {text} |\n" for path, kind, text in _rows(schema, schema, ""))


def _rows(node: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    for name, field in node.get("properties", {}).items():
        where, item = f"{path}{name}", field.get("items", {})
        yield where, _kind(field, schema), " ".join(_described(field, schema).split())
        yield from _rows(_resolved(field, schema), schema, f"{where}.")
        yield from _rows(_resolved(item, schema), schema, f"{where}[].")


def _resolved(field: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = field.get("$ref", "")
    found: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]] if reference else field
    return found


def _described(field: dict[str, Any], schema: dict[str, Any]) -> str:
    own = field.get("description") or _resolved(field, schema).get("description", "")
    return str(own or _resolved(field.get("items", {}), schema).get("description", ""))


def _kind(field: dict[str, Any], schema: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(each, schema) for each in field["anyOf"])
    found = _resolved(field, schema)
    if "enum" in found:
        return ", ".join(f"`{each}`" for each in found["enum"])
    if found.get("type") == "array":
        item = field.get("items") or field.get("prefixItems", [{}])[0]
        return f"list of {_kind(item, schema)}"
    return str(found.get("type", "any"))


if __name__ == "__main__":
    print(page(), end="")
