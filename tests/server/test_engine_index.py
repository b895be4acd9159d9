"""Approximate kinds of index with the real vLLM and embedder: built by `serve`, searched, told otherwise live."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OKPKey
from openai import OpenAI
from program_process import ServerProcess
from tests.server.test_engine import SPEC, _ended, _prepared, _start, said

pytestmark = pytest.mark.engine

RULES = {f"rule-{n}.md": f"# Rule {n}\n\nRoom {n} is kept for group {n * 7 % 23}.\n" for n in range(20)}
KEY = OKPKey.generate_key("Ed25519")


def push(program: ServerProcess, content: dict[str, Any]) -> httpx.Response:
    """As the operator hands content over."""
    claims = {"aud": "team/notes", "exp": int(time.time()) + 60}
    token = jwt.encode({"alg": "Ed25519"}, claims, KEY, algorithms=["Ed25519"])
    url, headers = f"{program.internal_url}/internal/content", {"authorization": f"Bearer {token}"}
    return httpx.put(url, json=content, headers=headers, trust_env=False, timeout=30)


@pytest.mark.parametrize(
    ("index", "told"),
    [
        ({"kind": "HNSW", "hnsw": {"neighbours": 8}}, {"efSearch": 200}),
        ({"kind": "IVFPQ", "ivfpq": {"lists": 4, "bitsPerCode": 4, "probes": 4}}, {"probes": 2, "rescoreFactor": 3}),
    ],
    ids=["HNSW", "IVFPQ"],
)
def test_it_answers_and_takes_other_parameters_without_a_restart(
    tmp_path: Path, index: dict[str, Any], told: dict[str, int]
) -> None:
    folder = _prepared(tmp_path, SPEC | {"index": SPEC["index"] | index})
    for name, text in RULES.items():
        (folder / "configmaps" / "notes" / name).write_text(text)
    (folder / "key.json").write_text(json.dumps(KEY.as_dict(private=False)))
    program = _start(folder)
    try:
        program.wait_until(lambda: program.status("/readyz") == 200 or _ended(program), 300)
        client = OpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0, timeout=120)
        assert _best_source(client) == "hours.md"
        before = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False).json()
        taken = push(program, before["content"] | {"search": before["content"]["search"] | told})
        assert taken.status_code == 200, taken.text
        after = httpx.get(f"{program.internal_url}/v1/tuning", trust_env=False).json()
        assert told.items() <= after["content"]["search"].items()
        assert (after["snapshot"], after["podDigest"]) == (before["snapshot"], before["podDigest"])
        assert _best_source(client) == "hours.md"
    finally:
        program.process.terminate()
        program.process.wait(60)


def _best_source(client: OpenAI) -> str:
    answer = client.chat.completions.create(model="notes", messages=said("When does the office close?"), max_tokens=8)
    return str((answer.model_extra or {})["tailhold"]["sources"][0]["document"])
