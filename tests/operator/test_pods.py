"""What pods are asked, what they may answer, and the token that goes with it."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from joserfc.jwk import OKPKey

from tailhold_api import codec
from tailhold_api.handover import Candidate, Handover
from tailhold_api.parts import ContentPart
from tailhold_api.status import StartPhase
from tailhold_operator.observe import NOTHING, Pod, Report, as_candidate, read_pod
from tailhold_operator.pods import Answer, Declined, HttpPods, Taken, Unanswered
from tailhold_operator.testing import FakeClock, FakeCluster
from tailhold_operator.tokens import Signer, read_signer
from tailhold_server.authority import Authority, NotAllowedError

CONTENT = ContentPart(snapshot="5" * 64)
POD = replace(read_pod({"metadata": {"name": "a"}}), ip="10.0.0.1")


def pods(handler: object) -> HttpPods:
    client = httpx.AsyncClient(transport=httpx.MockTransport(handler))  # type: ignore[arg-type]
    return HttpPods(client, lambda audience: f"token for {audience}")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(200, {"contentDigest": "x"}, Taken(), id="taken"),
        pytest.param(422, {"error": {"message": "no such template"}}, Declined("no such template"), id="refused"),
        pytest.param(400, {}, Declined("status 400"), id="refused without words"),
        pytest.param(401, {"error": {"message": "expired"}}, Unanswered("expired"), id="a key that is not there yet"),
        pytest.param(503, {"error": {"message": "loading"}}, Unanswered("loading"), id="busy"),
    ],
)
async def test_what_a_pod_says_to_new_content(status: int, body: object, expected: Answer) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json=body)

    assert await pods(answer).push(POD, CONTENT, "team/handbook") == expected
    assert asked[0].headers["authorization"] == "Bearer token for team/handbook"
    assert str(asked[0].url) == "http://10.0.0.1:8001/internal/content"


async def test_a_pod_that_cannot_be_reached_is_no_refusal() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("too long")

    silent = pods(answer)
    assert isinstance(await silent.push(POD, CONTENT, "a/b"), Unanswered)
    assert await silent.report(POD) is None
    assert await silent.progress(POD) is None
    assert await silent.buckets(POD) == {}


async def test_a_report_is_read_and_nonsense_is_none() -> None:
    told = {
        "podDigest": "p",
        "contentDigest": "c",
        "snapshot": "s",
        "phase": "serving",
        "phases": [
            {"name": "load", "beganMilliseconds": 1, "milliseconds": 2, "newer": "x"},
            {"name": "l" * 33, "beganMilliseconds": 1, "milliseconds": 2},
            {"name": "load", "beganMilliseconds": -1, "milliseconds": 2},
            "load",
        ],
        "rates": {"prefillTokensPerSecond": 1.5},
    }
    assert await pods(lambda _: httpx.Response(200, json=told)).report(POD) == Report(
        "p",
        "c",
        "s",
        "serving",
        (StartPhase(name="load", began_milliseconds=1, milliseconds=2),),
        rates={"prefillTokensPerSecond": 1.5},
    )
    assert await pods(lambda _: httpx.Response(200, json={})).report(POD) == Report("", "", "")
    assert await pods(lambda _: httpx.Response(200, text="<html>")).report(POD) is None
    assert await pods(lambda _: httpx.Response(500, json=told)).report(POD) is None


async def test_an_address_of_version_six_is_bracketed() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, json={})

    six: Pod = replace(POD, ip="fd00::1")
    await pods(answer).report(six)
    assert asked == ["http://[fd00::1]:8001/v1/tuning"]


async def test_a_pod_with_tls_is_asked_under_the_name_of_its_service() -> None:
    """Its address is in no certificate."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={})

    probe = {"httpGet": {"path": "/readyz", "port": "internal", "scheme": "HTTPS"}}
    metadata = {"name": "a", "namespace": "team", "labels": {"app.kubernetes.io/instance": "handbook"}}
    seen = read_pod({"metadata": metadata, "spec": {"containers": [{"readinessProbe": probe}]}})
    secured = replace(seen, ip="10.0.0.1")
    await pods(answer).report(secured)
    await pods(answer).push(secured, CONTENT, "team/handbook")
    await pods(answer).report(POD)
    assert [str(each.url).partition("10")[0] for each in asked] == ["https://", "https://", "http://"]
    names = [each.extensions.get("sni_hostname") for each in asked]
    assert names == ["handbook.team.svc", "handbook.team.svc", None]


