"""Models from a hub: whole or not at all, from where it stopped, and in words that say what to do."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub import REPO, REVISION, Faults, hub
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tailhold_api.conditions import Reason
from tailhold_api.delivery import HuggingFaceModel, ImageFolder
from tailhold_api.names import image_folder
from tailhold_api.sources import ModelSource
from tailhold_api.status import Progress
from tailhold_server.delivery import progress
from tailhold_server.delivery.cache import Cache, Rhythm
from tailhold_server.delivery.deliver import Places, deliver_model
from tailhold_server.delivery.journal import Partial
from tailhold_server.delivery.progress import AbandonedError, Meter, silent
from tailhold_server.delivery.remote import RemoteFile, wanted
from tailhold_server.delivery.transfer import Pace, transfer
from tailhold_server.errors import StartError

PIECE = 4096
TOKEN = "hf_abcdefghijklmnop"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine that the tests run on is asked for a token or a model."""
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "no-tokens"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def model(folder: Path, numbers: int = 10_000) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["A"]}))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    (folder / "README.md").write_text("about")
    save_file({"words": np.arange(numbers, dtype=np.float32)}, folder / "model.safetensors")
    return folder


def places(tmp_path: Path, **more: Any) -> Places:
    pace = Pace(piece_bytes=PIECE, at_once=3, tries=4, sleep=lambda _: None)
    folders = {name: tmp_path / name for name in ("claims", "images", "secrets", "fetched")}
    return replace(Places(**folders, pace=pace), **more)


def source(url: str, **more: Any) -> ModelSource:
    return ModelSource(hugging_face=HuggingFaceModel(repo=REPO, revision=REVISION, endpoint=url, **more))


def refusal(source: ModelSource, places: Places) -> StartError:
    with pytest.raises(StartError) as caught:
        deliver_model(source, places)
    return caught.value


def test_a_model_is_fetched_once_and_only_what_cannot_run_code(tmp_path: Path) -> None:
    there = model(tmp_path / "there")
    with hub(there) as (url, asked, _sent):
        folder = deliver_model(source(url), places(tmp_path))
        names = {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}
        assert names == {"config.json", "1_Pooling/config.json", "model.safetensors", ".tailhold.json"}
        assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
        before = len(asked)
        assert deliver_model(source(url), places(tmp_path)) == folder
        assert len(asked) == before, "a commit never changes: the hub is not asked again"
    assert deliver_model(source("http://127.0.0.1:9", offline=True), places(tmp_path)) == folder


@pytest.mark.parametrize("faults", [Faults(busy=3), Faults(cut=3), Faults(busy=1, cut=1)])
def test_what_fails_by_chance_is_tried_again_and_costs_its_piece_alone(tmp_path: Path, faults: Faults) -> None:
    there = model(tmp_path / "there")
    size = sum(each.stat().st_size for each in there.rglob("*.*") if each.suffix in (".json", ".safetensors"))
    with hub(there, faults) as (url, _, sent):
        folder = deliver_model(source(url), places(tmp_path))
        assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
        assert size <= sum(sent) <= size + 3 * PIECE


def test_a_start_goes_on_where_the_last_one_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C115. The journal, not the file's size, says what is there: a piece that a crash spoilt is fetched again."""
    there = model(tmp_path / "there")
    size = (there / "model.safetensors").stat().st_size

    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0)
    with hub(there) as (url, _, sent):
        stopped = Stopped(after=5)
        with pytest.raises(AbandonedError):
            deliver_model(source(url), places(tmp_path, pace=replace(places(tmp_path).pace, at_once=1)), stopped)
        assert not list((tmp_path / "fetched").glob("files/*")), "no half model is seen"
        first = sum(sent)
        assert 0 < first < size
        (partial,) = (tmp_path / "fetched" / "partial").glob("*/model.safetensors")
        data = bytearray(partial.read_bytes())
        data[10] ^= 1
        partial.write_bytes(bytes(data))
        folder = deliver_model(source(url), places(tmp_path))
    assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
    assert sum(sent) <= size + 200 + 2 * PIECE, "fetched twice: the spoilt piece, and one that was on its way"


