"""The whole path with the real vLLM, the real embedder and an index built by `serve` itself."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from joserfc import jwt
from joserfc.jwk import OKPKey
from openai import BadRequestError, OpenAI
from program_process import ServerProcess, free_port, termination
from prometheus_client.parser import text_string_to_metric_families
from traces import ORDER, outline, spans
from waiting import until

from tailhold.demo import EMBEDDER, GENERATOR, ensure_models
from tailhold.places import cache_folder
from tailhold_local.jaeger import Jaeger
from tailhold_server.audit.verify import records_of, verify

pytestmark = pytest.mark.engine

NOTES = {
    "apt.md": "# Packages\n\nAPT manages packages. The command `apt install vim` installs the editor vim.\n",
    "hours.md": "# Office hours\n\nThe office closes at 18:00 and opens at eight.\n",
    "badges.md": "# Badges\n\nBadges of visitors are renewed in May, at the reception.\n",
    "network.md": "# Network\n\nThe wireless network is called Heron and has no password.\n",
}

SPEC: dict[str, Any] = {
    "generator": {"model": {"pvc": {"claimName": "models", "path": GENERATOR}}},
    "embedder": {"model": {"pvc": {"claimName": "models", "path": EMBEDDER}}, "dimension": 384},
    "index": {"store": {"claimName": "snapshots"}},
    "corpus": {
        "sources": [{"name": "notes", "configMap": {"name": "notes"}}],
        "uploads": {"pvc": {"claimName": "uploads"}},
        "minRebuildSeconds": 10,
    },
    "retrieval": {"topK": 3},
    "engine": {"enforceEager": True, "kvCacheMebibytes": 256, "maxModelTokens": 1056, "blockSizeTokens": 32},
    "placement": {"gpu": {"count": 0}, "cpu": {"cores": 2}},
    "server": {"drainSeconds": 5},
    "audit": {"sink": {"pvc": {"claimName": "audit"}}},
}

_SERVE = (
    "import sys; from pathlib import Path; from tailhold.serve import serve; a = sys.argv[1:]\n"
    "if __name__ == '__main__': sys.exit(serve(Path(a[0]), None, None, '127.0.0.1', int(a[1]), int(a[2]), int(a[3])))"
)

MARKER = "Zanzibarquark"
"""In a question: it may not be in any log."""


@pytest.fixture(scope="session")
def key() -> OKPKey:
    """The operator's."""
    return OKPKey.generate_key("Ed25519")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, key: OKPKey, jaeger: Jaeger) -> Iterator[ServerProcess]:
    """`tailhold serve` of a manifest, for all tests here, with its traces sent; the last of them kills its engine."""
    folder = _prepared(tmp_path_factory.mktemp("engine"), SPEC)
    (folder / "key.json").write_text(json.dumps(key.as_dict(private=False)))
    program = _start(folder, TAILHOLD_OTLP_ENDPOINT=jaeger.otlp_url)
    try:
        program.wait_until(lambda: program.status("/readyz") == 200 or _ended(program), 600)
        yield program
    finally:
        if program.process.poll() is None:
            program.process.terminate()
            program.process.wait(30)


def _prepared(folder: Path, spec: dict[str, Any]) -> Path:
    claims, maps = folder / "claims", folder / "configmaps" / "notes"
    claims.mkdir()
    maps.mkdir(parents=True)
    (claims / "models").symlink_to(ensure_models(cache_folder())[0].parent)
    for name, text in NOTES.items():
        (maps / name).write_text(text)
    document = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "metadata": {"name": "notes"}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump({**document, "spec": spec}))
    (folder / "termination-log").touch()
    return folder


def _start(folder: Path, **more: str) -> ServerProcess:
    port, internal, grpc = free_port(), free_port(), free_port()
    environment = {
        "TAILHOLD_CLAIMS": str(folder / "claims"),
        "TAILHOLD_CONFIG_MAPS": str(folder / "configmaps"),
        "TAILHOLD_PUBLIC_KEY": str(folder / "key.json"),
        "TAILHOLD_PIPELINE": "team/notes",
        "TAILHOLD_HANDOVER_PORT": "0",
        "TAILHOLD_TERMINATION_LOG": str(folder / "termination-log"),
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
    }
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder / "pipeline.yaml"), str(port), str(internal), str(grpc)],
            env={**os.environ, **environment, **more},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return ServerProcess(process, port, internal, grpc, folder / "log", folder / "termination-log")


