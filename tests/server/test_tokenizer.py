"""The demo's real tokenizer: what a token can stand for."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailhold.demo import ensure_models
from tailhold.places import cache_folder
from tailhold_server.adapters.tokenizer import ModelTokenizer

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def tokenizer() -> ModelTokenizer:
    folder, _ = ensure_models(cache_folder())
    return ModelTokenizer(folder)


@settings(max_examples=300)
@given(text=st.one_of(st.text(max_size=300), st.text(alphabet=" \n\t=-*#", max_size=2000)))
@example(text="\x1d")
def test_no_text_has_more_characters_than_its_tokens_can_stand_for(tokenizer: ModelTokenizer, text: str) -> None:
    """What is refused by its length alone could not have fitted, but for letters that the model cannot read at all."""
    read = "".join(letter for letter in text if tokenizer.encode(letter))
    assert len(read) <= len(tokenizer.encode(text)) * tokenizer.longest_token


def test_a_token_stands_for_so_little_that_megabytes_are_refused_at_once(tokenizer: ModelTokenizer) -> None:
    assert 2048 * tokenizer.longest_token < 1_000_000
