"""What stands in for embedder and tokenizer, in the pods and in the index Job: equal vectors and ids in both."""

import hashlib
from collections.abc import Sequence

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Sequence as InTurn
from tokenizers.pre_tokenizers import Split, WhitespaceSplit

from tailhold_server.ingest.tokens import ChunkTokens
from tailhold_server.stand_in.engine import WIDTH
from tailhold_server.testing import VOCABULARY, StandInEncoder, StandInTokenizer

EMBEDDER = hashlib.sha256(b"tailhold stand-in embedder 1").hexdigest()
"""Fingerprint of its vectors: an index of real ones is refused by it, and its own by a real embedder."""
_WORD = "w"
TOKENIZER = hashlib.sha256(b"tailhold stand-in tokenizer 1").hexdigest()


def encoder(dimension: int) -> StandInEncoder:
    """Vectors of hashed words."""
    return StandInEncoder(dimension, EMBEDDER)


def chunk_tokens(texts: Sequence[str]) -> ChunkTokens:
    """Token ids of chunks, as the engine reads them."""
    encode = StandInTokenizer(WIDTH).encode
    return ChunkTokens([encode(text) for text in texts], TOKENIZER, VOCABULARY)


def counting_tokenizer() -> Tokenizer:
    """Counts words of up to eight letters, by which documents are cut: about what a model's tokenizer counts."""
    tokenizer = Tokenizer(WordLevel({_WORD: 0, "": 1}, unk_token=""))
    tokenizer.normalizer = Replace(Regex(r"\w{1,8}|[^\w\s]"), _WORD)  # none is unknown: that would count its letters
    tokenizer.pre_tokenizer = InTurn([WhitespaceSplit(), Split(_WORD, "isolated")])
    return tokenizer
