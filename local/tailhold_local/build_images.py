"""Builds Tailhold's own images from this checkout, and builds nothing whose inputs are unchanged.

An image is named by the digest of what goes into it, so a pod that names it never gets an older one.
"""

import hashlib
import json
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailhold_local import base_image, images
from tailhold_local.errors import LocalError
from tailhold_local.layout import cache_root
from tailhold_local.progress import Progress

ROOT = Path(__file__).parents[2]
REPOSITORY = "localhost/tailhold"
KEPT = 3
"""Archives kept of each image: what runs, what is built, and one to go back to."""


@dataclass(frozen=True)
class Recipe:
    """How one image is built."""

    name: str
    """Of the image, within `REPOSITORY`."""
    dockerfile: str
    target: str
    """A stage of the Dockerfile; its last one if empty."""


RECIPES: Mapping[str, Recipe] = {
    "operator": Recipe("operator", "Dockerfile.operator", ""),
    "mounted": Recipe("server", "Dockerfile.server", "mounted"),
    "cpu": Recipe("server", "Dockerfile.server", "cpu"),
    "gpu": Recipe("server", "Dockerfile.server", "gpu"),
}


@dataclass(frozen=True)
class BuiltImage:
    """An image that is ready to be imported."""

    reference: str
    """What a pod names."""
    archive: Path
    """The image as an OCI archive."""
    digest: str
    """Of its manifest."""


def build_images(*, full: bool = False, progress: Progress | None = None) -> dict[str, BuiltImage]:
    """The images of `operator` and `server`, built if their inputs changed.

    The quick server finds its heavy dependencies on a volume; the `full` one carries them.
    """
    shown = progress or Progress()
    return {
        "operator": build_image("operator", shown),
        "server": build_image("cpu" if full else "mounted", shown),
    }


def build_image(target: str, progress: Progress, root: Path = ROOT) -> BuiltImage:
    """The image of one of `RECIPES`, built from the checkout at `root` if its inputs changed."""
    return build_on(base_image.ensure_base_image(progress), target, progress, root)


def build_on(base: str, target: str, progress: Progress, root: Path = ROOT) -> BuiltImage:
    """The same on a base image that the store holds."""
    with images.alone():
        return _ensure(target, root, base, progress)


def input_digest(recipe: Recipe, root: Path, base: str) -> str:
    """12 hex digits over the Dockerfile, everything it copies, the target and the base."""
    total = hashlib.sha256(f"{recipe.target}\0{base}\0".encode())
    for path in (root / recipe.dockerfile, *_copied(recipe, root)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(root)}\0{content}\0".encode())
    return total.hexdigest()[:12]


def copied_paths(dockerfile: str, target: str) -> tuple[str, ...]:
    """What a Dockerfile's text copies from the checkout into the target and the stages it is made of."""
    stages = _reached(dockerfile, target).values()
    return tuple(sorted(path for text in stages for path in re.findall(r"^COPY (?!--)(\S+) ", text, re.MULTILINE)))


def copied_stages(dockerfile: str, target: str) -> tuple[str, ...]:
    """The stages that a target copies from and does not stand on: in the store, no image's name holds their layers."""
    stages = _reached(dockerfile, target)
    found = {name for text in stages.values() for name in re.findall(r"--from=(\S+)", text)}
    return tuple(name for name in _stages(dockerfile) if name in found & stages.keys())


def archive_digest(archive: Path) -> str:
    """The digest of the manifest in an OCI archive."""
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        if index is None:
            raise LocalError(f"{archive} is no OCI archive: remove it and build again")
        return str(json.load(index)["manifests"][0]["digest"])


def _stages(dockerfile: str) -> dict[str, str]:
    """The text of each stage by its name, the last and nameless one by ''."""
    parts = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)[1:]
    named = (re.match(r"FROM \S+(?: AS (\S+))?", part) for part in parts)
    return {(match[1] or "" if match else ""): part for match, part in zip(named, parts, strict=True)}


def _reached(dockerfile: str, target: str) -> dict[str, str]:
    """The text of the target and of each stage that it is made of, by name."""
    stages = _stages(dockerfile)
    pending, seen = [target or list(stages)[-1]], dict[str, str]()
    while pending:
        name = pending.pop()
        if name in stages and name not in seen:
            seen[name] = stages[name]
            pending += re.findall(r"(?:^FROM |--from=)(\S+)", stages[name], re.MULTILINE)
    return seen


