"""RagPipelines in files, checked as the API server checks them, without one."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tailhold.rules import broken
from tailhold_api import names
from tailhold_api.codec import load
from tailhold_api.faults import of_its_own, said, shown
from tailhold_api.spec import Spec

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


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
    read = tuple(map(_manifest, found))
    twice = [name for name, count in Counter((each.namespace, each.name) for each in read).items() if count > 1]
    if twice:
        raise ManifestError(f"{path}: {twice[0][1]} stands in it more than once: the last one would win")
    return read


def read_manifest(path: Path) -> Manifest:
    """The file's one RagPipeline. Raises ManifestError."""
    found = read_manifests(path)
    if len(found) != 1:
        named = ", ".join(each.name for each in found) or "none"
        raise ManifestError(f"{path} must hold one {names.KIND}; there are {len(found)}: {named}")
    return found[0]


def lines_of(error: ValidationError, kind: type[BaseModel] = Spec) -> Iterator[str]:
    """`field: what is wrong, got value` for each fault that pydantic found in a `kind`."""
    for each in of_its_own(error.errors(include_url=False)):
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"]).removeprefix(".")
        got = "" if each["type"] in ("missing", "extra_forbidden") else f", got {shown(each['input'])}"
        yield f"{field}: {said(each, kind)}{got}"


def _documents(path: Path) -> list[Any]:
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text()
        return [item for each in yaml.load_all(text, _OnceLoader) if each is not None for item in _items(each)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ManifestError(f"{path}: {error}") from error
    except RecursionError:
        raise ManifestError(f"{path}: nested too deeply to be a manifest") from None


def _items(document: Any) -> list[Any]:
    """What a List holds, as kubectl reads it; any other document is itself."""
    if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _faults(document: Mapping[str, Any]) -> Iterator[str]:
    if (version := document.get("apiVersion")) != names.API_VERSION:
        yield f"apiVersion is {version!r}, allowed is {names.API_VERSION!r}"
    yield from _metadata_faults(document.get("metadata"))
    try:
        spec = _spec(document)
    except ValidationError as error:
        yield from (f"spec{line}" if line.startswith(":") else f"spec.{line}" for line in lines_of(error))
    else:
        yield from broken(spec, "spec")


def _metadata_faults(metadata: Any) -> Iterator[str]:
    if not isinstance(metadata, dict):
        yield f"metadata is {shown(metadata)}: give an object with a name"
        return
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if namespace is not None and (not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace)):
        yield (
            f"metadata.namespace is {shown(namespace)}: give up to 63 lower-case letters, digits and `-`, the first and"
            " last of them a letter or digit"
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield (
            f"metadata.name is {shown(name)}: give up to 253 lower-case letters, digits, `-` and `.`, the first and"
            " last of them a letter or digit"
        )
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict) or not all(isinstance(each, str) for each in annotations.values()):
        yield f"metadata.annotations is {shown(annotations)}: give names with text, numbers in quotes"


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