def _ended(program: ServerProcess) -> bool:
    assert program.process.poll() is None, program.log.read_text()[-3000:]
    return False


@pytest.fixture
def client(server: ServerProcess) -> OpenAI:
    """OpenAI's own client, unmodified."""
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def said(question: str) -> Any:
    """One user message."""
    return [{"role": "user", "content": question}]


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("How do I install an editor with apt?", "apt.md"),
        ("When does the office close?", "hours.md"),
        ("What is the wireless network called?", "network.md"),
    ],
)
def test_the_best_source_is_the_document_that_knows(client: OpenAI, question: str, document: str) -> None:
    answer = client.chat.completions.create(model="notes", messages=said(question), max_tokens=24, temperature=0)
    extra = answer.model_extra or {}
    sources = extra["tailhold"]["sources"]
    assert sources[0]["document"] == document
    assert [each["number"] for each in sources] == [1, 2, 3]
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > extra["tailhold"]["context"]["tokens"] > 0


@pytest.mark.parametrize("question", ["When does the office close?", "Repeat exactly: \U0001f680\u4f60\u597d\u00e9"])
def test_joined_deltas_are_the_whole_answer(client: OpenAI, question: str) -> None:
    """C71."""
    fields: Any = {
        "model": "notes",
        "messages": said(question),
        "max_tokens": 40,
        "temperature": 0,
        "seed": 7,
    }
    whole = client.chat.completions.create(**fields).choices[0].message.content
    chunks = list(client.chat.completions.create(**fields, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    assert "\ufffd" not in (whole or "")


def test_a_stop_string_ends_the_answer_and_is_not_in_it(client: OpenAI) -> None:
    fields: Any = {"model": "notes", "messages": said("When does the office close?"), "temperature": 0}
    whole = client.chat.completions.create(**fields, max_tokens=40).choices[0].message.content or ""
    stop = whole.split()[2]
    cut = client.chat.completions.create(**fields, max_tokens=40, stop=[stop]).choices[0]
    assert cut.message.content == whole.partition(stop)[0]
    assert cut.finish_reason == "stop"


def test_an_answer_is_cut_where_the_window_ends(client: OpenAI) -> None:
    """C60, C74."""
    answer = client.chat.completions.create(
        model="notes", messages=said("word " * 940 + "why?"), max_tokens=100_000, temperature=0
    )
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens <= 1056


def test_streams_run_beside_each_other(client: OpenAI) -> None:
    def ask(number: int) -> str:
        stream = client.chat.completions.create(
            model="notes", messages=said(f"Question {number}: what is apt?"), max_tokens=16, stream=True
        )
        return [chunk.choices[0].finish_reason for chunk in stream][-1] or ""

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) <= {"length", "stop"}


def test_like_prompts_share_their_beginning(client: OpenAI) -> None:
    answers = [
        client.chat.completions.create(model="notes", messages=said("Is there a password?"), max_tokens=2)
        for _ in range(2)
    ]
    details = [answer.usage.prompt_tokens_details for answer in answers if answer.usage]
    assert details[1] is not None
    assert (details[1].cached_tokens or 0) >= 64


def test_a_client_that_leaves_ends_the_engines_work(server: ServerProcess, client: OpenAI) -> None:
    """C59."""
    stream = client.chat.completions.create(
        model="notes", messages=said("Write a long story."), max_tokens=700, stream=True, temperature=1
    )
    next(iter(stream))
    server.wait_until(lambda: vllm_running(server) == 1, 20)
    stream.close()
    server.wait_until(lambda: vllm_running(server) == 0, 3)


def vllm_running(server: ServerProcess) -> float:
    """Requests in the engine, as vLLM itself says."""
    text = httpx.get(f"{server.internal_url}/metrics", trust_env=False).text
    lines = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running")]
    return float(lines[0].rpartition(" ")[2])


def test_new_content_is_taken_while_an_answer_runs(server: ServerProcess, client: OpenAI, key: OKPKey) -> None:
    tuning = httpx.get(f"{server.internal_url}/v1/tuning", trust_env=False).json()
    content = tuning["content"] | {"retrieval": {"topK": 1}}
    token = jwt.encode(
        {"alg": "Ed25519"}, {"aud": "team/notes", "exp": int(time.time()) + 60}, key, algorithms=["Ed25519"]
    )
    running = client.chat.completions.create(
        model="notes", messages=said("Tell me of badges."), max_tokens=60, stream=True
    )
    first = next(iter(running))
    taken = httpx.put(
        f"{server.internal_url}/internal/content",
        json=content,
        headers={"authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=30,
    )
    assert taken.status_code == 200, taken.text
    last = list(running)[-1]
    after = client.chat.completions.create(model="notes", messages=said("Tell me of badges."), max_tokens=2)
    revisions = [(each.model_extra or {})["tailhold"]["revision"] for each in (first, last, after)]
    assert revisions[0] == revisions[1] != revisions[2]
    assert revisions[2].endswith(taken.json()["contentDigest"][:10])
    assert len((after.model_extra or {})["tailhold"]["sources"]) == 1


def test_an_upload_is_found_once_its_index_is_in_force_and_never_after_its_deletion(
    server: ServerProcess, client: OpenAI
) -> None:
    """Built by a child of the server while it answers, and swapped in."""
    text = b"# Parking\n\nVisitors park their cars on deck seven of the garage.\n"
    file = client.files.create(file=("parking.md", text), purpose="assistants")
    broken = client.files.create(file=("broken.pdf", b"no PDF"), purpose="assistants")
    batch = client.vector_stores.file_batches.create("vs_notes", file_ids=[file.id, broken.id])
    assert batch.file_counts.in_progress == 2
    deadline = time.monotonic() + 180
    while client.vector_stores.files.retrieve(file.id, vector_store_id="vs_notes").status != "completed":
        assert time.monotonic() < deadline, server.log.read_text()[-3000:]
        assert client.chat.completions.create(model="notes", messages=said("When?"), max_tokens=4).choices
        time.sleep(1)
    failed = client.vector_stores.files.retrieve(broken.id, vector_store_id="vs_notes")
    assert failed.status == "failed"
    assert failed.last_error is not None
    question = "Where do visitors park their cars?"
    found = client.vector_stores.search("vs_notes", query=question, max_num_results=1).data[0]
    assert (found.file_id, found.filename) == (file.id, "parking.md")
    answer = client.chat.completions.create(model="notes", messages=said(question), max_tokens=24)
    assert (answer.model_extra or {})["tailhold"]["sources"][0]["document"] == f"{file.id}/parking.md"
    client.files.delete(file.id)
    assert file.id not in {each.file_id for each in client.vector_stores.search("vs_notes", query=question).data}


def test_embeddings_are_the_pipelines_own_and_hold_up_no_question(server: ServerProcess, client: OpenAI) -> None:
    """C68: questions go first."""
    long = ["The office closes at six and visitors park on deck seven. " * 18] * 64
    alone = [_retrieval_milliseconds(client) for _ in range(5)]
    with ThreadPoolExecutor(1) as pool:
        embedding = pool.submit(client.embeddings.create, model="notes-embedder", input=long)
        beside = [_retrieval_milliseconds(client) for _ in range(5)]
        made = embedding.result()
    print(f"wait + embed + search in ms, alone {alone}, beside 64 long texts {beside}")
    one = client.embeddings.create(model="notes", input=long[0]).data[0].embedding
    assert len(made.data) == 64
    assert all(abs(a - b) < 1e-4 for a, b in zip(made.data[63].embedding, one, strict=True))
    assert abs(sum(each * each for each in one) - 1) < 1e-3


def _retrieval_milliseconds(client: OpenAI) -> int:
    answer = client.chat.completions.create(model="notes", messages=said("When does it close?"), max_tokens=1)
    stages = (answer.model_extra or {})["tailhold"]["stages"]
    return round(sum(stages[name] for name in ("wait", "embed", "search") if name in stages))


def test_an_answer_is_held_to_a_schema_and_tells_its_probabilities(client: OpenAI) -> None:
    schema: Any = {"type": "object", "properties": {"hour": {"type": "integer"}}, "required": ["hour"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "hours", "schema": schema}}
    asked: Any = {"model": "notes", "messages": said("When does the office close?"), "max_tokens": 40}
    held = client.chat.completions.create(**asked, response_format=form)
    if held.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(held.choices[0].message.content or "")["hour"], int)
    assert (held.choices[0].message.content or "").lstrip().startswith("{")
    told = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3).choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert all(each.logprob <= 0 and len(each.top_logprobs) == 3 for each in told.content)
    assert all(each.top_logprobs[0].logprob >= each.logprob for each in told.content)
    wrong: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no such type"}}}
    for fields in ({"response_format": wrong}, {"logit_bias": {"99999999": 1}}):
        with pytest.raises(BadRequestError):
            client.chat.completions.create(**asked, **fields)


