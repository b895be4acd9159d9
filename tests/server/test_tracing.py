"""Traces of answers: what a span says, whose trace it is in, and what a collector that is away costs."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from program_process import Starter, free_port, pace
from rag_server import body, pod_part, running
from traces import ORDER, outline, spans
from waiting import until

from tailhold_api.observability import Observability, Otlp
from tailhold_local.jaeger import Jaeger
from tailhold_server.adapters.otlp import OtlpTracer, read_headers, tracer_to, with_path
from tailhold_server.backends import choose_tracer
from tailhold_server.settings import ServerSettings
from tailhold_server.stages import Interval, Stage
from tailhold_server.tracing import Asked, NoTracer, SpanData, TraceContext, Traced, spans_of

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONTEXT = TraceContext(1, 2, None, sampled=True)
ASKED = Asked("chatcmpl-1", "docs", "docs")
SECRET_WORDS = "When does the mountain close?"


class Collector:
    """Keeps the bodies of OTLP requests, as a collector does."""

    def __init__(self) -> None:
        import threading
        from http.server import BaseHTTPRequestHandler, HTTPServer

        received: list[tuple[dict[str, str], bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = self.rfile.read(int(self.headers["content-length"]))
                received.append(({name.lower(): value for name, value in self.headers.items()}, told))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.received = received
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self) -> list[Any]:
        requests = (ExportTraceServiceRequest.FromString(told) for _, told in self.received)
        scopes = (scope for request in requests for each in request.resource_spans for scope in each.scope_spans)
        return [span for scope in scopes for span in scope.spans]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


@contextmanager
def tracing(endpoint: str, counts: Counter[str], settings: ServerSettings | None = None, **otlp: Any) -> Iterator[Any]:
    pod = pod_part().model_copy(update={"observability": Observability(otlp=Otlp(endpoint=endpoint, **otlp))})
    tracer = tracer_to(endpoint, pod, settings or ServerSettings(), lambda name, n: counts.update({name: n}))
    try:
        yield tracer
    finally:
        tracer.close()


def ended(context: TraceContext = CONTEXT, outcome: str = "ok") -> Traced:
    """A request of three stages."""
    pieces = (Interval(Stage.EMBED, 1.1, 1.2), Interval(Stage.SEARCH, 1.2, 1.3), Interval(Stage.DECODE, 1.5, 1.9))
    return Traced(context, ASKED, 1.0, 2.0, outcome, "a-b", pieces, {"gen_ai.usage.output_tokens": 7})


class TestSpans:
    @given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=4, max_size=30), st.integers(0, 2**62))
    def test_stages_lie_in_the_request_and_follow_each_other(self, times: list[float], epoch: int) -> None:
        times.sort()
        pairs = zip(times[1:-1:2], times[2:-1:2], strict=False)
        pieces = tuple(Interval(Stage.EMBED, start, end) for start, end in pairs)
        root, *stages = spans_of(Traced(CONTEXT, ASKED, times[0], times[-1], "ok", "a-b", pieces), epoch)
        at = root.start
        for span in stages:
            assert at <= span.start <= span.end <= root.end
            at = span.end
        assert len(stages) == len(pieces)

    def test_names_and_counts_are_those_of_the_conventions(self) -> None:
        root, embed, search, decode = spans_of(ended(), epoch=5)
        assert [each.name for each in (root, embed, search, decode)] == [
            "rag.pipeline",
            "embed",
            "vector.search",
            "decode",
        ]
        assert decode == SpanData("decode", 1_500_000_005, 1_900_000_005, {"gen_ai.usage.output_tokens": 7})
        assert search.attributes["gen_ai.operation.name"] == "retrieval"
        assert root.attributes["gen_ai.response.id"] == "chatcmpl-1"
        assert root.attributes["gen_ai.usage.output_tokens"] == 7

    @pytest.mark.parametrize(("outcome", "failed"), [("ok", False), ("client_closed", False), ("failed", True)])
    def test_only_a_failure_of_ours_is_an_error(self, outcome: str, failed: bool) -> None:
        assert spans_of(ended(outcome=outcome), 0)[0].failed is failed


class TestWhoseTrace:
    @pytest.fixture
    def tracer(self) -> Iterator[OtlpTracer]:
        with tracing(f"http://127.0.0.1:{free_port()}", Counter(), sample_percent=0) as tracer:
            yield tracer

    def test_the_callers_trace_is_gone_on_with(self, tracer: OtlpTracer) -> None:
        context = tracer.begin({"traceparent": CALLER, "tracestate": "bank=1"})
        assert context is not None
        assert context.name == CALLER.split("-")[1]
        assert context.parent_id == int(CALLER.split("-")[2], 16)
        assert context.sampled, "the caller keeps it, whatever `samplePercent` is"
        assert context.state == {"bank": "1"}

    def test_a_caller_who_does_not_keep_it_is_followed(self, tracer: OtlpTracer) -> None:
        with tracing(f"http://127.0.0.1:{free_port()}", Counter()) as everything:
            context = everything.begin({"traceparent": CALLER[:-1] + "0"})
        assert context is not None
        assert not context.sampled

    @pytest.mark.parametrize("header", ["", "00-0-0-01", CALLER.replace("4bf9", "4BFX"), "ff" + CALLER[2:], "\0" * 55])
    def test_a_header_that_is_none_begins_a_trace_of_its_own(self, tracer: OtlpTracer, header: str) -> None:
        context = tracer.begin({"traceparent": header})
        assert context is not None
        assert context.parent_id is None
        assert not context.sampled

    def test_about_so_many_are_kept_as_the_spec_says(self) -> None:
        with tracing(f"http://127.0.0.1:{free_port()}", Counter(), sample_percent=20) as tracer:
            kept = sum(tracer.begin({}).sampled for _ in range(2000))
        assert 300 < kept < 500


class TestWhereTracesGo:
    @pytest.mark.parametrize("url", ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"])
    def test_a_base_url_and_the_whole_url_are_one(self, url: str) -> None:
        assert with_path(url) == "http://c:4318/v1/traces"

    def test_nowhere_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
        assert isinstance(choose_tracer(pod_part(), ServerSettings(), print), NoTracer)  # type: ignore[arg-type]

    def test_opentelemetrys_own_variables_hold(self, monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=risk")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        tracer = choose_tracer(pod_part(), ServerSettings(), lambda *_: None)
        tracer.end(ended())
        tracer.close()
        ((headers, told),) = collector.received
        assert headers["x-team"] == "risk"
        attributes = ExportTraceServiceRequest.FromString(told).resource_spans[0].resource.attributes
        known = {each.key: each.value.string_value for each in attributes}
        assert known["service.name"] == "docs"
        assert known["deployment.environment"] == "test"

    def test_the_sdks_switch_holds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        settings = ServerSettings(otlp_endpoint="http://127.0.0.1:1")
        assert isinstance(choose_tracer(pod_part(), settings, lambda *_: None), NoTracer)

    def test_headers_come_from_the_secrets_files_and_are_read_again(self, tmp_path: Path, collector: Collector) -> None:
        (tmp_path / "..data").mkdir()
        (tmp_path / "authorization").write_text("Bearer one\n")
        assert read_headers(tmp_path) == {"authorization": "Bearer one"}
        settings, counts = ServerSettings(otlp_headers=tmp_path), Counter[str]()
        with tracing(collector.url, counts, settings) as tracer:
            tracer.end(ended())
            until(lambda: counts["exported"], bool, seconds=10, every=0.02)
            (tmp_path / "authorization").write_text("Bearer two\n")
            tracer.end(ended())
        assert [headers["authorization"] for headers, _ in collector.received] == ["Bearer one", "Bearer two"]


@contextmanager
def black_hole() -> Iterator[str]:
    """Takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def nobody() -> Iterator[str]:
    """A port that nobody listens on."""
    yield f"http://127.0.0.1:{free_port()}"


