"""Sends traces over OTLP from a thread of its own. A collector that is slow or away costs traces, and no answer."""

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.types import AttributeValue

from tailhold_api.observability import Otlp
from tailhold_api.parts import PodPart
from tailhold_server.settings import ServerSettings
from tailhold_server.tracing import ROOT, SpanData, TraceContext, Traced, Tracer, spans_of

_LOG = logging.getLogger(__name__)
_LIBRARY = logging.getLogger("opentelemetry.exporter")
_PATH = "/v1/traces"
_QUEUED_TRACES = 1024
"""About 2 MB: what is kept while a collector does not answer."""
_BATCH_TRACES = 64
_LINGER_SECONDS = 1.0
"""The first trace of a batch waits so long for others."""
_CLOSE_SECONDS = 2.0

Count = Callable[[str, int], None]
"""Is told of so many spans that were `exported`, `dropped` or `failed`."""


def tracer_to(endpoint: str | None, pod: PodPart, settings: ServerSettings, count: Count) -> Tracer:
    """A tracer that sends there; None: where OpenTelemetry's own variables say."""
    otlp = pod.observability.otlp
    exporter = _Exporter(with_path(endpoint) if endpoint else None, settings.otlp_headers, otlp)
    return OtlpTracer(exporter, resource(pod, settings), otlp.sample_percent if otlp else 100, count)


def with_path(endpoint: str) -> str:
    """The base URL of a collector, or the URL of its traces: people give either."""
    base = endpoint.rstrip("/")
    return base if base.endswith(_PATH) else base + _PATH


def resource(pod: PodPart, settings: ServerSettings) -> Resource:
    """Who traces: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before what is known here."""
    namespace = settings.pipeline.partition("/")[0]
    known: dict[str, AttributeValue] = {"service.name": pod.pipeline, "service.version": metadata.version("tailhold")}
    if namespace:
        name = socket.gethostname()
        known |= {"service.namespace": namespace, "service.instance.id": name}
        known |= {"k8s.namespace.name": namespace, "k8s.pod.name": name}
    return Resource.create(known).merge(OTELResourceDetector().detect())


class OtlpTracer:
    """A bounded queue of whole traces and the thread that empties it."""

    def __init__(self, exporter: "_Exporter", resource: Resource, sample_percent: int, count: Count) -> None:
        self._exporter = exporter
        self._resource = resource
        self._count = count
        self._sampler = ParentBased(TraceIdRatioBased(sample_percent / 100))
        self._ids = RandomIdGenerator()
        self._propagator = TraceContextTextMapPropagator()
        self._queue: queue.Queue[Traced | None] = queue.Queue(_QUEUED_TRACES)
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def begin(self, headers: Mapping[str, str]) -> TraceContext | None:
        """With the caller's trace where `traceparent` is valid, else with one of its own."""
        context = self._propagator.extract(headers)
        caller = get_current_span(context).get_span_context()
        trace_id = caller.trace_id if caller.is_valid else self._ids.generate_trace_id()
        kept = self._sampler.should_sample(context, trace_id, ROOT).decision is Decision.RECORD_AND_SAMPLE
        parent = caller.span_id if caller.is_valid else None
        return TraceContext(trace_id, self._ids.generate_span_id(), parent, kept, dict(caller.trace_state))

    def end(self, traced: Traced) -> None:
        """Queued, or dropped as a whole where the queue is full."""
        if not traced.context.sampled:
            return
        try:
            self._queue.put_nowait(traced)
        except queue.Full:
            self._count("dropped", 1 + len(traced.pieces))

    def close(self) -> None:
        """What is queued is tried once more, for two seconds."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            _LOG.warning("%d traces are not sent any more", self._queue.qsize())
        self._thread.join(_CLOSE_SECONDS)
        self._exporter.close()

    def _run(self) -> None:
        while batch := self._take():
            epoch = time.time_ns() - time.monotonic_ns()
            spans = [span for traced in batch for span in self._readable(traced, epoch)]
            self._count("exported" if self._exporter.export(spans) else "failed", len(spans))

    def _take(self) -> list[Traced]:
        """The next batch; empty once closed and all sent."""
        batch: list[Traced] = []
        until: float | None = None
        while len(batch) < _BATCH_TRACES:
            try:
                traced = self._queue.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if traced is None:
                with contextlib.suppress(queue.Full):  # seen again after this batch
                    self._queue.put_nowait(None)
                break
            batch.append(traced)
            until = until or time.monotonic() + _LINGER_SECONDS
        return batch

    def _readable(self, traced: Traced, epoch: int) -> Iterator[ReadableSpan]:
        root, *stages = spans_of(traced, epoch)
        context = traced.context
        own = _context(context, context.span_id)
        parent = None if context.parent_id is None else _context(context, context.parent_id)
        yield _span(root, own, parent, SpanKind.SERVER, self._resource)
        for stage in stages:
            child = _context(context, self._ids.generate_span_id())
            yield _span(stage, child, own, SpanKind.INTERNAL, self._resource)


class _Exporter:
    """OpenTelemetry's own, made anew when the headers' files change: tokens are rotated."""

    def __init__(self, endpoint: str | None, headers: Path, otlp: Otlp | None) -> None:
        self._endpoint = endpoint
        self._folder = headers
        self._timeout = otlp.timeout_milliseconds / 1000 if otlp else None
        self._headers = read_headers(headers)
        self._made = self._make()
        self._reached = True

    def export(self, spans: list[ReadableSpan]) -> bool:
        """Whether the collector took them. A collector that is away is logged once, and once when it is back."""
        headers = read_headers(self._folder)
        if headers != self._headers:
            self._headers = headers
            self.close()
            self._made = self._make()
        reached = self._made.export(spans) is SpanExportResult.SUCCESS
        if reached != self._reached:
            self._reached = reached
            _LIBRARY.setLevel(logging.NOTSET if reached else logging.CRITICAL)
            if reached:
                _LOG.info("traces reach the collector again")
            else:
                _LOG.warning("traces do not reach the collector, see above; answers go on, and this is not repeated")
        return reached

    def close(self) -> None:
        """Ends a send that waits for another try."""
        self._made.shutdown()  # type: ignore[no-untyped-call]

    def _make(self) -> OTLPSpanExporter:
        certificate = os.environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or os.environ.get("SSL_CERT_FILE")
        return OTLPSpanExporter(
            self._endpoint, certificate_file=certificate, headers=self._headers or None, timeout=self._timeout
        )


def read_headers(folder: Path) -> dict[str, str]:
    """A header for each file of a mounted Secret; none where there is none. Kubelet's own links begin with two dots."""
    if not folder.is_dir():
        return {}
    files = (each for each in sorted(folder.iterdir()) if not each.name.startswith("..") and each.is_file())
    return {each.name: each.read_text().strip() for each in files}


def _context(context: TraceContext, span_id: int) -> SpanContext:
    state = TraceState(list(context.state.items()))
    return SpanContext(context.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1), trace_state=state)


def _span(
    data: SpanData, context: SpanContext, parent: SpanContext | None, kind: SpanKind, resource: Resource
) -> ReadableSpan:
    return ReadableSpan(
        data.name,
        context,
        parent,
        resource,
        data.attributes,
        kind=kind,
        status=Status(StatusCode.ERROR if data.failed else StatusCode.UNSET),
        start_time=data.start,
        end_time=data.end,
        instrumentation_scope=InstrumentationScope("tailhold"),
    )