def test_the_engine_runs_with_what_the_spec_says(server: ServerProcess) -> None:
    tuning = httpx.get(f"{server.internal_url}/v1/tuning", trust_env=False).json()
    engine = tuning["engine"]
    asked = {"maxModelTokens": 1056, "blockSizeTokens": 32, "enforceEager": True, "maxRunningRequests": 16}
    assert asked.items() <= engine.items()
    assert engine["kvBlocks"] > 0
    assert "doubt" not in engine
    assert tuning["engine"]["blockSizeTokens"] == 32
    assert tuning["engine"]["device"] == "cpu"
    assert tuning["phase"] == "serving"


def test_the_engines_rates_are_measured_before_the_first_question(server: ServerProcess) -> None:
    told = httpx.get(f"{server.internal_url}/v1/tuning", trust_env=False).json()
    rates, steps = told["rates"], {row["name"]: row for row in told["phases"]}
    assert rates["prefillTokensPerSecond"] > 0
    assert rates["decodeTokensPerSecondPerStream"] > 0
    assert rates["decodeTokensPerSecondByStreams"]["1"] > 0
    assert rates["capacity"]["requestsPerSecond"] > 0
    assert steps["loadEncoder"]["overlappedMilliseconds"] > 0, "loaded beside the engine's start"