class TestACollectorThatIsAway:
    @pytest.mark.parametrize("away", [nobody, black_hole])
    def test_what_does_not_fit_is_dropped_whole_and_counted(self, away: Any) -> None:
        counts: Counter[str] = Counter()
        with away() as url, tracing(url, counts, timeout_milliseconds=100) as tracer:
            for _ in range(5000):
                tracer.end(ended())
            assert counts["dropped"] > 0
            assert counts["dropped"] % 4 == 0, "a trace is four spans"
        assert counts["exported"] == 0

    @pytest.mark.parametrize("away", [nobody, black_hole])
    async def test_answers_come_all_the_same(self, away: Any) -> None:
        with away() as url, tracing(url, Counter(), timeout_milliseconds=60000) as tracer:
            async with running() as server:
                server.service.tracer = tracer
                answers = [await server.ask(stream=bool(n % 2)) for n in range(20)]
        assert {each.status_code for each in answers} == {200}

    def test_failures_are_counted(self) -> None:
        counts: Counter[str] = Counter()
        with nobody() as url, tracing(url, counts, timeout_milliseconds=100) as tracer:
            tracer.end(ended())
        assert counts == {"failed": 4}


class TestAnswers:
    async def test_an_answer_is_a_trace_without_its_text(self, collector: Collector) -> None:
        counts: Counter[str] = Counter()
        with tracing(collector.url, counts) as tracer:
            async with running() as server:
                server.service.tracer = tracer
                headers = {"traceparent": CALLER}
                answer = await server.public.post("/v1/chat/completions", json=body(SECRET_WORDS), headers=headers)
        assert answer.headers["x-tailhold-trace"] == answer.json()["tailhold"]["trace"] == CALLER.split("-")[1]
        found = collector.spans()
        assert counts == {"exported": len(found)}
        assert found[0].name == "rag.pipeline"
        assert found[0].parent_span_id.hex() == CALLER.split("-")[2]
        assert {each.parent_span_id for each in found[1:]} == {found[0].span_id}
        sent = b"".join(told for _, told in collector.received).lower()
        assert not [word for word in (b"mountain", b"office", b"badges", b"you asked") if word in sent]

    @pytest.mark.parametrize(
        ("fields", "outcome"),
        [({"max_tokens": 5}, "ok"), ({"messages": [{"role": "user", "content": "x" * 9000}]}, "invalid")],
    )
    async def test_how_it_ended_stands_on_the_first_span(
        self, collector: Collector, fields: dict[str, Any], outcome: str
    ) -> None:
        with tracing(collector.url, Counter()) as tracer:
            async with running() as server:
                server.service.tracer = tracer
                await server.public.post("/v1/chat/completions", json=body() | fields)
        root = collector.spans()[0]
        attributes = {each.key: each.value for each in root.attributes}
        assert attributes["tailhold.outcome"].string_value == outcome
        assert ("gen_ai.usage.output_tokens" in attributes) is (outcome == "ok")

    async def test_nothing_says_trace_where_nothing_is_traced(self) -> None:
        async with running() as server:
            answer = await server.ask()
        assert "x-tailhold-trace" not in answer.headers
        assert "trace" not in answer.json()["tailhold"]


