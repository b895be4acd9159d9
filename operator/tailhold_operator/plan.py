"""What has to be written so that what is there becomes what should be there."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from tailhold_api import names
from tailhold_operator.kinds import Manifest, Ref, is_terminating, ref_of, uid_of

ANNOTATION_APPLIED = f"{names.GROUP}/applied"
"""Digest of what was applied last: a setting that is taken away leaves no other trace."""
_CLOSED = {"Service": ("spec", "selector"), "PodDisruptionBudget": ("spec", "selector", "matchLabels")}
"""Maps in which a key too many selects nothing at all."""
_WRITTEN_ONCE = ("Job",)
"""Kinds whose objects the API server does not let change."""


@dataclass(frozen=True)
class Apply:
    """Make an object so."""

    manifest: Manifest
    uid: str
    """The object that is meant; empty where there is none yet."""
    why: str


@dataclass(frozen=True)
class Merge:
    """Change only what is named: a null takes away. For what an apply cannot do, since others own it."""

    ref: Ref
    uid: str
    change: Manifest
    why: str


@dataclass(frozen=True)
class Delete:
    """Take an object away."""

    ref: Ref
    uid: str
    why: str


def plan(
    desired: Iterable[Manifest], owned: Mapping[Ref, Manifest], kept: Set[Ref] = frozenset()
) -> tuple[Apply | Merge | Delete, ...]:
    """Writes in the order of `desired`, then deletions. Performed, it leaves nothing to do.

    What is owned, and neither wanted nor kept, goes.
    """
    wanted = {ref_of(each): stamped(each) for each in desired}
    writes = (_write(manifest, owned.get(ref)) for ref, manifest in wanted.items())
    closed = (_taken_out(manifest, owned.get(ref)) for ref, manifest in wanted.items())
    surplus = (ref for ref in owned if ref not in wanted and ref not in kept)
    deletions = (
        Delete(ref, uid_of(owned[ref]), "no longer needed") for ref in surplus if not is_terminating(owned[ref])
    )
    return (*(each for each in (*writes, *closed) if each), *deletions)


def _taken_out(manifest: Manifest, found: Manifest | None) -> Merge | None:
    """What somebody put into a map that has to hold ours alone."""
    path = _CLOSED.get(manifest["kind"])
    if path is None or found is None or is_terminating(found):
        return None
    surplus = _at(found, path).keys() - _at(manifest, path).keys()
    if not surplus:
        return None
    change: Any = dict.fromkeys(sorted(surplus))
    for key in reversed(path):
        change = {key: change}
    return Merge(ref_of(manifest), uid_of(found), change, "was changed by somebody")


def _at(manifest: Manifest, path: Iterable[str]) -> Mapping[str, Any]:
    found: Any = manifest
    for key in path:
        found = (found or {}).get(key)
    return found or {}


def stamped(manifest: Manifest) -> Manifest:
    """With the digest of itself, to be compared at the next look."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    metadata = manifest["metadata"]
    mark = {ANNOTATION_APPLIED: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return manifest | {"metadata": metadata | {"annotations": {**metadata.get("annotations", {}), **mark}}}


def holds(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted is found: defaults and what others added beside it do not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(holds(each, found.get(key)) for key, each in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and _list_holds(wanted, found)
    return bool(wanted == found) and isinstance(wanted, bool) == isinstance(found, bool)


def _list_holds(wanted: list[Any], found: list[Any]) -> bool:
    """Lists of named entries may have more of them; other lists are compared as a whole."""
    keys = [_key(each) for each in wanted]
    if not keys or None in keys:
        return len(wanted) == len(found) and all(map(holds, wanted, found))
    entries = {_key(each): each for each in found}
    return all(holds(each, entries.get(key)) for key, each in zip(keys, wanted, strict=True))


def _key(entry: Any) -> str | None:
    if not isinstance(entry, Mapping):
        return None
    return entry.get("mountPath") or entry.get("uid") or entry.get("name")


def _write(manifest: Manifest, found: Manifest | None) -> Apply | None:
    if found is None:
        return Apply(manifest, "", "is missing")
    if manifest["kind"] in _WRITTEN_ONCE or is_terminating(found):
        return None
    if not holds(manifest["metadata"]["annotations"], found["metadata"].get("annotations")):
        return Apply(manifest, uid_of(found), "is to be changed")
    return None if holds(manifest, found) else Apply(manifest, uid_of(found), "was changed by somebody")
