"""RagPipelines in files, checked as the API server checks them, without one."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tailhold.rules import broken
from tailhold_api import names
from tailhold_api.codec import load
from tailhold_api.faults import said
from tailhold_api.spec import Spec

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, as kubectl does: the first one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As YAML says it, but for the second of two like keys."""
        seen = set[str]()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} is given twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class ManifestError(Exception):
    """What is wrong with a file, a line for each fault; for the user."""


@dataclass(frozen=True)
class Manifest:
    """A RagPipeline that the API server would take."""

    namespace: str
    """Empty where the file leaves it to the context."""
    name: str
    spec: Spec
    rebuild: str
    """The value of the rebuild annotation."""


STDIN = Path("-")
"""Stands for standard input."""


def read_manifests(path: Path) -> tuple[Manifest, ...]:
    """All RagPipelines of a file; other objects are passed over. Raises ManifestError with every fault of all."""
    found = [each for each in _documents(path) if isinstance(each, dict) and each.get("kind") == names.KIND]
    faults = [f"{path}: {_title(each)}{fault}" for each in found for fault in _faults(each)]
    if faults:
        raise ManifestError("\n".join(faults))
    return tuple(map(_manifest, found))


def read_manifest(path: Path) -> Manifest:
    """The file's one RagPipeline. Raises ManifestError."""
    found = read_manifests(path)
    if len(found) != 1:
        named = ", ".join(each.name for each in found) or "none"
        raise ManifestError(f"{path} must hold one {names.KIND}; there are {len(found)}: {named}")
    return found[0]


def lines_of(error: ValidationError, kind: type[BaseModel] = Spec) -> Iterator[str]:
    """`field: what is wrong, got value` for each fault that pydantic found in a `kind`."""
    for each in error.errors(include_url=False):
        field = ".".join(str(part) for part in each["loc"])
        shown = "" if each["type"] in ("missing", "extra_forbidden") else f", got {each['input']!r}"
        yield f"{field}: {said(each, kind)}{shown}"


def _documents(path: Path) -> list[Any]:
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text()
        return [each for each in yaml.load_all(text, _OnceLoader) if each is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ManifestError(f"{path}: {error}") from error


def _faults(document: Mapping[str, Any]) -> Iterator[str]:
    if (version := document.get("apiVersion")) != names.API_VERSION:
        yield f"apiVersion is {version!r}, allowed is {names.API_VERSION!r}"
    yield from _metadata_faults(document.get("metadata"))
    try:
        spec = _spec(document)
    except ValidationError as error:
        yield from (f"spec.{line}" for line in lines_of(error))
    else:
        yield from broken(spec, "spec")


def _metadata_faults(metadata: Any) -> Iterator[str]:
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield (
            f"metadata.name is {name!r}: give up to 253 lower-case letters, digits, `-` and `.`, the first and last of"
            " them a letter or digit"
        )
    annotations = (metadata.get("annotations") or {}) if isinstance(metadata, dict) else {}
    if not isinstance(annotations, dict) or not all(isinstance(each, str) for each in annotations.values()):
        yield f"metadata.annotations is {annotations!r}: give names with text, numbers in quotes"


def _spec(document: Mapping[str, Any]) -> Spec:
    return load(Spec, json.dumps(_without_nulls(Spec, document.get("spec")), default=str))


def _without_nulls(kind: type[BaseModel], data: Any) -> Any:
    """The API server drops a null where a field may be left out; so is done here."""
    if isinstance(data, list):
        return [_without_nulls(kind, each) for each in data]
    if not isinstance(data, dict):
        return data
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    kept = {
        name: each
        for name, each in data.items()
        if each is not None or name not in fields or fields[name].is_required()
    }
    return {name: _inner(fields[name].annotation, each) if name in fields else each for name, each in kept.items()}


def _inner(annotation: Any, data: Any) -> Any:
    options = (annotation, *getattr(annotation, "__args__", ()))
    kind = next((each for each in options if isinstance(each, type) and issubclass(each, BaseModel)), None)
    return _without_nulls(kind, data) if kind else data


def _manifest(document: Mapping[str, Any]) -> Manifest:
    metadata = document["metadata"]
    rebuild = (metadata.get("annotations") or {}).get(names.ANNOTATION_REBUILD, "")
    return Manifest(str(metadata.get("namespace") or ""), metadata["name"], _spec(document), str(rebuild))


def _title(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{name}: " if isinstance(name, str) else ""
