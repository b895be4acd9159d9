"""Traps from the field about specs, with a real API server, `tailhold validate` and the operator. Named by case."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from kstatus import kstatus
from places import Place
from spec_examples import MINIMAL, merged
from worlds import Stage, spec

from tailhold.manifest import ManifestError, read_manifests
from tailhold_api import names
from tailhold_operator.kinds import CHILD_KINDS, Ref, path_of
from tailhold_operator.parsing import read_history, read_spec
from tailhold_operator.testing import Fate

OTHER = {"engine": {"blockSizeTokens": 64}}


def manifest(change: dict[str, Any], name: str = "case") -> dict[str, Any]:
    head = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}}
    return head | {"spec": merged(MINIMAL, change)}


def validated(body: dict[str, Any]) -> str:
    """What `tailhold validate` says; nothing where it is content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yaml"
        path.write_text(yaml.safe_dump(body))
        try:
            read_manifests(path)
        except ManifestError as error:
            return str(error)
    return ""


async def posted(place: Place, body: dict[str, Any], **query: str) -> httpx.Response:
    return await place.admin.post(path_of(names.KIND, place.namespace), json=copy.deepcopy(body), params=query)


MISSPELT = [
    pytest.param({"replica": 3}, "spec.replica", "did you mean `replicas`", id="misspelt"),
    pytest.param({"topK": 3}, "spec.topK", "did you mean `retrieval.topK`", id="one level too high"),
    pytest.param({"rollout": {"engine": {}}}, "spec.rollout.engine", "did you mean `engine`", id="one level too low"),
]


@pytest.mark.parametrize(("change", "path", "meant"), MISSPELT)
class TestC01:
    """Unknown fields: refused where the client asks for it or applies server-side, else dropped with a warning."""

    async def test_strict_clients_are_refused(
        self, place: Place, change: dict[str, Any], path: str, meant: str
    ) -> None:
        """kubectl since 1.27."""
        refused = await posted(place, manifest(change), fieldValidation="Strict")
        assert (refused.status_code, f'unknown field \\"{path}\\"' in refused.text) == (400, True)

    async def test_server_side_apply_is_refused_whoever_asks(
        self, place: Place, change: dict[str, Any], path: str, meant: str
    ) -> None:
        """Flux, and `kubectl apply --server-side`."""
        refused = await place.applied(merged(MINIMAL, change))
        assert (refused.is_success, f".{path}: field not declared in schema" in refused.text) == (False, True)

    async def test_other_clients_are_warned_and_the_field_is_dropped(
        self, place: Place, change: dict[str, Any], path: str, meant: str
    ) -> None:
        """The operator never sees it: it cannot say so in status."""
        made = await posted(place, manifest(change))
        assert made.is_success
        assert f'unknown field \\"{path}\\"' in made.headers["warning"]
        quiet = await posted(place, manifest(change, "quiet"), fieldValidation="Ignore")
        assert "warning" not in quiet.headers
        plain = await posted(place, manifest({}, "plain"))
        assert made.json()["spec"] == quiet.json()["spec"] == plain.json()["spec"]

    def test_validate_refuses_it_and_says_what_was_meant(self, change: dict[str, Any], path: str, meant: str) -> None:
        assert f"{path}: unknown field" in validated(manifest(change))
        assert meant in validated(manifest(change))


def number(field: str, value: Any) -> dict[str, Any]:
    block, _, name = field.rpartition(".")
    for step in reversed(block.split(".")):
        value = {step: value if name == "" else {name: value}}
        name = ""
    return dict(value)


WRONG = [
    pytest.param("retrieval.topK", 3000, ("100",), id="C05-top-k-over-the-cap"),
    pytest.param("placement.gpu.count", "1", (), id="C07-count-as-text"),
    pytest.param("placement.cpu.cores", "8", (), id="C07-cores-as-text"),
    pytest.param("engine.maxModelTokens", "8k", (), id="C07-tokens-as-text"),
    pytest.param("engine.gpuMemoryFraction", "0.9", (), id="C07-ratio-as-text"),
    pytest.param("engine.gpuMemoryFraction", 90, ("0.98",), id="C07-ratio-as-percent"),
    pytest.param("engine.gpuMemoryFraction", 0, ("0.05",), id="C07-ratio-of-nothing"),
    pytest.param("engine.gpuMemoryFraction", 1.2, ("0.98",), id="C07-ratio-over-one"),
    pytest.param("engine.tensorParallel", 2, ("`placement.gpu.count`",), id="C07-more-parts-than-GPUs"),
]


@pytest.mark.parametrize(("field", "value", "words"), WRONG)
async def test_wrong_numbers_are_refused_alike_everywhere(
    place: Place, field: str, value: Any, words: tuple[str, ...]
) -> None:
    """C05, C07: whatever the client asks for, by the API server, by `tailhold validate` and by the operator."""
    body = manifest(number(field, value))
    refused = await posted(place, body, fieldValidation="Ignore")
    here = validated(body)
    assert refused.status_code == 422
    is_rule = "`" in "".join(words)
    for word in (*words, *(() if is_rule else (field.rpartition(".")[2],))):
        assert word in refused.text
        assert word in here
    told = read_spec(body)
    assert is_rule or (isinstance(told, str) and f"spec.{field}" in told)


