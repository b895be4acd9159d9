"""Chunks by the generator's tokenizer: kept as token ids, so that a prompt is put together without it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from tailhold_server.snapshots.fingerprint import tokenizer_fingerprint


@dataclass(frozen=True)
class ChunkTokens:
    """Token ids of chunks and what they mean."""

    ids: Sequence[Sequence[int]]
    fingerprint: str
    vocabulary: int


def tokenise(folder: Path, texts: Sequence[str]) -> ChunkTokens:
    """Ids without special tokens. A document that spells one out gets the letters' ids, not the token's."""
    fingerprint = tokenizer_fingerprint(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return ChunkTokens([each.ids for each in encodings], fingerprint, tokenizer.get_vocab_size())
