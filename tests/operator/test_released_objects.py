"""An upgrade from each release on a real API server: the old CRD with old objects in it becomes the new one."""

import copy
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from api_server import ApiServer
from releases import released_crd, stored, versions

from tailhold_api import names
from tailhold_api.crd import custom_resource_definition

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = {"Content-Type": "application/merge-patch+json"}


def moved(crd: dict[str, Any], group: str) -> dict[str, Any]:
    """The same in a group of its own: that of the product is in use."""
    crd = copy.deepcopy(crd)
    crd["metadata"]["name"] = f"{names.PLURAL}.{group}"
    crd["spec"]["group"] = group
    short = {
        key: f"{group.split('.', maxsplit=1)[0]}{value}"
        for key, value in crd["spec"]["names"].items()
        if isinstance(value, str)
    }
    crd["spec"]["names"] |= {"kind": names.KIND, "listKind": f"{names.KIND}List", "plural": names.PLURAL} | {
        "singular": short["singular"]
    }
    crd["spec"]["names"].pop("shortNames", None)
    return crd


class Upgrade:
    """Old objects under the CRD that they were made with, and then under today's."""

    def __init__(self, client: httpx.Client, version: str) -> None:
        self.client = client
        self.version = version
        self.group = f"{version.replace('.', '-')}.released.example"
        self.path = f"/apis/{self.group}/{names.VERSION}/namespaces/default/{names.PLURAL}"

    def make(self) -> dict[str, dict[str, Any]]:
        self._checked(self.client.post(CRDS, json=moved(released_crd(self.version), self.group)))
        self._until(lambda: self.client.get(self.path).is_success)
        return {name: self._made(each) for name, each in stored(self.version).items()}

    def _made(self, pipeline: dict[str, Any]) -> dict[str, Any]:
        body = {**pipeline, "apiVersion": f"{self.group}/{names.VERSION}"}
        made = self._checked(self.client.post(self.path, json=body, params={"fieldValidation": "Strict"}))
        if "status" not in pipeline:
            return made
        path = f"{self.path}/{pipeline['metadata']['name']}/status"
        return self._checked(self.client.put(path, json=made | {"status": pipeline["status"]}))

    def upgrade(self) -> None:
        path = f"{CRDS}/{names.PLURAL}.{self.group}"
        spec = moved(custom_resource_definition(), self.group)["spec"]
        self._checked(self.client.patch(path, json={"spec": spec}, headers=MERGE))
        probe = {"apiVersion": f"{self.group}/{names.VERSION}", "kind": names.KIND, "metadata": {"name": "probe"}}
        body = probe | {"spec": stored(self.version)["minimal"]["spec"]}
        self._until(lambda: self.client.post(self.path, json=body, params={"dryRun": "All"}).is_success)

    def read(self, name: str) -> dict[str, Any]:
        return self._checked(self.client.get(f"{self.path}/{name}"))

    def touched(self, name: str) -> dict[str, Any]:
        """An edit that has nothing to do with what is new."""
        patch = {"metadata": {"annotations": {"touched": "1"}}, "spec": {"replicas": 7}}
        return self._checked(self.client.patch(f"{self.path}/{name}", json=patch, headers=MERGE))

    def made_anew(self, pipeline: dict[str, Any]) -> dict[str, Any]:
        body = {**pipeline, "apiVersion": f"{self.group}/{names.VERSION}"}
        return self._checked(
            self.client.post(self.path, json=body, params={"dryRun": "All", "fieldValidation": "Strict"})
        )

    def remove(self) -> None:
        self.client.delete(f"{CRDS}/{names.PLURAL}.{self.group}")

    @staticmethod
    def _checked(answer: httpx.Response) -> dict[str, Any]:
        assert answer.is_success, answer.text
        return dict(answer.json())

    @staticmethod
    def _until(holds: Any) -> None:
        until = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.fixture(scope="module", params=versions())
def upgrade(request: pytest.FixtureRequest, api: ApiServer) -> Iterator[Upgrade]:
    with api.client() as client:
        found = Upgrade(client, request.param)
        yield found
        found.remove()


def within(old: Any, new: Any) -> bool:
    """Whether nothing that was stored is lost or changed."""
    if isinstance(old, dict):
        return all(key in new and within(each, new[key]) for key, each in old.items())
    return bool(old == new)


def test_old_objects_outlive_the_upgrade_and_may_be_edited_and_made_anew(upgrade: Upgrade) -> None:
    """C107."""
    before = upgrade.make()
    for name, each in stored(upgrade.version).items():
        assert before[name]["spec"] == each["spec"], "kept as it was stored at the release"
    upgrade.upgrade()
    for name, each in before.items():
        after = upgrade.read(name)
        assert within(each["spec"], after["spec"])
        assert within(each.get("status", {}), after.get("status", {}))
        assert after["metadata"]["generation"] == each["metadata"]["generation"]
        assert upgrade.touched(name)["spec"]["replicas"] == 7
        anew = stored(upgrade.version)[name]
        anew["metadata"]["name"] = f"{name}-anew"
        assert within(anew["spec"], upgrade.made_anew(anew)["spec"])