def test_a_busy_engine_on_a_loaded_machine_is_never_taken_for_one_that_stands_still(server: ServerProcess) -> None:
    """Long prompts, none of them cached, more than the machine can do, and others that take its cores."""
    ends = time.monotonic() + 40
    told: list[tuple[int, str]] = []

    def ask(number: int) -> int:
        answers = 0
        while time.monotonic() < ends:
            text = f"{number} {answers} " + f"word{number * 1000 + answers} " * 120
            sent = {"messages": said(text), "max_tokens": 8}
            answer = httpx.post(f"{server.url}/v1/chat/completions", json=sent, timeout=300, trust_env=False)
            assert answer.status_code == 200, answer.text
            answers += 1
        return answers

    def probe() -> None:
        while time.monotonic() < ends:
            for path in ("/livez", "/readyz"):
                answer = httpx.get(server.internal_url + path, timeout=30, trust_env=False)
                told.append((answer.status_code, answer.json()["reason"]))
            time.sleep(0.2)

    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        with ThreadPoolExecutor(9) as pool:
            probed = pool.submit(probe)
            assert sum(pool.map(ask, range(8))) > 0
            probed.result()
    finally:
        for each in burners:
            each.kill()
            each.wait()
    assert len(told) > 20
    assert {status for status, _ in told} == {200}, [each for each in told if each[0] != 200]