class TestC09:
    """A wrong spec and then a right one: nothing of the wrong one is left."""

    async def test_a_refused_apply_changes_nothing(self, place: Place) -> None:
        await place.put(spec())
        for _ in range(3):
            await place.step()
        before = await place.pipeline()
        refused = await place.applied(spec(retrieval={"topK": 1000}))
        assert refused.status_code == 422
        await place.step()
        after = await place.pipeline()
        assert (after["metadata"]["generation"], after["status"]) == (
            before["metadata"]["generation"],
            before["status"],
        )
        await place.put(spec(retrieval={"topK": 7}))
        await place.step()
        fixed = await place.pipeline()
        assert fixed["status"]["observedGeneration"] == before["metadata"]["generation"] + 1
        assert "Stalled" not in await place.conditions()

    @pytest.mark.parametrize("times", [1, 4])
    def test_after_the_fix_nothing_of_the_mistake_is_left(self, times: int) -> None:
        """Where an older CRD let it through."""
        stage, clean = serving(), serving()
        for wrong in range(times):
            stage.put(spec(retrieval={"topK": 1000 + wrong}))
            stage.run(seconds=60)
            assert kstatus(found(stage)) == "Failed"
        for each in (stage, clean):
            each.put(spec(**OTHER))
            each.settle()
        assert stage.status()["observedGeneration"] == found(stage)["metadata"]["generation"] == times + 2
        assert told(stage) == told(clean)
        assert stage.status()["ended"] == clean.status()["ended"] or times
        assert remembered(stage).failure is None
        assert [each.reason for each in remembered(stage).ended] == ["Replaced"]

    def test_a_failed_candidate_then_a_wrong_spec_then_a_right_one(self) -> None:
        stage = serving()
        old = stage.served()
        late = Fate(ready=False)
        label = names.LABEL_POD_PART
        stage.controllers.fate = lambda owner: Fate() if owner["metadata"]["labels"].get(label) in (old, None) else late
        stage.put(spec(rollout={"deadlineSeconds": 60}, **OTHER))
        stage.run(seconds=120)
        assert stage.condition("RolledOut") == ("False", "DeadlineExceeded")
        stage.put(spec(replicas=-1))
        stage.run(seconds=30)
        assert stage.condition("RolledOut") == ("False", "InvalidSpec")
        stage.controllers.fate = lambda owner: Fate()
        stage.put(spec(engine={"blockSizeTokens": 128}))
        stage.settle()
        assert told(stage) == told(serving())
        assert remembered(stage).failure is None


def serving() -> Stage:
    stage = Stage()
    stage.put(spec())
    stage.settle()
    return stage


def found(stage: Stage) -> dict[str, Any]:
    return next(iter(stage.cluster.of_kind(names.KIND)))


def told(stage: Stage) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each["reason"]) for each in stage.status()["conditions"]]


def remembered(stage: Stage) -> Any:
    return read_history(stage.child("ConfigMap", "history"))


STEM = "9-legal.docs.search-for-the-international-customer-support-team"
LONGEST = f"{STEM}.{'x' * (252 - len(STEM) - 5)}.prod"
NAMES = ("9", "a.b", f"{STEM}-prod", f"{STEM}-test", LONGEST, LONGEST.replace(".prod", ".test"))


class TestC10:
    """A legal name of a pipeline gives legal names of children, and no two pipelines the same."""

    @pytest.fixture
    async def places(self, place: Place) -> list[Place]:
        found = [place.beside(name) for name in NAMES]
        for each in found:
            await each.put(spec())
            await each.step()
        return found

    async def test_every_child_is_made_whatever_the_name(self, places: list[Place]) -> None:
        children: list[str] = []
        for each in places:
            await each.build()
            for _ in range(2):
                await each.step()
            conditions = await each.conditions()
            assert "Stalled" not in conditions, conditions["Stalled"].message
            made = await each.children()
            assert {name.partition("/")[0] for name in made} >= {"Deployment", "Service", "PodDisruptionBudget", "Job"}
            children += [name for name in made if not name.startswith("Pod/")]
        assert len(children) == len(set(children)), "no two pipelines share a child"

    async def test_pods_get_a_hostname_of_their_own(self, places: list[Place]) -> None:
        """A Deployment's pods are made by the real controllers: the name with its suffixes still fits."""
        for each in places:
            await each.build()
            for _ in range(2):
                await each.step()

            async def server_pod(each: Place = each) -> dict[str, Any] | None:
                made = (await each.children()).values()
                pods = (pod for pod in made if pod["kind"] == "Pod")
                return next((pod for pod in pods if names.LABEL_POD_PART in pod["metadata"]["labels"]), None)

            pod = await each.until(server_pod)
            assert len(pod["metadata"]["name"]) <= 63

    async def test_a_name_that_is_too_long_is_refused_before_anything_is_made(self, place: Place) -> None:
        refused = await place.beside("x" * 254).applied(spec())
        assert refused.status_code == 422
        for kind in CHILD_KINDS:
            assert await place.cluster.find(kind, place.namespace, f"{names.LABEL_PART_OF}=tailhold") == ()
        assert await place.cluster.read(Ref(names.KIND, place.namespace, "x" * 254)) is None
