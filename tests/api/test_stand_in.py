"""What a manifest says of a stand-in engine: read strictly, named in errors, and part of every digest it changes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from spec_examples import MINIMAL, merged

from tailhold.manifest import ManifestError, read_manifest
from tailhold_api.codec import digest, load
from tailhold_api.fit import misfits
from tailhold_api.inspection import Inspection, inspection_part, models_digest
from tailhold_api.parts import build_part, pod_part
from tailhold_api.spec import Spec
from tailhold_api.stand_in import CHANGEABLE, StandIn, StandInError, Vectors, changed, disclosed, parsed, told


def spec(value: str | None = "", **more: Any) -> Spec:
    env = [] if value is None else [{"name": "TAILHOLD_STAND_IN", "value": value}]
    return load(Spec, json.dumps(merged(MINIMAL, {"pod": {"env": env}, **more})))


GOOD = {
    "": StandIn(),
    "firstTokenMilliseconds=40 slots=2": StandIn(first_token_milliseconds=40, slots=2),
    "slowPercent=1.5,slowTimes=20": StandIn(slow_percent=1.5, slow_times=20),
    " neverReady=true \n embedder=model ": StandIn(never_ready=True, embedder=Vectors.MODEL),
}


@pytest.mark.parametrize(("text", "meant"), GOOD.items())
def test_pairs_apart_by_blanks_or_commas_are_read(text: str, meant: StandIn) -> None:
    assert parsed(text) == meant


BAD = {
    "firstTokenMiliseconds=40": "`firstTokenMiliseconds`: unknown field, did you mean `firstTokenMilliseconds`?",
    "first_token_milliseconds=40": "`first_token_milliseconds`: unknown field, did you mean `firstTokenMilliseconds`?",
    "slots=0": "`slots`: input should be greater than or equal to 1, got '0'",
    "slots=many": "`slots`: input should be a valid integer",
    "failPercent=101": "`failPercent`: input should be less than or equal to 100",
    "tokenMilliseconds=nan": "`tokenMilliseconds`",
    "times=inf": "`times`",
    "embedder=real": "`embedder`: input should be 'stand-in' or 'model'",
    "slots=1 slots=2": "`slots` is given twice",
    "slots": "`slots` is no `key=value`",
    "slots=": "`slots=` is no `key=value`",
    '{"slots": 2}': "is no `key=value`",
}


@pytest.mark.parametrize(("text", "words"), BAD.items())
def test_a_mistake_is_named_with_its_key(text: str, words: str) -> None:
    with pytest.raises(StandInError) as caught:
        parsed(text)
    assert words in str(caught.value)


FIELDS = {
    "first_token_milliseconds": st.floats(0, 600_000),
    "slots": st.integers(1, 4096),
    "slow_percent": st.floats(0, 100),
    "times": st.floats(0.01, 1000),
    "never_ready": st.booleans(),
    "embedder": st.sampled_from(Vectors),
}


@given(st.fixed_dictionaries({}, optional=FIELDS))
def test_what_is_told_reads_as_what_was_meant(fields: dict[str, Any]) -> None:
    """To six digits, which people read."""
    meant = StandIn(**fields)
    shown = told(meant)
    again = parsed("" if shown == "defaults" else shown)
    numbers = {"first_token_milliseconds", "slow_percent", "times"}
    assert again.model_dump(exclude=numbers) == meant.model_dump(exclude=numbers)
    for name in numbers:
        assert getattr(again, name) == pytest.approx(getattr(meant, name), rel=1e-5)


@given(st.text(max_size=60))
def test_no_text_does_anything_but_be_read_or_be_refused_by_name(text: str) -> None:
    found: object = None
    try:
        found = parsed(text)
    except StandInError as error:
        found = str(error) if "`" in str(error) else None
    assert found


def test_a_fault_changes_what_it_names_and_nothing_else() -> None:
    stated = parsed("firstTokenMilliseconds=40 slots=2")
    assert changed(stated, "times=5 failPercent=30") == parsed(
        "firstTokenMilliseconds=40 slots=2 times=5 failPercent=30"
    )
    assert changed(stated, "") == stated


@pytest.mark.parametrize("name", sorted(set(StandIn.model_fields) - set(CHANGEABLE)))
def test_what_an_engine_starts_with_is_nothing_that_a_fault_can_change(name: str) -> None:
    value = {"embedder": "model", "never_ready": "true", "start_fails": "true"}.get(name, "3")
    with pytest.raises(StandInError, match="cannot change while it runs"):
        changed(StandIn(), f"{StandIn.model_fields[name].alias}={value}")


def test_a_stand_in_is_part_of_each_digest_that_it_changes() -> None:
    """Neither its pods nor what is found of its models nor its index is ever taken for those of the real one."""
    real, stood_in = spec(None), spec("slots=2")
    parts = [(pod_part("p", each), build_part(each)) for each in (real, stood_in, spec("slots=3"))]
    assert len({digest(pod) for pod, _ in parts}) == 3
    builds = [digest(build) for _, build in parts if build]
    assert builds[0] != builds[1] == builds[2]
    looked = [digest(inspection_part(pod, "image")) for pod, _ in parts]
    assert looked[0] != looked[1] == looked[2]
    models = (real.generator.model, real.embedder.model)
    assert models_digest(*models) != models_digest(*models, stand_in=True)


def test_with_the_embedder_of_the_spec_the_index_is_a_real_one() -> None:
    real, half = build_part(spec(None)), build_part(spec("embedder=model"))
    assert real == half


@pytest.mark.parametrize("text", ["slots=0", "fast"])
def test_a_mistake_in_it_is_refused_before_a_pod_starts(text: str, tmp_path: Path) -> None:
    """By the operator where it was applied, by the command line before that."""
    wanted = spec(text)
    found = Inspection(digest="0" * 64, models="0" * 64, vllm="stand-in")
    (fault,) = misfits(wanted, found, None)
    key = text.partition("=")[0]
    assert f"`pod.env` has `TAILHOLD_STAND_IN` with `{key}`" in fault.message
    file = tmp_path / "p.yaml"
    head = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "metadata": {"name": "p"}}
    file.write_text(
        yaml.safe_dump(head | {"spec": json.loads(wanted.model_dump_json(by_alias=True, exclude_none=True))})
    )
    with pytest.raises(ManifestError, match=f"TAILHOLD_STAND_IN has `{key}`"):
        read_manifest(file)
    assert build_part(wanted) == build_part(spec("slots=1")), "no model is read on account of a misspelt word"


def test_it_is_named_as_what_it_is_however_long_its_description() -> None:
    assert disclosed(spec(None).pod.env) == ()
    (line,) = disclosed(spec(" " * 3999).pod.env)
    assert "no model is loaded" in line
    assert len(line) < 500


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "canary").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.stem))
def test_the_examples_are_good_manifests_and_good_patches_of_them(file: Path, tmp_path: Path) -> None:
    whole = next(each for each in yaml.safe_load_all((file.parent / "pipeline.yaml").read_text()) if "spec" in each)
    changes = {} if file.stem == "pipeline" else yaml.safe_load(file.read_text())
    patched = tmp_path / "patched.yaml"
    patched.write_text(yaml.safe_dump(merged(whole, changes)))
    assert read_manifest(patched).name == "canary"


def test_the_page_has_every_key_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "rehearse-rollouts.md").read_text()
    plain = StandIn().model_dump(mode="json", by_alias=True)
    for key, value in plain.items():
        shown = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
        assert f"| `{key}` | {shown} |" in page
