"""Which model folders are taken."""

import json
from pathlib import Path

import pytest

from tailhold_api.conditions import Reason
from tailhold_api.sources import ClaimFolder, ModelSource
from tailhold_server.delivery.deliver import Places
from tailhold_server.errors import StartError
from tailhold_server.models import check_model, model_folder
from tailhold_server.settings import ServerSettings


def model(folder: Path, *files: str, **config: object) -> Path:
    """A folder that looks like a model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name in files:
        (folder / name).touch()
    return folder


def places(claims: Path) -> Places:
    return Places.of(ServerSettings(claims=claims))


def test_a_model_on_a_claim_is_found(tmp_path: Path) -> None:
    wanted = model(tmp_path / "models" / "smol", "model.safetensors")
    source = ModelSource(pvc=ClaimFolder(claim_name="models", path="smol"))
    assert model_folder(source, places(tmp_path)) == wanted


@pytest.mark.parametrize(("claim", "path"), [("none", "smol"), ("models", "none"), ("models", "../secret")])
def test_what_is_not_there_is_named(tmp_path: Path, claim: str, path: str) -> None:
    model(tmp_path / "models" / "smol", "model.safetensors")
    model(tmp_path / "secret", "model.safetensors")
    with pytest.raises(StartError, match=claim if claim == "none" else path.removeprefix("../")) as caught:
        model_folder(ModelSource(pvc=ClaimFolder(claim_name=claim, path=path)), places(tmp_path))
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


def test_a_folder_without_config_or_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StartError, match=r"config\.json is not there"):
        check_model(tmp_path / "empty")
    with pytest.raises(StartError, match=r"no \*\.safetensors"):
        check_model(model(tmp_path / "bare"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl", "last.ckpt"])
def test_pickled_weights_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StartError, match="safetensors") as caught:
        check_model(model(tmp_path / "pickled", name))
    assert caught.value.reason is Reason.START_FAILED
    check_model(model(tmp_path / "both", name, "model.safetensors"))


def test_a_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="auto_map"):
        check_model(model(tmp_path / "coded", "model.safetensors", auto_map={"AutoModel": "x.Y"}))
