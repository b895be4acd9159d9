"""An unknown field is answered with the one that was meant."""

import json
from typing import Any

import pytest
from pydantic import ValidationError
from spec_examples import MINIMAL, merged

from tailhold_api.codec import load
from tailhold_api.faults import said
from tailhold_api.spec import Spec
from tailhold_operator.parsing import explain


def refusal(change: dict[str, Any]) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        load(Spec, json.dumps(merged(MINIMAL, change)))
    return caught.value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"replica": 3}, "unknown field, did you mean `replicas`?", id="misspelt"),
        pytest.param({"retrieval": {"topk": 3}}, "unknown field, did you mean `topK`?", id="case"),
        pytest.param({"retrieval": {"top_k": 3}}, "unknown field, did you mean `topK`?", id="Python name"),
        pytest.param({"topK": 3}, "unknown field here, did you mean `retrieval.topK`?", id="one level too high"),
        pytest.param({"prompt": {"top_k": 3}}, "unknown field here, did you mean `retrieval.topK`?", id="elsewhere"),
        pytest.param(
            {"placement": {"tolerations": [{"kye": "a"}]}}, "unknown field, did you mean `key`?", id="within a list"
        ),
        pytest.param(
            {"embedder": {"model": {"pvc": {"claim": "a"}}}}, "unknown field, did you mean `claimName`?", id="optional"
        ),
        pytest.param(
            {"batching": {"zzz": 1}}, "unknown field, allowed are `maxWaitMilliseconds`, `maxBatch`", id="nothing near"
        ),
    ],
)
def test_an_unknown_field_is_answered_with_what_was_meant(change: dict[str, Any], words: str) -> None:
    """C01."""
    error = refusal(change)
    assert said(error.errors()[0], Spec) == words
    assert words in explain(error)


def test_the_operator_names_the_field_with_its_answer() -> None:
    assert explain(refusal({"retrieval": {"topk": 3}})) == "`spec.retrieval.topk`: unknown field, did you mean `topK`?"


def test_the_operator_cuts_a_huge_value_and_names_the_spec_alone() -> None:
    told = explain(refusal({"replicas": "x" * 100_000}))
    assert told.endswith("... (100002 characters)")
    assert len(told) < 300
    with pytest.raises(ValidationError) as caught:
        load(Spec, "[]")
    assert explain(caught.value) == "`spec`: input should be an object, and is []"


def test_an_entry_with_a_fault_does_not_make_its_list_too_short() -> None:
    told = explain(refusal({"corpus": {"sources": [{"name": "a", "baseUrl": "x"}]}}))
    assert told.startswith("`spec.corpus.sources[0].baseUrl`: ")
    assert "at least 1 item" not in told
