"""Has the kernel read files ahead: what is mapped later is in memory then."""

from collections.abc import Iterable
from pathlib import Path

_BLOCK = 8 << 20


def read_ahead(files: Iterable[Path], most_bytes: int) -> int:
    """Read through files one after the other, and say how many bytes; nothing where they are more than `most_bytes`.

    Reading in order is what disks and network volumes do fastest; a model that is mapped asks for pages as it comes to
    them. Files that are not there are somebody else's to complain of.
    """
    listed = [path for path in files if path.is_file()]
    if sum(path.stat().st_size for path in listed) > most_bytes:
        return 0
    return sum(_read(path) for path in listed)


def _read(path: Path) -> int:
    block, total = bytearray(_BLOCK), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            total += count
    return total
