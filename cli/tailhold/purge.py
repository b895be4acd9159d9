"""`tailhold down --purge`: a local cluster goes, and with it all that is kept for the next one."""

from collections.abc import Callable

from rich.console import Console

import tailhold_local
from tailhold.demo import CORPUS, EMBEDDER, GENERATOR
from tailhold_local import caches
from tailhold_local.layout import cache_root

OURS = {
    f"claims/models/{GENERATOR}": "the demo's generator",
    f"claims/models/{EMBEDDER}": "the demo's embedder",
    f"claims/documents/{CORPUS}": "the demo's documents",
    "claims/snapshots": "indexes of `tailhold serve`",
    "snapshots": "indexes of local clusters",
}
"""What the product keeps beside the clusters' own; models and documents of the user's stay."""
GIB = 1 << 30


def purge(console: Console, name: str, *, sure: Callable[[], bool]) -> None:
    """Say what would go and how large it is, and if `sure`, stop the cluster and remove it. Raises LocalError."""
    caches.refuse_while_used(name)
    found = caches.kept(OURS)
    for each in found:
        size = f"{each.bytes_on_disk / GIB:7.2f} GiB"
        console.print(f"{size}  {each.folder}  {each.what}", markup=False, highlight=False, soft_wrap=True)
    total = sum(each.bytes_on_disk for each in found) / GIB
    console.print(f"{total:7.2f} GiB in all; the next start builds them again", markup=False, highlight=False)
    if not sure():
        return
    tailhold_local.down(name)
    caches.remove(found)
    _sweep_claims()
    if cache_root().exists():
        console.print(f"left, since Tailhold did not put it there: {cache_root()}", markup=False, soft_wrap=True)


def _sweep_claims() -> None:
    """Remove the folders of claims that hold nothing but our locks, and the folder of caches if it is empty then."""
    claims = cache_root() / "claims"
    for folder in (claims / "models", claims / "documents", claims, cache_root()):
        if folder.is_dir() and all(_is_lock(path.name) for path in folder.iterdir()):
            for lock in folder.iterdir():
                lock.unlink()
            folder.rmdir()


def _is_lock(name: str) -> bool:
    return name in {f".{made}.lock" for made in (GENERATOR, EMBEDDER, CORPUS)}