@pytest.mark.engine
def test_jaeger_has_the_trace_of_an_answer(start_stand_in: Starter, jaeger: Jaeger) -> None:
    """The real Jaeger over OTLP, with a caller's trace; a killed program has sent what it had."""
    pod = pod_part().model_copy(update={"observability": Observability(otlp=Otlp(endpoint=jaeger.otlp_url))})
    program = start_stand_in(pod=pod, TAILHOLD_PIPELINE="team/docs", stand_in=pace(0.02), OTEL_SERVICE_NAME="rag")
    asked = {"json": body(SECRET_WORDS, stream=True), "headers": {"traceparent": CALLER}}
    answer = httpx.post(f"{program.url}/v1/chat/completions", **asked, timeout=30)  # type: ignore[arg-type]
    assert program.stop() == 0
    trace = jaeger.trace(answer.headers["x-tailhold-trace"])
    assert trace is not None
    print("\n".join(outline(trace)))
    root, *stages = spans(trace)
    assert root.parent_id == CALLER.split("-")[2]
    assert root.resource["service.name"] == "rag"
    assert root.resource["k8s.namespace.name"] == "team"
    assert tuple(each.name for each in stages[: len(ORDER)]) == ORDER
    assert {each.parent_id for each in stages} == {root.span_id}
    assert sum(each.duration for each in stages) <= root.duration
    assert "mountain" not in str(trace)
