"""Keys and tenants with the real vLLM, encoder and search, served from a manifest without a cluster."""

from pathlib import Path
from typing import Any

import openai
import pytest
from secret_folder import swap
from tests.server.test_engine import SPEC, _ended, _prepared, _start, said

pytestmark = pytest.mark.engine

KEYS = {"ada": "ada-0123456789abcdef", "bob": "bob-0123456789abcdef", "eve": "eve-0123456789abcdef"}
SECURED: dict[str, Any] = {
    "corpus": {
        "sources": [
            {"name": "notes", "configMap": {"name": "notes"}, "exclude": ["hours.md"]},
            {"name": "hours", "configMap": {"name": "notes"}, "include": ["hours.md"], "tenants": ["risk", "audit"]},
        ]
    },
    "server": {
        "drainSeconds": 5,
        "auth": {"apiKeys": {"secretName": "clients"}},
        "tenants": {"ada": "risk", "bob": "audit"},
        "limits": {"tokensPerMinute": 100000},
    },
}


def cached(answer: Any) -> int:
    """Tokens of the prompt that the engine had already."""
    return int(answer.usage.prompt_tokens_details.cached_tokens or 0)


def test_a_tenant_finds_its_documents_and_cannot_tell_what_another_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of a prompt shows in its time and in `cached_tokens`: only questions of one tenant share it."""
    swap(tmp_path / "secrets" / "clients", **KEYS)
    monkeypatch.setenv("TAILHOLD_SECRETS", str(tmp_path / "secrets"))
    program = _start(_prepared(tmp_path, SPEC | SECURED))
    ada, bob, eve = (
        openai.OpenAI(base_url=f"{program.url}/v1", api_key=key, max_retries=0, timeout=120) for key in KEYS.values()
    )

    def ask(client: openai.OpenAI, text: str = "When does the office close?") -> Any:
        return client.chat.completions.create(model="notes", messages=said(text), max_tokens=4)

    def documents(answer: Any) -> list[str]:
        return [each["document"] for each in answer.tailhold["sources"]]

    try:
        program.wait_until(lambda: program.status("/readyz") == 200 or _ended(program), 300)
        first, again, other, other_again = ask(ada), ask(ada), ask(bob), ask(bob)
        assert documents(first)[0] == documents(other)[0] == "hours.md"
        assert first.choices[0].message.content == other.choices[0].message.content
        assert cached(first) == cached(other) == 0, "nor from the warm-up"
        assert cached(again) >= 64
        assert cached(other_again) == cached(again)
        without = ask(eve)
        assert "hours.md" not in documents(without)
        assert len(documents(without)) == len(documents(first)) == 3, "no place is left unfilled"
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0).models.list()
    finally:
        program.process.terminate()
        program.process.wait(60)
