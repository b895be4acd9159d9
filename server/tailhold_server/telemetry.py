"""The server's own metrics."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tailhold_api import names
from tailhold_api.parts import revision_name
from tailhold_server.capacity import Capacity, Rates
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handover.outcomes import Outcome
from tailhold_server.pipeline import Answer
from tailhold_server.stages import delivered_milliseconds

_STAGE_BUCKETS = (
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
)
_ANSWER_BUCKETS = (
    0.05,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    8.0,
    15.0,
    30.0,
    60.0,
    120.0,
)

OUTCOMES = ("ok", "client_closed", "rejected", "invalid", "failed")
"""Values of the label of `requests_total`. `client_closed` and `rejected` are no failures of the server."""
SPANS = ("exported", "dropped", "failed")
"""Values of the label of `spans_total`."""

STREAMS = ("one", "all")
"""Values of the label of `decode_tokens_per_second`."""
DENIALS = ("no_key", "no_tenant", "limit")
"""Values of the label of `denied_total`: the statuses 401, 403, and 429 for a client's own limit."""
ACCESS_FILES = ("api_keys", "issuer_keys", "certificate", "client_authorities")
"""Values of the label of `access_current`."""


class Telemetry:
    """One registry for each server, so that two of them in a process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._stages = Histogram(
            names.METRIC_STAGE_SECONDS,
            "How long each stage of a question took.",
            ["stage"],
            registry=self.registry,
            buckets=_STAGE_BUCKETS,
        )
        self._unaccounted = Histogram(
            names.METRIC_UNACCOUNTED_SECONDS,
            "Time of a question that no stage explains.",
            registry=self.registry,
            buckets=_STAGE_BUCKETS,
        )
        self._first = Histogram(
            names.METRIC_TTFT_SECONDS,
            "From a question's arrival to its first token.",
            registry=self.registry,
            buckets=_ANSWER_BUCKETS,
        )
        self._whole = Histogram(
            names.METRIC_E2E_SECONDS,
            "From a question's arrival to the end of its answer; only answers that ended well.",
            registry=self.registry,
            buckets=_ANSWER_BUCKETS,
        )
        self._requests = Counter(
            names.METRIC_REQUESTS, "Questions by how they ended.", ["outcome"], registry=self.registry
        )
        self._handovers = Counter(
            names.METRIC_HANDOVER_REQUESTS,
            "Requests that were to be handed over to a candidate, by what became of them there.",
            ["outcome"],
            registry=self.registry,
        )
        self._in_flight = Gauge(
            names.METRIC_HANDOVER_IN_FLIGHT, "Requests that candidates answer for this pod now.", registry=self.registry
        )
        self._spans = Counter(
            names.METRIC_SPANS, "Spans of traces by what became of them.", ["outcome"], registry=self.registry
        )
        self._info = Gauge(
            names.METRIC_INFO,
            "1 for the revision in force.",
            ["revision", "pod", "content", "snapshot"],
            registry=self.registry,
        )
        self._prefill = Gauge(
            names.METRIC_PREFILL_RATE,
            "Prompt tokens that the engine computes in a second, of one prompt alone; 0 before it is known.",
            registry=self.registry,
        )
        self._decode = Gauge(
            names.METRIC_DECODE_RATE,
            "Answer tokens that the engine gives in a second; 0 before it is known.",
            ["streams"],
            registry=self.registry,
        )
        self._capacity = Gauge(
            names.METRIC_CAPACITY,
            "Requests like those seen that this pod can carry in a second; 0 before it is known.",
            registry=self.registry,
        )
        for streams in STREAMS:
            self._decode.labels(streams)
        self._denied = Counter(
            names.METRIC_DENIED,
            "Requests that were turned away: without a key of ours, without a tenant, beyond a limit.",
            ["reason"],
            registry=self.registry,
        )
        self._current = Gauge(
            names.METRIC_ACCESS_CURRENT,
            "1 where the newest keys or certificate are in force, 0 where some of them cannot be used.",
            ["what"],
            registry=self.registry,
        )
        self._shut_out = Gauge(
            names.METRIC_SHUT_OUT,
            "1 for each client whose API key's entry cannot be used, so that it is turned away.",
            ["client"],
            registry=self.registry,
        )
        self._expires = Gauge(
            names.METRIC_CERTIFICATE_EXPIRES,
            "When the certificate that is in force expires, in seconds since 1970; 0 without TLS.",
            registry=self.registry,
        )
        self._audited = Counter(
            names.METRIC_AUDIT_RECORDS, "Audit records that are on the disk.", registry=self.registry
        )
        self._audit_lost = Counter(
            names.METRIC_AUDIT_LOST, "Audit records that could not be written.", registry=self.registry
        )
        self._audit_seconds = Histogram(
            names.METRIC_AUDIT_SECONDS,
            "How long the disk took for the records that were written together.",
            registry=self.registry,
            buckets=_STAGE_BUCKETS,
        )
        for outcome in OUTCOMES:
            self._requests.labels(outcome)
        for handed in Outcome:
            self._handovers.labels(handed.value)
        for reason in DENIALS:
            self._denied.labels(reason)
        for outcome in SPANS:
            self._spans.labels(outcome)

    def count(self, outcome: str) -> None:
        """A question ended so."""
        self._requests.labels(outcome).inc()

    def count_handover(self, outcome: Outcome) -> None:
        """What became of a request that was to be handed over."""
        self._handovers.labels(outcome.value).inc()

    def show_in_flight(self, count: Callable[[], int]) -> None:
        """How many are handed over now, asked at each scrape."""
        self._in_flight.set_function(count)

    def deny(self, reason: str) -> None:
        """A request was turned away."""
        self._denied.labels(reason).inc()

    def deny_for(self, error: ServeError) -> None:
        """A request was turned away with this; one whose caller could not be looked for was not."""
        reasons = {Failure.UNAUTHENTICATED: "no_key", Failure.FORBIDDEN: "no_tenant"}
        if error.failure in reasons:
            self.deny(reasons[error.failure])

    def show_current(self, what: str, current: bool) -> None:
        """Whether the newest of these is in force."""
        self._current.labels(what).set(current)

    def show_shut_out(self, clients: Iterable[str]) -> None:
        """Clients whose keys' entries cannot be used."""
        self._shut_out.clear()
        for client in clients:
            self._shut_out.labels(client).set(1)

    def show_expiry(self, seconds: float) -> None:
        """Of the certificate that is in force."""
        self._expires.set(seconds)

    def observe(self, answer: Answer) -> None:
        """An answer ended well, and its client has taken it."""
        marks = answer.prepared.marks
        for stage, milliseconds in delivered_milliseconds(marks).items():
            self._stages.labels(stage).observe(milliseconds / 1000)
        self._unaccounted.observe(answer.stages["unaccounted"] / 1000)
        if marks.first_token is not None:
            self._first.observe(marks.first_token - marks.began)
        self._whole.observe(marks.total)

    def count_spans(self, outcome: str, spans: int) -> None:
        """So many spans ended so. Any thread."""
        self._spans.labels(outcome).inc(spans)

    def recorded(self, records: int, seconds: float) -> None:
        """Audit records are on the disk."""
        self._audited.inc(records)
        self._audit_seconds.observe(seconds)

    def not_recorded(self, records: int) -> None:
        """Audit records could not be written."""
        self._audit_lost.inc(records)

    def show_revision(self, pod: str, content: str, snapshot: str) -> None:
        """These digests are in force."""
        self._info.clear()
        self._info.labels(revision_name(pod, content), pod, content, snapshot).set(1)

    def show_rates(self, rates: Rates, carried: Capacity | None) -> None:
        """These were measured."""
        self._prefill.set(rates.prefill or 0)
        for streams, rate in zip(STREAMS, (rates.stream, rates.all_streams), strict=True):
            self._decode.labels(streams).set(rate or 0)
        self._capacity.set(carried.requests_per_second if carried else 0)

    def text(self) -> str:
        """Prometheus' text format."""
        return generate_latest(self.registry).decode()