class Stopped:
    """A server that is stopped after so many words."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, told: Progress | None) -> None:
        self.left -= 1
        if self.left < 0:
            raise AbandonedError


def test_wrong_bytes_are_fetched_once_more_and_then_refused(tmp_path: Path) -> None:
    there = model(tmp_path / "there")
    with hub(there, Faults(wrong=1)) as (url, _, _sent):
        folder = deliver_model(source(url), places(tmp_path))
        assert (folder / "config.json").read_bytes() == (there / "config.json").read_bytes()
        assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
    with hub(there, Faults(wrong=10_000)) as (url, _, _sent):
        error = refusal(source(url), places(tmp_path / "other"))
    assert error.reason is Reason.CHECKSUM_MISMATCH
    assert error.final
    assert "expected" in error.message
    assert not list((tmp_path / "other" / "fetched").glob("files/*"))


def test_a_gated_model_without_a_token_says_so_and_with_one_is_fetched(tmp_path: Path) -> None:
    there = model(tmp_path / "there")
    with hub(there, Faults(token=TOKEN, gated=True)) as (url, _, _sent):
        error = refusal(source(url), places(tmp_path))
        assert (error.reason, error.final) == (Reason.CREDENTIALS_REFUSED, True)
        assert "gated, and no `tokenSecretName` is given" in error.message

        (tmp_path / "secrets" / "hub").mkdir(parents=True)
        error = refusal(source(url, token_secret_name="hub"), places(tmp_path))
        assert "Secret `hub` has no key `token`" in error.message

        (tmp_path / "secrets" / "hub" / "token").write_text("hf_somebodyelse\n")
        error = refusal(source(url, token_secret_name="hub"), places(tmp_path))
        assert "accept them on the hub" in error.message
        assert "hf_somebodyelse" not in error.message

        (tmp_path / "secrets" / "hub" / "token").write_text(f"{TOKEN}\n")
        folder = deliver_model(source(url, token_secret_name="hub"), places(tmp_path))
    assert not any(TOKEN in each.read_text(errors="replace") for each in folder.rglob("*") if each.is_file())


def test_a_private_model_is_not_mistaken_for_a_missing_one(tmp_path: Path) -> None:
    with hub(model(tmp_path / "there"), Faults(token=TOKEN)) as (url, _, _sent):
        error = refusal(source(url), places(tmp_path))
    assert error.reason is Reason.CREDENTIALS_REFUSED
    assert "gated, private or not there" in error.message


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with hub(model(tmp_path / "there")) as (url, _, _sent):
        other = HuggingFaceModel(repo=REPO, revision="f" * 40, endpoint=url)
        error = refusal(ModelSource(hugging_face=other), places(tmp_path))
        assert (error.reason, "correct `revision`" in error.message) == (Reason.MODEL_NOT_FOUND, True)
        other = HuggingFaceModel(repo="team/other", revision=REVISION, endpoint=url)
        error = refusal(ModelSource(hugging_face=other), places(tmp_path))
        assert (error.reason, "correct `repo`" in error.message) == (Reason.MODEL_NOT_FOUND, True)


def test_pickled_weights_alone_are_no_model(tmp_path: Path) -> None:
    there = model(tmp_path / "there")
    (there / "model.safetensors").unlink()
    with hub(there) as (url, asked, _sent):
        error = refusal(source(url), places(tmp_path))
        assert not any("pytorch_model.bin" in path for path in asked)
    assert (error.reason, "no *.safetensors" in error.message) == (Reason.MODEL_NOT_FOUND, True)


def test_a_hub_that_does_not_answer_is_tried_again_and_the_words_name_the_way_out(tmp_path: Path) -> None:
    """C115, C120."""
    waits: list[float] = []
    where = places(tmp_path, pace=Pace(tries=5, sleep=waits.append))
    error = refusal(source("http://127.0.0.1:9"), where)
    assert (error.reason, error.final) == (Reason.SOURCE_UNREACHABLE, False)
    assert waits == [0.5, 1, 2, 4]
    for each in ("http://127.0.0.1:9", "`HTTPS_PROXY`", "mesh", "claim", "mirror", "tried 5 times"):
        assert each in error.message


def test_offline_asks_nobody_and_ends_at_once(tmp_path: Path) -> None:
    """C115."""
    with hub(model(tmp_path / "there")) as (url, asked, _sent):
        error = refusal(source(url, offline=True), places(tmp_path))
        assert asked == []
    assert (error.reason, error.final) == (Reason.MODEL_NOT_FOUND, True)
    assert "`offline` is true, and no cache has it" in error.message


def test_offline_takes_what_the_hubs_own_cache_has(tmp_path: Path) -> None:
    from huggingface_hub import constants, snapshot_download

    with hub(model(tmp_path / "there")) as (url, _, _sent):
        folder = snapshot_download(REPO, revision=REVISION, endpoint=url, cache_dir=constants.HF_HUB_CACHE)
    assert deliver_model(source("http://127.0.0.1:9", offline=True), places(tmp_path)) == Path(folder)


def test_a_mirror_that_ignores_ranges_is_refused(tmp_path: Path) -> None:
    with hub(model(tmp_path / "there"), Faults(whole=True)) as (url, _, _sent):
        error = refusal(source(url), places(tmp_path))
    assert "whole files where a range was asked for" in error.message


def test_a_model_that_has_no_room_says_how_much_it_needs(tmp_path: Path) -> None:
    with hub(model(tmp_path / "there")) as (url, _, sent):
        error = refusal(source(url), places(tmp_path, limit_bytes=1000))
        assert sent == []
    assert (error.reason, error.final) == (Reason.NO_SPACE, True)
    assert "`placement.cacheMebibytes`" in error.message


def test_a_disk_that_fills_up_meanwhile_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Partial, piece: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Partial, "put", full)
    with hub(model(tmp_path / "there")) as (url, _, _sent):
        error = refusal(source(url), places(tmp_path))
    assert (error.reason, "is full" in error.message) == (Reason.NO_SPACE, True)


def test_pods_on_one_claim_fetch_once(tmp_path: Path) -> None:
    there = model(tmp_path / "there", 100_000)
    size = (there / "model.safetensors").stat().st_size
    found: list[Path] = []
    with hub(there) as (url, _, sent):
        pods = [
            threading.Thread(target=lambda: found.append(deliver_model(source(url), places(tmp_path))))
            for _ in range(4)
        ]
        for pod in pods:
            pod.start()
        for pod in pods:
            pod.join()
        assert size <= sum(sent) < size + 2000
    assert len(set(found)) == 1
    assert not list((tmp_path / "fetched" / "locks").iterdir())
    assert not list((tmp_path / "fetched" / "partial").iterdir())


def test_a_lock_whose_holder_is_silent_is_taken_over(tmp_path: Path) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    rhythm = Rhythm(dead_seconds=30, clock=lambda: now[0], sleep=sleep)
    lock = tmp_path / "locks" / "key.json"
    lock.parent.mkdir()
    held = Progress(step="fetching m", done=7, total=9, unit="bytes").model_dump_json(by_alias=True)
    lock.write_text(json.dumps({"owner": "dead", "beats": 3, "progress": held}))
    told: list[Progress | None] = []
    with Cache(tmp_path, rhythm).alone("key", told.append):
        assert 30 < now[0] < 35
        assert "dead" not in lock.read_text()
    assert told[0] is not None
    assert (told[0].done, told[0].total) == (7, 9), "who waits shows how far the other is"
    assert not lock.exists()


def test_a_published_set_that_was_cut_is_fetched_again(tmp_path: Path) -> None:
    with hub(model(tmp_path / "there")) as (url, _, _sent):
        folder = deliver_model(source(url), places(tmp_path))
        weights = folder / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:100])
        assert deliver_model(source(url), places(tmp_path)) == folder
        assert weights.read_bytes() == whole


def test_progress_counts_bytes_and_says_what_is_left() -> None:
    told: list[Progress] = []
    now = [100.0]
    meter = Meter("fetching m", 1000, 200, lambda each: told.append(each) if each else None, lambda: now[0])
    for _ in range(4):
        now[0] += 1
        meter.add(100)
    assert [(each.done, each.eta_seconds) for each in told] == [
        (200, None),
        (300, 7),
        (400, 6),
        (500, 5),
        (600, 4),
    ]
    meter.add(50)
    assert len(told) == 5, "not more often than twice a second"


@given(
    pieces=st.integers(1, 64),
    data=st.binary(max_size=300),
    stops=st.lists(st.integers(0, 12), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_however_often_it_is_stopped_the_file_is_the_file(
    pieces: int, data: bytes, stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("partial")
    remote = Held(data)
    pace = Pace(piece_bytes=pieces, at_once=1, sleep=lambda _: None)
    for stop in stops:
        remote.left = stop
        try:
            transfer(remote, [remote.file], folder, silent, pace=pace)
        except StartError:
            continue
    remote.left, remote.given = 10_000, 0
    transfer(remote, [remote.file], folder, silent, pace=pace)
    assert (folder / "f.json").read_bytes() == data


class Held:
    """A file in memory; it gives so many pieces and then fails for good."""

    title = "memory"

    def __init__(self, data: bytes) -> None:
        self.data, self.file, self.left, self.given = data, RemoteFile("f.json", len(data)), 0, 0

    def files(self) -> list[RemoteFile]:
        return [self.file]

    def read(self, file: RemoteFile, start: int, end: int) -> bytes:
        if not self.left:
            raise StartError(Reason.SOURCE_UNREACHABLE, "stopped", final=False)
        self.left -= 1
        return self.data[start:end]


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("config.json", True),
        ("model-00001-of-00002.safetensors", True),
        ("tokenizer.model", True),
        ("chat_template.jinja", True),
        ("2_Dense/model.safetensors", True),
        ("pytorch_model.bin", False),
        ("model.pt", False),
        ("modeling_own.py", False),
        ("onnx/config.json", False),
        ("consolidated.safetensors", False),
        (".gitattributes", False),
    ],
)
def test_files_are_chosen_by_an_allow_list(name: str, is_taken: bool) -> None:
    files = [RemoteFile(each, 1) for each in dict.fromkeys((name, "model.safetensors"))]
    assert (name in {each.name for each in wanted(files, "m")}) is is_taken


def test_an_image_volume_is_a_folder_and_without_a_cluster_it_is_named(tmp_path: Path) -> None:
    image = ImageFolder(reference="registry.example/models/m:1", path="m")
    error = refusal(ModelSource(image=image), places(tmp_path))
    assert "image volumes need a cluster" in error.message
    folder = tmp_path / "images" / image_folder(image.reference) / "m"
    folder.mkdir(parents=True)
    assert deliver_model(ModelSource(image=image), places(tmp_path)) == folder
    out = ModelSource(image=image.model_copy(update={"path": "../x"}))
    assert "leads out of the image" in refusal(out, places(tmp_path)).message
