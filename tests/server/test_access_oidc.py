"""Tokens of an issuer: real JWTs, keys from a server on loopback, and an issuer that goes away."""

import base64
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from rag_server import running

from tailhold_api.access import JwtAlgorithm, Oidc
from tailhold_server.access.caller import Caller
from tailhold_server.access.oidc import APART_SECONDS, KEPT_SECONDS, LEEWAY_SECONDS, Issuer, IssuerError, fetch, usable
from tailhold_server.errors import Failure, ServeError

NOW = 1_800_000_000
RSA = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "curve"})
ED = OKPKey.generate_key("Ed25519", {"kid": "edwards"})


class Login:
    """An issuer on loopback, which counts what it is asked."""

    def __init__(self) -> None:
        self.keys: list[Any] = [RSA.as_dict(private=False)]
        self.asked: list[str] = []
        self.status = 200
        self.body: bytes | None = None
        self.issuer: str | None = None
        login = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                login.asked.append(self.path)
                said = login.body if login.body is not None else json.dumps(login.answer(self.path)).encode()
                self.send_response(login.status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/realm"

    def answer(self, path: str) -> Mapping[str, Any]:
        if path.endswith("/openid-configuration"):
            return {"issuer": self.issuer or self.url, "jwks_uri": f"{self.url}/keys"}
        return {"keys": self.keys}


@pytest.fixture
def login() -> Iterator[Login]:
    login = Login()
    thread = threading.Thread(target=login.server.serve_forever, daemon=True)
    thread.start()
    yield login
    login.server.shutdown()
    login.server.server_close()
    thread.join()


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return NOW + self.passed

    def monotonic(self) -> float:
        return self.passed


def issuer(login: Login, clock: Clock, told: list[bool] | None = None, **fields: Any) -> Issuer:
    settings = {"issuer": login.url, "audience": "rag", "tenant_claim": "org"} | fields
    tell = (told if told is not None else []).append
    return Issuer(Oidc(**settings), fetch, tell, now=clock.now, clock=clock.monotonic)


def token(login: Login, key: Key = RSA, algorithm: str = "RS256", **claims: Any) -> str:
    header = {"alg": algorithm, "kid": key.kid}
    return jwt.encode(header, claims_of(login) | claims, key, algorithms=[algorithm])


def claims_of(login: Login) -> dict[str, Any]:
    return {"iss": login.url, "aud": "rag", "sub": "ada", "exp": NOW + 300, "org": "risk"}


async def refusal(issuer: Issuer, bearer: str) -> ServeError:
    with pytest.raises(ServeError) as refused:
        await issuer.caller(bearer)
    return refused.value


async def test_a_token_of_the_issuer_names_client_and_tenant_and_keys_are_fetched_once(login: Login) -> None:
    told: list[bool] = []
    one = issuer(login, Clock(), told)
    for _ in range(20):
        assert await one.caller(token(login)) == Caller("ada", "risk")
    assert await one.caller(token(login, aud=["other", "rag"])) == Caller("ada", "risk")
    assert login.asked == ["/realm/.well-known/openid-configuration", "/realm/keys"]
    assert told == [True]


async def test_without_a_tenant_claim_nobody_has_a_tenant(login: Login) -> None:
    assert await issuer(login, Clock(), tenant_claim=None).caller(token(login)) == Caller("ada", "")


def part(said: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()


def unsigned(login: Login) -> str:
    return f"{part({'alg': 'none', 'kid': 'one'})}.{part(claims_of(login))}."


def confused(login: Login) -> str:
    """Signed with the public key as if it were a shared secret."""
    signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims_of(login))}"
    code = hmac.digest(RSA.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(code).rstrip(b'=').decode()}"


def tampered(login: Login) -> str:
    head, _, signature = token(login).split(".")
    return f"{head}.{part(claims_of(login) | {'org': 'board'})}.{signature}"


def forged(login: Login) -> str:
    """By another key under the name of the issuer's."""
    stranger = RSAKey.generate_key(2048, {"kid": "one"})
    return token(login, stranger)


def carried(login: Login) -> str:
    """With the key to check it with in its own header."""
    header = {"alg": "RS256", "kid": "mine", "jwk": OTHER.as_dict(private=False)}
    return jwt.encode(header, claims_of(login), OTHER, algorithms=["RS256"])


def named(login: Login, kid: str) -> str:
    """By a key of that name."""
    return jwt.encode({"alg": "RS256", "kid": kid}, claims_of(login), OTHER, algorithms=["RS256"])


WRONG = {
    "unsigned": unsigned,
    "a public key as a secret": confused,
    "tampered": tampered,
    "forged": forged,
    "its own key": carried,
    "no token": lambda _: "ada-0123456789abcdef",
    "two dots": lambda _: "..",
    "not JSON": lambda _: "a.b.c",
    "another algorithm": lambda login: token(login, RSA, "RS512"),
    "another issuer": lambda login: token(login, iss="https://other.example"),
    "another audience": lambda login: token(login, aud="mail"),
    "no audience": lambda login: token(login, aud=[]),
    "expired": lambda login: token(login, exp=NOW - LEEWAY_SECONDS - 1),
    "never expires": lambda login: token(login, exp=None),
    "not yet": lambda login: token(login, nbf=NOW + LEEWAY_SECONDS + 1),
    "no subject": lambda login: token(login, sub=""),
    "a subject of lines": lambda login: token(login, sub="ada\nroot"),
    "a number as a subject": lambda login: token(login, sub=7),
}


