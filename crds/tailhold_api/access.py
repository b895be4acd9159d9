"""Who may ask, how much, and over what wire."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from tailhold_api.fields import Model, Rule, live, restart
from tailhold_api.grammar import NAME, one_of

Tenant = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")]
_KEYS_CAN_BE_TRUSTED = "matches('^(https://|http://(localhost|127\\\\.0\\\\.0\\\\.1)(:|/|$))')"


class ApiKeys(Model):
    """Keys in a Secret of the pipeline's namespace: each entry's name is a client, its value that client's key."""

    secret_name: str = restart(**NAME)
    """The Secret's name. A value is the key itself, or better `sha256:` and the 64 hex digits of its SHA-256, so that
    whoever reads the Secret cannot ask. Keys that are added, changed or taken out hold in the running pods within two
    minutes, when kubelet has renewed the files; an entry that cannot be used shuts its own client out, and no other."""


class JwtAlgorithm(StrEnum):
    """How tokens are signed: with key pairs alone."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    ED25519 = "Ed25519"
    ED_DSA = "EdDSA"


class Oidc(Model):
    """Tokens (JWT) of an OpenID Connect issuer. The client is the token's `sub`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.issuer.{_KEYS_CAN_BE_TRUSTED} && (!has(self.jwksUrl) || self.jwksUrl.{_KEYS_CAN_BE_TRUSTED})",
            "`issuer` and `jwksUrl` must begin with `https://`: over plain http anybody on the way could put keys of"
            " their own in",
            {"issuer": "https://login.example.com", "audience": "rag"},
            {"issuer": "http://login.example.com", "audience": "rag"},
        ),
    )

    issuer: str = restart(min_length=8, max_length=500, pattern=r"^https?://[^ ?#]+$")
    """The token's `iss`, character by character. Keys are found through its `/.well-known/openid-configuration`."""
    audience: str = restart(min_length=1, max_length=500)
    """What the token's `aud` has to be or hold, so that a token for another service opens nothing here."""
    jwks_url: str | None = restart(None, min_length=8, max_length=1000, pattern=r"^https?://[^ #]+$")
    """Where the keys are, for issuers without discovery. Keys are fetched at the start, every hour, and when a token
    names one that is not known, at most every 30 s; an issuer that cannot be reached leaves the old ones in force."""
    tenant_claim: str | None = restart(None, min_length=1, max_length=200)
    """The claim that names the tenant, a text. A token without it is refused with 403. Without this field nobody has a
    tenant."""
    algorithms: tuple[JwtAlgorithm, ...] = restart(
        (JwtAlgorithm.RS256, JwtAlgorithm.ES256), min_length=1, max_length=11
    )
    """Signatures that are accepted. `none` and shared secrets never are."""


class Auth(Model):
    """Who may ask. Exactly one of `apiKeys` and `oidc` is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "apiKeys",
            "oidc",
            accepted={"apiKeys": {"secretName": "clients"}},
            refused={
                "apiKeys": {"secretName": "clients"},
                "oidc": {"issuer": "https://login.example.com", "audience": "rag"},
            },
        ),
    )

    api_keys: ApiKeys | None = None
    """Keys in a Secret, for programs."""
    oidc: Oidc | None = None
    """Tokens of a company's sign-on."""


class Limits(Model):
    """How much one client may ask: the name of its key, or its token's `sub`. Without `server.auth` all are one client,
    `anonymous`. Each pod counts by itself: with three replicas a client may get up to three times as much."""

    requests_per_minute: int | None = live(None, ge=1, le=1000000)
    """Questions, searches and requests for embeddings in a minute, all of them at once if need be; they come back one
    by one. Beyond them 429 with Retry-After. No limit where it is not given."""
    tokens_per_minute: int | None = live(None, ge=1, le=1000000000)
    """Tokens of prompts and answers in a minute. An answer is counted at the longest that it may get, and settled at
    its end: clients that send a small `max_tokens` get further. The prompt holds the passages. No limit where it is
    not given."""
    max_concurrent: int | None = live(None, ge=1, le=100000)
    """Questions of one client that are answered or wait at the same time, so that one cannot fill the queue. No limit
    where it is not given."""


class InternalTls(StrEnum):
    """What is spoken on the internal port."""

    OFF = "Off"
    ON = "On"


class Tls(Model):
    """HTTPS, TLS 1.2 and newer. New certificates are taken up without a restart and cut no connection; one that cannot
    be used leaves the old one in force."""

    secret_name: str = restart(**NAME)
    """Secret of the type `kubernetes.io/tls` in the pipeline's namespace, as cert-manager makes it: `tls.crt` with its
    chain, and `tls.key`."""
    client_ca_secret_name: str | None = restart(None, **NAME)
    """Mutual TLS: a Secret whose `ca.crt` holds the authorities that sign clients' certificates. Who has none from
    them is refused in the handshake, as is TLS 1.2, whose sessions go on without a certificate. Keys or tokens are
    asked for all the same where `server.auth` is given."""
    internal: InternalTls = restart(InternalTls.OFF)
    """`On` speaks TLS on the internal port too, with the same certificate: probes, metrics, and what the operator
    hands over. The operator then checks the certificate against the authorities that its setting
    `TAILHOLD_POD_AUTHORITIES` names, under the name of the pipeline's Service, `<service>.<namespace>.svc`: it has to
    be one of the certificate's names. Prometheus needs `scheme: https`, which the pods' annotations
    say. Clients' certificates are asked for on the clients' ports alone: kubelet has none."""


class Http(Model):
    """HTTP as clients meet it."""

    keep_alive_seconds: int = restart(75, ge=1, le=7200)
    """How long an idle connection stays open. Longer than proxies in front keep theirs: one that closes first loses
    requests to now and then a 502."""
    max_body_mebibytes: int = restart(4, ge=1, le=1024)
    """Largest request. A larger one is refused with 413 before it is read. Each takes so much memory while it is
    read."""
