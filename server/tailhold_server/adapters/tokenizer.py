"""The generator's tokenizer and chat template, from its folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_server.errors import StartError

_NORMALISED = 4


class ModelTokenizer:
    """Over transformers' fast tokenizer; in two copies, since reading special tokens is a switch on it."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        load: Any = AutoTokenizer
        self._whole = load.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if not self._whole.is_fast:
            raise StartError(Reason.START_FAILED, f"{folder}: the tokenizer has no fast form (tokenizer.json)")
        if not self._whole.chat_template:
            raise StartError(Reason.START_FAILED, f"{folder}: the tokenizer has no chat template")
        self._plain = load.from_pretrained(folder, local_files_only=True, trust_remote_code=False).backend_tokenizer
        self._plain.encode_special_tokens = True
        self._longest = _longest_token(self._plain)

    @property
    def longest_token(self) -> int:
        """Most characters of a text that one token can stand for.

        Letters that a vocabulary leaves out get no token at all (control characters, in some); they are not counted.
        """
        return self._longest

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; special tokens in it are spelled out."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def encode_template(self, text: str) -> list[int]:
        """Ids of a piece of the template."""
        ids: list[int] = self._whole.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """The template's text. Raises ValueError when it refuses the messages."""
        from jinja2 import TemplateError

        wire = [{"role": role, "content": content} for role, content in messages]
        try:
            text: str = self._whole.apply_chat_template(wire, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise ValueError(str(error)) from error
        return text


def _longest_token(tokenizer: Any) -> int:
    """In byte-level vocabularies a letter stands for a byte, of which no character has less than one.

    A normaliser may make a text shorter before it is cut: composed accents, folded blanks.
    """
    longest = max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
    return longest * (_NORMALISED if tokenizer.normalizer else 1)
