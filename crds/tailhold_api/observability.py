"""What the server says about itself: logs, traces, metrics."""

from enum import StrEnum

from tailhold_api.fields import Model, part, restart
from tailhold_api.grammar import NAME


class LogLevel(StrEnum):
    """How much the server logs; never questions or answers."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"


class Otlp(Model):
    """Where traces go: a span for each stage of an answer, with counts and digests, and no text."""

    endpoint: str = restart(min_length=8, max_length=500, pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$")
    """Base URL of a collector that speaks OTLP over HTTP, as `http://collector.monitoring:4318` for Jaeger, Tempo or
    the OpenTelemetry Collector; `/v1/traces` is added where it is not there. The gRPC port, 4317, does not do. While it
    does not answer, traces are lost and counted in `tailhold_spans_total`; answers never wait for it."""
    headers_secret_name: str | None = restart(None, **NAME)
    """A Secret of the pipeline's namespace whose keys are names of headers and whose values are sent with each export,
    as `Authorization`. Mounted, so that a token that changes is taken without a restart; where it is missing the pod
    starts all the same."""
    sample_percent: int = restart(100, ge=0, le=100)
    """Share of the answers that are traced, of those whose client sends no `traceparent`; with one, the client's choice
    holds. Each traced answer is about a dozen spans, 2 kB. Lower it where the collector is paid by volume."""
    timeout_milliseconds: int = restart(10000, ge=100, le=60000)
    """How long one export may take, its retries within it. A longer one loses less while a collector restarts."""


class Metrics(Model):
    """How metrics are found. They are there in any case: port 8001, `/metrics`, vLLM's own among them."""

    scrape_annotations: bool = restart(True)
    """Annotate the pods with `prometheus.io/scrape`, `port` and `path`, which a Prometheus that discovers pods by
    annotations goes by. Without use where a PodMonitor chooses the pods: switch it off if both would read them."""


class Observability(Model):
    """What the server says about itself."""

    log_level: LogLevel = restart(LogLevel.INFO)
    """Lowest level that is logged."""
    otlp: Otlp | None = restart(None)
    """Where traces go. Without it nothing is traced, unless `pod.env` sets `OTEL_EXPORTER_OTLP_ENDPOINT`."""
    metrics: Metrics = part(Metrics)
    """How metrics are found."""
