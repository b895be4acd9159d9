"""Whether a second index fits beside the one that serves: what one needs, what is free, and the word of refusal."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailhold_api.index_kinds import IndexKind
from tailhold_api.index_memory import index_bytes, vector_bytes
from tailhold_server.errors import ContentRefusedError
from tailhold_server.snapshots.manifest import DOCUMENTS, Manifest

_MEBIBYTE = 1 << 20
_PARSED = 8
"""A document's line as Python objects, to its bytes."""
_NUMBERS = 48
"""Bytes beside a chunk's vector: offsets that are proved, keys that are looked up, masks."""
_OPENING = 64 * _MEBIBYTE
"""Blocks that are normalised and proved at once."""
_CARD_NUMBER = 6
"""Bytes of a number on a GPU: two for the look at all, four for the exact score."""


class NoRoomError(ContentRefusedError):
    """Two indexes do not fit."""


@dataclass(frozen=True)
class Need:
    """Bytes that an open snapshot holds and nothing can take back. The mapped files are page cache, which is not."""

    host: int
    card: int


@dataclass(frozen=True)
class Free:
    """Bytes that are free now; None where nobody says."""

    host: int | None
    card: int | None = None


Measure = Callable[[], Free]


def need_of(manifest: Manifest, *, on_card: bool) -> Need:
    """What the snapshot takes once it is open. A flat index may be searched on a GPU."""
    count, dimension = manifest.count, manifest.dimension
    beside = _NUMBERS * count + _PARSED * manifest.files[DOCUMENTS].bytes + _OPENING
    if manifest.kind is IndexKind.FLAT:
        small = (dimension + 4) * count
        return Need(beside, (_CARD_NUMBER * dimension + 4) * count) if on_card else Need(beside + small, 0)
    held = index_bytes(manifest.ivfpq or manifest.hnsw, dimension, count)
    mapped = vector_bytes(dimension, count) if manifest.ivfpq else 0
    return Need(beside + held - mapped, 0)


def check_room(snapshot: str, need: Need, free: Free) -> None:
    """Raises NoRoomError, with the numbers."""
    for place, wanted, there, remedy in (
        ("host memory", need.host, free.host, "raise `placement.memoryMebibytes`"),
        ("GPU memory", need.card, free.card, "lower `engine.gpuMemoryFraction` or `engine.kvBlocks`"),
    ):
        if there is not None and wanted > there:
            raise NoRoomError(
                f"snapshot {snapshot[:10]} needs {_mebibytes(wanted)} of {place} beside the one that serves, "
                f"{_mebibytes(there)} are free: {remedy}, or choose an index kind that takes less"
            )


def free_host_bytes(root: Path = Path("/")) -> int | None:
    """What this process may still take: of its cgroup, or of the machine where that is less.

    Page cache counts as free: the kernel takes it back before it ends a process.
    """
    known = [each for each in (_machine(root), *_cgroups(root)) if each is not None]
    return max(0, min(known)) if known else None


def _machine(root: Path) -> int | None:
    facts = _fields(root / "proc/meminfo")
    return facts["MemAvailable:"] * 1024 if "MemAvailable:" in facts else None


def _cgroups(root: Path) -> list[int | None]:
    """Of the process's own group and of those above it: each may have a limit."""
    line = next((each for each in _text(root / "proc/self/cgroup").splitlines() if each.startswith("0::")), "0::/")
    own = root / "sys/fs/cgroup" / line[3:].strip("/")
    top = root / "sys/fs/cgroup"
    return [_left(each) for each in (own, *own.parents) if each.is_relative_to(top)]


def _left(group: Path) -> int | None:
    limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    if not (limit.isdecimal() and used.isdecimal()):
        return None
    facts = _fields(group / "memory.stat")
    return int(limit) - int(used) + facts.get("inactive_file", 0) + facts.get("active_file", 0)


def _fields(path: Path) -> dict[str, int]:
    words = (line.split() for line in _text(path).splitlines())
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _mebibytes(count: int) -> str:
    return f"{-(-count // _MEBIBYTE):,} MiB"
