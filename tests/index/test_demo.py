import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tailhold.convert import SAMPLE
from tailhold.demo import HANDBOOK, ensure_claims, ensure_corpus, ensure_models, ensure_snapshots
from tailhold_local.errors import LocalError


def test_the_corpus_is_the_pages_alone_and_readable_by_all(tmp_path: Path) -> None:
    book = tmp_path / "book"
    (book / "images").mkdir(parents=True)
    for name in ("index.html", "a.html", "b.html", "images/x.png"):
        (book / name).write_text(name)
        (book / name).chmod(0o600)
    folder = ensure_corpus(tmp_path / "cache", book)
    assert sorted(path.name for path in folder.iterdir()) == ["a.html", "b.html"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in folder.iterdir())
    assert ensure_corpus(tmp_path / "cache", tmp_path / "gone") == folder, "made once"


def test_a_book_that_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="apt-get install --no-install-recommends debian-handbook"):
        ensure_corpus(tmp_path, tmp_path / "gone")
    assert not list((tmp_path / "claims" / "documents").glob(".debian-handbook.part*"))


def test_pods_may_write_snapshots_alone_each_cluster_its_own(tmp_path: Path) -> None:
    claims, one, two = ensure_claims(tmp_path), ensure_snapshots(tmp_path, "one"), ensure_snapshots(tmp_path, "two")
    assert one != two
    assert not any(folder.is_relative_to(claims) for folder in (one, two))
    if os.geteuid() == 0:
        facts = one.stat()
        assert (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (10001, 0, 0o775)
    assert (claims / "models").stat().st_uid == os.geteuid()


@pytest.mark.engine
def test_models_are_made_once_even_if_stopped_half_way(tmp_path: Path) -> None:
    code = "import sys, pathlib, tailhold.demo; tailhold.demo.ensure_models(pathlib.Path(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    stopped = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment, start_new_session=True)
    models = tmp_path / "claims" / "models"
    deadline = time.monotonic() + 60
    while not list(models.glob(".smollm2*.part-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(stopped.pid, signal.SIGKILL)
    stopped.wait()
    assert list(models.glob(".smollm2*.part-*"))
    generator, embedder = ensure_models(tmp_path)
    assert sorted(path.name for path in models.iterdir() if not path.name.endswith(".lock")) == [
        embedder.name,
        generator.name,
    ]
    check_generator(generator)
    started = time.monotonic()
    assert ensure_models(tmp_path) == (generator, embedder)
    assert time.monotonic() - started < 1


def check_generator(folder: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(SAMPLE).ids) == SAMPLE
    assert tokenizer.encode("2024").tokens == ["2", "0", "2", "4"]
    template = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    text = template.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert (folder / "model.safetensors").stat().st_size > 200_000_000
    assert not list(folder.glob("*.bin"))


def test_the_handbook_is_where_debian_puts_it() -> None:
    assert HANDBOOK.parts[1:4] == ("usr", "share", "doc")
