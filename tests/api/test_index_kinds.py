"""Kinds of index: what a change of their fields does, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_examples import MINIMAL, merged

from tailhold.rules import broken
from tailhold_api.codec import digest, load_lenient
from tailhold_api.fields import FieldClass
from tailhold_api.forecast import forecast
from tailhold_api.index_kinds import BY_DEFAULT, HNSWStructure, IVFPQStructure, SearchParameters
from tailhold_api.parts import build_part, changes, content_part, pod_part
from tailhold_api.spec import Spec

SNAPSHOT = "a" * 64
IVFPQ = {"kind": "IVFPQ", "ivfpq": {"lists": 64}}
HNSW = {"kind": "HNSW", "hnsw": {"neighbours": 16}}


def spec(index: dict[str, Any] | None = None, **more: Any) -> Spec:
    return load_lenient(Spec, merged(MINIMAL, {"index": index or {}, **more}))


def test_a_flat_spec_has_the_digests_that_it_had_before_there_were_kinds() -> None:
    """Another digest would build every index in the world again."""
    flat = spec()
    assert digest(build_part(flat)) == "475694122bdd58fbe20451915b5f722b870282dd31674cb6d321ec6608b15adc"
    assert digest(content_part(flat, SNAPSHOT)) == "d91ec107b3b6ccacdd0f12f3e05b60d0cbd85c64b18fd36bc82b694819fc76eb"
    assert digest(pod_part("docs", flat)) == "9dc493168863248273e7ae75ecd52d88c03296e78f8945ff811c89b74ede215d"


@pytest.mark.parametrize(
    ("old", "new", "path", "kind"),
    [
        ({}, {"kind": "HNSW"}, "index.kind", FieldClass.RELOAD),
        (IVFPQ, merged(IVFPQ, {"ivfpq": {"lists": 128}}), "index.ivfpq.lists", FieldClass.RELOAD),
        (IVFPQ, merged(IVFPQ, {"ivfpq": {"subquantizers": 32}}), "index.ivfpq.subquantizers", FieldClass.RELOAD),
        (IVFPQ, merged(IVFPQ, {"ivfpq": {"bitsPerCode": 6}}), "index.ivfpq.bitsPerCode", FieldClass.RELOAD),
        (IVFPQ, merged(IVFPQ, {"ivfpq": {"probes": 3}}), "index.ivfpq.probes", FieldClass.LIVE),
        (IVFPQ, merged(IVFPQ, {"rescore": {"factor": 3}}), "index.rescore.factor", FieldClass.LIVE),
        (HNSW, merged(HNSW, {"hnsw": {"neighbours": 24}}), "index.hnsw.neighbours", FieldClass.RELOAD),
        (HNSW, merged(HNSW, {"hnsw": {"efConstruction": 99}}), "index.hnsw.efConstruction", FieldClass.RELOAD),
        (HNSW, merged(HNSW, {"hnsw": {"efSearch": 99}}), "index.hnsw.efSearch", FieldClass.LIVE),
        ({"kind": "HNSW"}, {"kind": "HNSW", "hnsw": {"efSearch": 99}}, "index.hnsw.efSearch", FieldClass.LIVE),
    ],
)
def test_what_is_built_in_builds_anew_and_what_is_searched_with_is_pushed(
    old: dict[str, Any], new: dict[str, Any], path: str, kind: FieldClass
) -> None:
    before, after = spec(old), spec(new)
    assert [(c.path, c.field_class) for c in changes(before, after)] == [(path, kind)]
    assert (build_part(before) != build_part(after)) == (kind is FieldClass.RELOAD)
    assert (content_part(before, SNAPSHOT) != content_part(after, SNAPSHOT)) == (kind is FieldClass.LIVE)
    assert pod_part("docs", before) == pod_part("docs", after)
    told = forecast("docs", before, after, None)
    assert (told.new_index, told.new_pods, told.new_content) == (kind is FieldClass.RELOAD, False, True)


def test_defaults_that_are_written_out_change_nothing() -> None:
    for bare, written in (
        ({"kind": "HNSW"}, {"kind": "HNSW", "hnsw": {"neighbours": 32, "efConstruction": 128, "efSearch": 64}}),
        ({"kind": "IVFPQ"}, {"kind": "IVFPQ", "ivfpq": {}, "rescore": {"factor": 10}}),
    ):
        assert changes(spec(bare), spec(written)) == ()
        assert digest(build_part(spec(bare))) == digest(build_part(spec(written)))
        assert digest(content_part(spec(bare), SNAPSHOT)) == digest(content_part(spec(written), SNAPSHOT))


@given(st.integers(1, 99), st.integers(4, 99), st.integers(1, 99))
def test_parameters_of_a_kind_that_is_not_chosen_reach_neither_build_nor_search(n: int, m: int, probes: int) -> None:
    """They are refused by a rule; an object from before the rule must not build either."""
    blocks = {"ivfpq": {"lists": n, "probes": probes}, "hnsw": {"neighbours": m}, "rescore": {"factor": n}}
    assert digest(build_part(spec(blocks))) == digest(build_part(spec()))
    assert content_part(spec(blocks), SNAPSHOT).search == BY_DEFAULT
    assert build_part(spec({"kind": "HNSW", **blocks})).ivfpq is None
    assert build_part(spec({"kind": "IVFPQ", **blocks})).hnsw is None


def test_defaults_of_what_is_built_stay() -> None:
    """Digests leave defaults out: with another default an old snapshot would pass for one that it is not."""
    assert IVFPQStructure().model_dump() == {"lists": 1024, "subquantizers": 64, "bits_per_code": 8}
    assert HNSWStructure().model_dump() == {"neighbours": 32, "ef_construction": 128}


def test_a_search_is_told_what_its_kind_reads() -> None:
    ivfpq = spec({"kind": "IVFPQ", "ivfpq": {"probes": 7}, "rescore": {"factor": 3}})
    assert content_part(ivfpq, SNAPSHOT).search == SearchParameters(probes=7, rescore_factor=3)
    hnsw = spec({"kind": "HNSW", "hnsw": {"efSearch": 200}})
    assert content_part(hnsw, SNAPSHOT).search == SearchParameters(ef_search=200)


@pytest.mark.parametrize(
    ("index", "more", "words"),
    [
        pytest.param(
            {"kind": "IVFPQ", "ivfpq": {"subquantizers": 50}},
            {},
            ("`embedder.dimension`", "`index.ivfpq.subquantizers`"),
            id="c03-a-dimension-that-cannot-be-cut",
        ),
        pytest.param(
            {"kind": "IVFPQ"},
            {"embedder": {"dimension": 100}},
            ("`embedder.dimension`", "64 where it is not given"),
            id="c03-the-default-counts-too",
        ),
        pytest.param(
            {"kind": "IVFPQ", "rescore": {"factor": 100}},
            {"retrieval": {"topK": 50}},
            ("`retrieval.topK`", "`index.rescore.factor`", "2048"),
            id="c05-candidates-beyond-the-limit",
        ),
        pytest.param({"kind": "CAGRA"}, {}, ("`kind: CAGRA`", "`HNSW`"), id="cagra"),
        pytest.param({"ivfpq": {}}, {}, ("`ivfpq`", "`kind: IVFPQ`"), id="of-another-kind"),
        pytest.param({"kind": "HNSW", "rescore": {}}, {}, ("`rescore`", "whole vectors"), id="nothing-to-rescore"),
        pytest.param(
            {"kind": "IVFPQ", "ivfpq": {"lists": 8}}, {}, ("`ivfpq.probes`", "`ivfpq.lists`"), id="too-many-probes"
        ),
    ],
)
def test_what_cannot_be_built_or_searched_is_refused_by_name(
    index: dict[str, Any], more: dict[str, Any], words: tuple[str, ...]
) -> None:
    (said,) = broken(spec(index, **more))
    assert all(word in said for word in words)


@pytest.mark.parametrize("index", [{}, {"kind": "IVFPQ"}, {"kind": "HNSW"}, IVFPQ, HNSW])
def test_every_kind_that_is_served_is_taken(index: dict[str, Any]) -> None:
    assert list(broken(spec(index, retrieval={"topK": 100}))) == []