@pytest.mark.parametrize("made", WRONG.values(), ids=WRONG)
async def test_anything_else_is_refused_without_a_word_of_why_it_nearly_fits(made: Any, login: Login) -> None:
    refused = await refusal(issuer(login, Clock()), made(login))
    assert (refused.failure, refused.code) == (Failure.UNAUTHENTICATED, "invalid_api_key")
    assert login.url not in refused.message


@pytest.mark.parametrize("tenant", [None, "", 7, ["risk"], "a" * 300, "risk\n"])
async def test_a_token_without_a_tenant_is_forbidden(tenant: Any, login: Login) -> None:
    refused = await refusal(issuer(login, Clock()), token(login, org=tenant))
    assert (refused.failure, refused.code) == (Failure.FORBIDDEN, "tenant_missing")
    assert "`org`" in refused.message


async def test_clocks_may_differ_a_little(login: Login) -> None:
    one = issuer(login, Clock())
    await one.caller(token(login, exp=NOW - LEEWAY_SECONDS + 1, nbf=NOW + LEEWAY_SECONDS - 1))


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "PS256"), (EC, "ES256"), (ED, "Ed25519"), (ED, "EdDSA")],
    ids=["PS256", "ES256", "Ed25519", "EdDSA"],
)
async def test_each_algorithm_works_where_it_is_named(key: Key, algorithm: str, login: Login) -> None:
    login.keys = [each.as_dict(private=False) for each in (RSA, EC, ED)]
    named = issuer(login, Clock(), algorithms=(JwtAlgorithm(algorithm),))
    assert await named.caller(token(login, key, algorithm)) == Caller("ada", "risk")
    other = issuer(login, Clock(), algorithms=(JwtAlgorithm.ES512,))
    assert (await refusal(other, token(login, key, algorithm))).failure is Failure.UNAUTHENTICATED


async def test_a_new_key_is_fetched_when_a_token_names_it_but_not_for_each_that_does(login: Login) -> None:
    clock = Clock()
    one = issuer(login, clock)
    await one.caller(token(login))
    before = len(login.asked)
    for number in range(50):
        await refusal(one, named(login, f"unknown-{number}"))
    assert len(login.asked) == before, "right after a fetch"
    login.keys = [OTHER.as_dict(private=False)]
    await refusal(one, token(login, OTHER))
    clock.passed += APART_SECONDS
    assert await one.caller(token(login, OTHER)) == Caller("ada", "risk")
    assert len(login.asked) == before + 2
    assert (await refusal(one, token(login, RSA))).failure is Failure.UNAUTHENTICATED, "the old key is gone"


async def test_an_issuer_that_is_away_leaves_its_keys_in_force(login: Login, caplog: pytest.LogCaptureFixture) -> None:
    clock, told = Clock(), list[bool]()
    one = issuer(login, clock, told)
    await one.refresh()
    login.status = 503
    clock.passed += KEPT_SECONDS
    await one.refresh()
    assert await one.caller(token(login, exp=NOW + 10_000)) == Caller("ada", "risk")
    assert told == [True, False]
    assert "the old ones stay in force" in caplog.text
    asked = len(login.asked)
    await one.refresh()
    assert len(login.asked) == asked, "not at once again"
    login.status, clock.passed = 200, clock.passed + APART_SECONDS
    await one.refresh()
    assert told == [True, False, True]


NO_KEYS: dict[str, dict[str, Any]] = {
    "down": {"status": 500},
    "no JSON": {"body": b"<html>"},
    "a list": {"body": b"[]"},
    "too much": {"body": b" " * (2 << 20)},
    "of another issuer": {"issuer": "https://other.example"},
    "no keys": {"keys": []},
    "shared secrets alone": {"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldA", "kid": "one"}]},
    "for encryption": {"keys": [RSA.as_dict(private=False) | {"use": "enc"}]},
    "nonsense": {"keys": ["a", 7, None, {"kty": "RSA", "kid": "one"}]},
}


@pytest.mark.parametrize("fault", NO_KEYS.values(), ids=NO_KEYS)
async def test_without_keys_nobody_is_let_in_and_told_to_come_again(fault: dict[str, Any], login: Login) -> None:
    for name, value in fault.items():
        setattr(login, name, value)
    refused = await refusal(issuer(login, Clock()), token(login))
    assert (refused.failure, refused.retry_after_seconds) == (Failure.UNAVAILABLE, 30)


async def test_keys_may_have_an_address_of_their_own(login: Login) -> None:
    one = issuer(login, Clock(), jwks_url=f"{login.url}/keys")
    assert await one.caller(token(login)) == Caller("ada", "risk")
    assert login.asked == ["/realm/keys"]


def test_one_bad_key_of_a_set_spoils_no_other() -> None:
    bad = [{"kty": "RSA", "n": "!", "e": "!", "kid": "bad"}, {"kty": "EC", "crv": "P-1", "kid": "odd"}]
    assert [key.kid for key in usable({"keys": [*bad, RSA.as_dict(private=False)]}).keys] == ["one"]
    with pytest.raises(IssuerError):
        usable({"keys": bad})


async def test_behind_the_issuer_routes_answer_with_openais_errors(login: Login) -> None:
    one = issuer(login, Clock())
    async with running(authenticator=one) as server:
        answers = [
            await server.public.get("/v1/models", headers={"authorization": f"Bearer {bearer}"})
            for bearer in (token(login), token(login, org=None), token(login, aud="mail"))
        ]
        text = server.service.telemetry.text()
    assert [each.status_code for each in answers] == [200, 403, 401]
    assert [each.json()["error"]["code"] for each in answers[1:]] == ["tenant_missing", "invalid_api_key"]
    assert 'tailhold_denied_total{reason="no_tenant"} 1.0' in text
    assert 'tailhold_denied_total{reason="no_key"} 1.0' in text