class TestWhereTheTimeGoes:
    def test_stages_add_up_and_are_the_engines_own_times(self, server: ServerProcess) -> None:
        """Forty questions, four at a time; all but 3 % of their time has a name, and vLLM says the same of its part."""
        before = sums(server)
        with ThreadPoolExecutor(4) as pool:
            stages = list(
                pool.map(lambda n: last_event(server, f"Question {n}: when does the office close?"), range(40))
            )
        server.wait_until(lambda: grown(server, before, "tailhold_request_duration_seconds_count") == 40)
        total = sum(each["total"] for each in stages)
        shares = {name: sum(each[name] for each in stages) / total for name in stages[0]}
        print({name: f"{100 * share:.2f} %" for name, share in shares.items()})
        assert shares["unaccounted"] < 0.03
        assert sum(shares.values()) == pytest.approx(2, abs=0.001)
        seconds = grown(server, before, "tailhold_unaccounted_seconds_sum")
        assert seconds / grown(server, before, "tailhold_request_duration_seconds_sum") < 0.03
        for stage, own in (("prefill", "prefill"), ("decode", "decode")):
            ours = sum(each[stage] for each in stages) / 1000
            assert ours == pytest.approx(grown(server, before, f"vllm:request_{own}_time_seconds_sum"), rel=0.02)

    def test_jaeger_has_the_trace_of_an_answer(self, server: ServerProcess, jaeger: Jaeger) -> None:
        caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        sent = {"messages": said("When does the office close?"), "max_tokens": 24, "stream": True}
        url, headers = f"{server.url}/v1/chat/completions", {"traceparent": caller}
        answer = httpx.post(url, json=sent, headers=headers, timeout=60, trust_env=False)
        last = json.loads(answer.text.split("data: ")[-2])["tailhold"]
        trace = until(lambda: jaeger.trace(last["trace"]), bool, seconds=20)
        assert trace is not None
        shown = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "tailhold.sources")
        print("\n".join(outline(trace, shown)))
        root, *stages = spans(trace)
        assert root.parent_id == caller.split("-")[2]
        assert tuple(each.name for each in stages[: len(ORDER)]) == ORDER
        assert {each.name for each in stages[len(ORDER) :]} == {"postprocess", "transport"}
        assert sum(each.duration for each in stages) >= 0.95 * root.duration
        for stage, name in (("prefill", "prefill"), ("decode", "decode"), ("search", "vector.search")):
            (span,) = (each for each in stages if each.name == name)
            assert span.duration == pytest.approx(1000 * last["stages"][stage], abs=5)
        assert root.tags["gen_ai.usage.output_tokens"] > 0
        assert not [text for text in ("office", "reception", "wireless", "install") if text in str(trace)]


