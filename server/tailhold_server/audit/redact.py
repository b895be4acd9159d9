"""Takes out of texts what no record may hold, in time proportional to the text."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tailhold_api.audit import Redaction
from tailhold_server.errors import ContentRefusedError

_MEMORY_BYTES = 8 * 1024 * 1024
"""Of one expression; a larger one is refused."""


def redact(text: str, redactions: tuple[Redaction, ...]) -> str:
    """The text with each expression's matches replaced, one expression after the other."""
    for replace in compiled(redactions):
        text = replace(text)
    return text


@lru_cache(maxsize=8)
def compiled(redactions: tuple[Redaction, ...]) -> tuple[Callable[[str], str], ...]:
    """Raises ContentRefusedError that names the entry which is no expression of RE2."""
    return tuple(map(_compiled, redactions))


def _compiled(redaction: Redaction) -> Callable[[str], str]:
    import re2

    options = re2.Options()
    options.log_errors = False  # it would print the expression
    options.max_mem = _MEMORY_BYTES
    try:
        expression: Any = re2.compile(redaction.pattern, options)
    except re2.error as error:
        (said, *_) = error.args
        words = said.decode() if isinstance(said, bytes) else str(said)
        raise ContentRefusedError(f"recording.redaction[{redaction.name}].pattern: {words}") from None
    return lambda text: str(expression.sub(lambda _: redaction.replacement, text))
