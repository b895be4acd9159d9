"""Where the operator reads what pods counted."""

from typing import ClassVar

from tailhold_api.fields import Model, Rule, policy
from tailhold_api.grammar import KEY, NAME, one_of

_PRINTABLE = r"^[\x20-\x7e]*$"
_LABEL = r"^[a-zA-Z_][a-zA-Z0-9_]*$"


class SecretKey(Model):
    """A key of a Secret in the pipeline's namespace. The operator may read no Secret unless a Role of that namespace
    lets it `get` this one by name; where that is missing `SLOMet` says which Role to make."""

    secret_name: str = policy(**NAME)
    """The Secret."""
    key: str = policy("token", **KEY)
    """Its key."""


class Authorities(Model):
    """PEM certificates of the authorities that a server's certificate may come from. Exactly one of `configMapName` and
    `secretName` is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "configMapName",
            "secretName",
            accepted={"configMapName": "corporate-ca"},
            refused={"configMapName": "corporate-ca", "secretName": "corporate-ca"},
        ),
    )

    config_map_name: str | None = policy(None, **NAME)
    """A ConfigMap of the pipeline's namespace, as trust-manager and OpenShift make them."""
    secret_name: str | None = policy(None, **NAME)
    """A Secret of the pipeline's namespace; the operator needs a Role to read it."""
    key: str = policy("ca.crt", **KEY)
    """The key that holds them."""


class Header(Model):
    """A header of each query."""

    name: str = policy(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9-]+$")
    """Its name, as `X-Scope-OrgID`."""
    value: str = policy(max_length=500, pattern=_PRINTABLE)
    """Its value. It is no secret: it stands in the RagPipeline."""


class Matcher(Model):
    """A label that series must have."""

    name: str = policy(min_length=1, max_length=100, pattern=_LABEL)
    """The label's name, as `cluster`."""
    value: str = policy(max_length=200, pattern=_PRINTABLE)
    """Its value, exactly."""


class Prometheus(Model):
    """A server that speaks Prometheus's query API and scrapes port 8001 of the pipeline's pods, with the labels
    `namespace` and `pod` on what it stores, as a PodMonitor and the usual pod discovery give them."""

    url: str = policy(max_length=500, pattern=r"^https?://[^ ?#@]+$")
    """Where it is, with a path where it has one, as `https://metrics.example.com/prometheus`; `/api/v1/query` is put
    after it. No user or password."""
    headers: tuple[Header, ...] = policy((), max_length=8)
    """Sent with each query, such as a tenant's name for Mimir."""
    bearer_token: SecretKey | None = None
    """Sent as `Authorization: Bearer`. Over plain HTTP everybody on the way can read it."""
    ca: Authorities | None = None
    """Whom its certificate is checked with. The operator's own authorities where it is not given; the check cannot be
    turned off."""
    labels: tuple[Matcher, ...] = policy((), max_length=8)
    """What else series must have, where one server holds several clusters."""
    stale_seconds: int = policy(60, ge=10, le=300)
    """A sample that is older counts as not read: at least twice the scrape interval. Longer lets a scrape fail now and
    then; shorter notices sooner that nothing comes any more."""


class Pods(Model):
    """The pods themselves, every five seconds, at port 8001."""


class MetricsSource(Model):
    """Exactly one of `pods` and `prometheus` is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "pods",
            "prometheus",
            accepted={"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}},
            refused={"pods": {}, "prometheus": {"url": "http://prometheus.monitoring.svc:9090"}},
        ),
    )

    pods: Pods | None = policy(None)
    """The pods themselves. Needs nothing but a way from the operator to port 8001."""
    prometheus: Prometheus | None = None
    """A Prometheus that scrapes them: for clusters where the operator may not reach pods. A verdict comes one scrape
    interval later."""