CANDIDATE = Candidate(pod="b", ip="10.0.0.2")
HANDOVER = Handover(weight_percent=12.5, revision="a1-b2", candidates=(CANDIDATE,))


async def test_a_handover_carries_a_token_of_its_own() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={})

    assert await pods(answer).hand_over(POD, HANDOVER, "team/handbook") == Taken()
    assert await pods(answer).hand_over(POD, HANDOVER.model_copy(update={"weight_percent": 0}), "team/x") == Taken()
    assert str(asked[0].url) == "http://10.0.0.1:8001/internal/handover"
    assert asked[0].headers["authorization"] == "Bearer token for team/handbook"
    taken = codec.load(Handover, asked[0].content)
    assert taken == HANDOVER.model_copy(update={"token": "token for team/handbook/handover"})
    assert "token" not in codec.load(Handover, asked[1].content).model_dump(exclude_defaults=True)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (None, NOTHING),
        (HANDOVER.model_dump(mode="json", by_alias=True) | {"expiresInSeconds": 9.5, "newer": 1}, HANDOVER),
        ({"weightPercent": 200}, None),
        ("all", None),
    ],
    ids=["nothing", "as a server tells it", "nonsense", "no object"],
)
async def test_what_is_handed_over_is_read_from_what_a_server_tells(told: object, expected: Handover | None) -> None:
    report = await pods(lambda _: httpx.Response(200, json={"handover": told})).report(POD)
    assert report is not None
    assert report.handover == expected


@pytest.mark.parametrize(
    ("port", "scheme", "name", "inside"),
    [
        ("http", "HTTP", "", ""),
        ("https", "HTTP", "handbook.team.svc", ""),
        ("https", "HTTPS", *["handbook.team.svc"] * 2),
    ],
)
def test_a_candidate_is_reached_as_its_clients_reach_it(port: str, scheme: str, name: str, inside: str) -> None:
    """With `server.tls` what is handed over is encrypted, whether the internal port is or not."""
    probe = {"httpGet": {"path": "/readyz", "port": "internal", "scheme": scheme}}
    container = {"readinessProbe": probe, "ports": [{"name": port, "containerPort": 8000}]}
    metadata = {"name": "b", "namespace": "team", "labels": {"app.kubernetes.io/instance": "handbook"}}
    pod = read_pod({"metadata": metadata, "spec": {"containers": [container]}, "status": {"podIP": "fd00::2"}})
    assert as_candidate(pod) == Candidate(pod="b", ip="fd00::2", server_name=name)
    assert pod.server_name == inside


class TestTokens:
    NOW = 1_800_000_000

    @pytest.fixture
    def key(self) -> OKPKey:
        return OKPKey.generate_key("Ed25519", private=True)

    def authority(self, key: OKPKey, folder: Path, audience: str, now: float) -> Authority:
        path = folder / "operator.pub.json"
        path.write_text(Signer(key).public_key)
        return Authority(path, audience, lambda: now)

    def test_a_server_takes_it_for_a_minute(self, key: OKPKey, tmp_path: Path) -> None:
        token = Signer(key, lambda: self.NOW).token("team/handbook")
        self.authority(key, tmp_path, "team/handbook", self.NOW + 30).check(f"Bearer {token}")
        with pytest.raises(NotAllowedError):
            self.authority(key, tmp_path, "team/handbook", self.NOW + 90).check(f"Bearer {token}")

    def test_a_token_is_for_one_pipeline_alone(self, key: OKPKey, tmp_path: Path) -> None:
        token = Signer(key, lambda: self.NOW).token("team/handbook")
        with pytest.raises(NotAllowedError):
            self.authority(key, tmp_path, "team/other", self.NOW).check(f"Bearer {token}")

    def test_another_key_does_not_sign(self, key: OKPKey, tmp_path: Path) -> None:
        other = OKPKey.generate_key("Ed25519", private=True)
        token = Signer(other, lambda: self.NOW).token("team/handbook")
        with pytest.raises(NotAllowedError):
            self.authority(key, tmp_path, "team/handbook", self.NOW).check(f"Bearer {token}")

    def test_the_public_half_holds_no_private_one(self, key: OKPKey) -> None:
        assert '"d"' not in Signer(key).public_key

    async def test_the_key_outlives_the_operator(self) -> None:
        cluster = FakeCluster(FakeClock())
        first = await read_signer(cluster, "home", "tailhold")
        second = await read_signer(cluster, "home", "tailhold")
        assert first.public_key == second.public_key
        assert len(cluster.writes) == 1