def _copied(recipe: Recipe, root: Path) -> Iterator[Path]:
    for name in copied_paths((root / recipe.dockerfile).read_text(), recipe.target):
        path = root / name
        if not path.exists():
            raise LocalError(f"{recipe.dockerfile} copies {name}, which is not in {root}")
        yield from sorted(child for child in (path.rglob("*") if path.is_dir() else [path]) if _counts(child))


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _ensure(target: str, root: Path, base: str, progress: Progress) -> BuiltImage:
    recipe = RECIPES[target]
    digest = input_digest(recipe, root, base)
    reference = _reference(recipe, digest)
    archive = _folder() / f"{target}-{digest}.tar"
    if archive.exists():
        archive.touch()
    else:
        with progress.step(f"building {reference} ({target})"), _secrets() as secrets:
            _build(recipe, root, base, reference, secrets)
            _export(reference, archive)
            _prune(target)
    return BuiltImage(reference, archive, archive_digest(archive))


def _build(recipe: Recipe, root: Path, base: str, reference: str, secrets: Sequence[str]) -> None:
    file = root / recipe.dockerfile
    stages = copied_stages(file.read_text(), recipe.target)
    made = [(stage, f"{REPOSITORY}/stage:{recipe.name}-{stage}") for stage in stages]
    try:
        for target, tag in (*made, (recipe.target, reference)):
            chosen = [f"--target={target}"] if target else []
            words = (f"--build-arg=BASE={base}", *secrets, *chosen, "--tag", tag, "--file", str(file), str(root))
            images.buildah("build", "--layers", *words)
    finally:
        images.end_builds()


def _export(reference: str, archive: Path) -> None:
    """Packed by zstd, which takes half of gzip's time: with 6 GB, minutes."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_name(f".{archive.name}.partial")
    partial.unlink(missing_ok=True)
    images.buildah("push", "--quiet", "--compression-format=zstd", reference, f"oci-archive:{partial}:{reference}")
    partial.rename(archive)


@contextmanager
def _secrets(env: Mapping[str, str] = os.environ) -> Iterator[list[str]]:
    """pip in the build trusts and asks whom pip on this machine does; nothing of it stays in the image."""
    bundle = Path(env.get("PIP_CERT") or env.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
        config.write("[global]\n")
        if env.get("PIP_INDEX_URL"):
            config.write(f"index-url = {env['PIP_INDEX_URL']}\n")
        if bundle.is_file():
            config.write("cert = /run/secrets/ca.crt\n")
        config.flush()
        ca = [f"--secret=id=ca.crt,src={bundle}"] if bundle.is_file() else []
        yield [f"--secret=id=pip.conf,src={config.name}", *ca]


def _prune(built: str) -> None:
    """Of old builds, keep some archives and no layers: the next build starts from the newest one's."""
    for old in _archives(built)[KEPT:]:
        old.unlink()
    newest = {
        _reference(RECIPES[target], _digest(target, found[0])) for target in RECIPES if (found := _archives(target))
    }
    ours = {f"{REPOSITORY}/{recipe.name}" for recipe in RECIPES.values()}
    for tag in images.tags():
        if tag.rpartition(":")[0] in ours and tag not in newest:
            images.buildah("rmi", "--force", tag)
    images.prune()


def _archives(target: str) -> list[Path]:
    """A target's archives, newest first."""
    return sorted(_folder().glob(f"{target}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)


def _digest(target: str, archive: Path) -> str:
    return archive.stem.removeprefix(f"{target}-")


def _reference(recipe: Recipe, digest: str) -> str:
    return f"{REPOSITORY}/{recipe.name}:{digest}"


def _folder() -> Path:
    return cache_root() / "images"


def main() -> int:
    """`python -m tailhold_local.build_images [target ...]`: build, and print what was built."""
    wanted = sys.argv[1:] or ["operator", "mounted"]
    unknown = sorted(set(wanted) - RECIPES.keys())
    if unknown:
        print(f"no image {', '.join(unknown)}: there are {', '.join(RECIPES)}", file=sys.stderr)
        return 2
    for target in wanted:
        image = build_image(target, Progress())
        print(target, image.reference, image.archive, image.digest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