def sums(server: ServerProcess) -> dict[str, float]:
    """Every sample of the metrics by its name, added over labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{server.internal_url}/metrics", trust_env=False).text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def grown(server: ServerProcess, before: dict[str, float], name: str) -> float:
    """By how much."""
    return sums(server)[name] - before[name]


def last_event(server: ServerProcess, question: str) -> dict[str, float]:
    """The stages of a streamed answer."""
    sent = {"messages": said(question), "max_tokens": 24, "stream": True}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=sent, timeout=120, trust_env=False)
    stages: dict[str, float] = json.loads(answer.text.split("data: ")[-2])["tailhold"]["stages"]
    return stages


def test_an_engine_killed_is_seen_and_ends_the_server(server: ServerProcess, client: OpenAI) -> None:
    """kill -9 of the engine: not ready within 5 s, gone within 60 s, and the reason is left."""
    process = httpx.get(f"{server.internal_url}/v1/tuning", trust_env=False).json()["engine"]["processes"][0]
    ends: list[str] = []

    def ask() -> None:
        url = f"{server.url}/v1/chat/completions"
        sent = {"messages": said(f"Write a story of {MARKER}."), "max_tokens": 700, "stream": True}
        ends.append(httpx.post(url, json=sent, timeout=60, trust_env=False).text)

    asked = threading.Thread(target=ask)
    asked.start()
    server.wait_until(lambda: vllm_running(server) == 1, 20)
    killed = time.monotonic()
    os.kill(process, signal.SIGKILL)
    server.wait_until(lambda: server.status("/readyz") == 503, 5)
    assert server.status("/livez") == 503
    assert server.process.wait(60 - (time.monotonic() - killed)) == 1
    asked.join(10)
    assert '"error":{"message"' in ends[0]
    assert termination(server)["reason"] == "NotReady"
    audit = server.log.parent / "claims" / "audit"
    assert verify(audit).findings == ()
    assert [each["outcome"] for each in records_of(audit) if each["kind"] == "ended"][-1] == "failed"
    log = server.log.read_text()
    assert not re.search(rf"{MARKER}|office closes|prompt_token_ids=\[\d", log)


def test_seldom_used_fields_are_in_force(tmp_path: Path) -> None:
    """A cache of a given size, guessed tokens, no compilation, an argument without a field; with vLLM's own word."""
    engine = {
        "enforceEager": False,
        "kvBlocks": 100,
        "maxRunningRequests": 4,
        "maxBatchedTokens": 512,
        "compile": {"mode": "None"},
        "speculative": {"method": "NGram"},
        "extraArgs": {"max_logprobs": "5"},
    }
    folder = _prepared(tmp_path, SPEC | {"engine": SPEC["engine"] | engine})
    program = _start(folder)
    try:
        program.wait_until(lambda: program.status("/readyz") == 200 or _ended(program), 300)
        told = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False).json()["engine"]
        asked = {"kvBlocks": 100, "maxRunningRequests": 4, "maxBatchedTokens": 512, "enforceEager": False}
        assert asked.items() <= told.items()
        client = OpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0, timeout=120)
        answer = client.chat.completions.create(model="notes", messages=said("When does it close?"), max_tokens=16)
        assert answer.choices[0].message.content
        assert "spec_decode_num_drafts" in httpx.get(f"{program.internal_url}/metrics", trust_env=False).text
    finally:
        program.process.terminate()
        program.process.wait(60)


def test_an_argument_that_vllm_does_not_know_ends_the_start_and_is_named(tmp_path: Path) -> None:
    folder = _prepared(tmp_path, SPEC | {"engine": SPEC["engine"] | {"extraArgs": {"swap_space": "4"}}})
    program = _start(folder)
    assert program.process.wait(120) == 2
    ending = json.loads(program.termination_log.read_text())
    assert ending["reason"] == "StartFailed"
    assert "has no argument swap_space" in ending["message"]


def engine_process(program: ServerProcess) -> int:
    """The engine's core."""
    tuning = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False).json()
    return int(tuning["engine"]["processes"][0])


@pytest.mark.parametrize("streaming", [False, True], ids=["idle", "streaming"])
def test_an_engine_that_is_stopped_is_noticed_within_15_seconds_and_ends_the_server(
    tmp_path: Path, streaming: bool
) -> None:
    """SIGSTOP: its process is there and does nothing. Streams end with an error event, and the reason is left."""
    program = _start(_prepared(tmp_path, SPEC))
    ends: list[str] = []

    def ask() -> None:
        sent = {"messages": said("Write a story."), "max_tokens": 900, "stream": True, "temperature": 1}
        ends.append(httpx.post(f"{program.url}/v1/chat/completions", json=sent, timeout=120, trust_env=False).text)

    try:
        program.wait_until(lambda: program.status("/readyz") == 200 or _ended(program), 300)
        asked = threading.Thread(target=ask)
        if streaming:
            asked.start()
            program.wait_until(lambda: vllm_running(program) == 1, 20)
        os.kill(engine_process(program), signal.SIGSTOP)
        stopped = time.monotonic()
        program.wait_until(lambda: program.status("/livez") == 503, 20)
        noticed = time.monotonic() - stopped
        assert noticed < 15
        assert program.status("/readyz") == 503
        if streaming:
            asked.join(10)
            assert '"error":{"message"' in ends[0]
        assert program.process.wait(20) == 1
    finally:
        if program.process.poll() is None:
            os.kill(engine_process(program), signal.SIGCONT)
            program.process.kill()
            program.process.wait()
    assert termination(program)["reason"] == "NotReady"
    assert "stands still" in termination(program)["message"]
