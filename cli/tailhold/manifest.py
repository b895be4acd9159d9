"""RagPipelines in files, checked as the API server checks them, without one."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tailhold.given import GivenError, text_given
from tailhold.rules import broken
from tailhold_api import names
from tailhold_api.codec import load
from tailhold_api.faults import faults_of, quoted
from tailhold_api.grammar import NAME_WORDS, NAMESPACE_WORDS, is_name, is_namespace
from tailhold_api.spec import Spec
from tailhold_api.stand_in import StandInError, stand_in_of


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, as kubectl does: the first one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As YAML says it, but for the second of two like keys."""
        seen = set[str]()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{quoted(name)} is given twice", key.start_mark)
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


_LONGEST = 1000
"""Characters of YAML's own words: it may quote the file."""
STDIN = Path("-")
"""Stands for standard input."""


def read_manifests(path: Path) -> tuple[Manifest, ...]:
    """All RagPipelines of a file; other objects are passed over. Raises ManifestError with every fault of all."""
    try:
        found = [each for document in _documents(path) for each in _pipelines(document)]
        faults = [f"{_title(each)}{fault}" for each in found for fault in _faults(each)]
        made = () if faults else tuple(map(_manifest, found))
    except RecursionError:
        raise ManifestError(f"{path}: is nested too deeply to be read: no RagPipeline is") from None
    if faults := faults or list(_namesakes(made)):
        raise ManifestError("\n".join(f"{path}: {each}" for each in faults))
    return made


def read_manifest(path: Path) -> Manifest:
    """The file's one RagPipeline. Raises ManifestError."""
    found = read_manifests(path)
    if len(found) != 1:
        named = ", ".join(each.name for each in found) or "none"
        raise ManifestError(f"{path} must hold one {names.KIND}; there are {len(found)}: {named}")
    return found[0]


def lines_of(error: ValidationError, where: str, kind: type[BaseModel] = Spec) -> Iterator[str]:
    """`field: what is wrong, got value` for each fault that pydantic found in a `kind` that stands at `where`."""
    for place, what, value in faults_of(error, kind):
        yield f"{where}{place}: {what}{f', got {value}' if value else ''}"


def _documents(path: Path) -> list[Any]:
    try:
        text = sys.stdin.read() if path == STDIN else text_given(path)
        return [each for each in yaml.load_all(text, _OnceLoader) if each is not None]
    except GivenError as error:
        raise ManifestError(str(error)) from error
    except (
        OSError,
        ValueError,
        yaml.YAMLError,
    ) as error:  # ValueError: a date that there is not, bytes that are no text
        raise ManifestError(f"{path}: {str(error)[:_LONGEST]}") from error


def _pipelines(document: Any) -> Iterator[dict[str, Any]]:
    """Those in a document, which may be a list of any kind, lists in lists among them, as kubectl reads them."""
    if not isinstance(document, dict):
        return
    kind, items = document.get("kind"), document.get("items")
    if kind == names.KIND:
        yield document
    elif isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        for each in items:
            yield from _pipelines(each)


def _namesakes(found: Sequence[Manifest]) -> Iterator[str]:
    """Names that a file gives twice: kubectl would apply one over the other."""
    for (namespace, name), times in Counter((each.namespace, each.name) for each in found).items():
        if times > 1:
            where = f" in namespace {namespace}" if namespace else ""
            yield f"{name}: metadata.name is given {times} times{where}: rename one, or take it out"


def _faults(document: Mapping[str, Any]) -> Iterator[str]:
    if (version := document.get("apiVersion")) != names.API_VERSION:
        yield f"apiVersion is {quoted(version)}, allowed is {names.API_VERSION!r}"
    yield from _metadata_faults(document.get("metadata"))
    try:
        spec = _spec(document)
    except ValidationError as error:
        yield from lines_of(error, "spec")
    else:
        yield from broken(spec, "spec")
        yield from _stand_in_faults(spec)


def _stand_in_faults(spec: Spec) -> Iterator[str]:
    try:
        stand_in_of(spec.pod.env)
    except StandInError as error:
        yield f"spec.pod.env: {names.STAND_IN_VARIABLE} has {error}"


def _metadata_faults(metadata: Any) -> Iterator[str]:
    if not isinstance(metadata, dict):
        yield f"metadata must be an object with a name, got {quoted(metadata)}"
        return
    if not is_name(name := metadata.get("name")):
        yield f"metadata.name is {quoted(name)}: {NAME_WORDS}"
    if (namespace := metadata.get("namespace")) not in (None, "") and not is_namespace(namespace):
        yield f"metadata.namespace is {quoted(namespace)}: {NAMESPACE_WORDS}"
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict) or not all(isinstance(each, str) for each in annotations.values()):
        yield f"metadata.annotations is {quoted(annotations)}: give names with text, numbers in quotes"


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
    return f"{name}: " if is_name(name) else ""
