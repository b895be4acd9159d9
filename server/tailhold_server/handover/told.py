"""What a candidate tells the pod that hands a request over, beside the answer: nothing of it reaches the client."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError

TRAILER = b": tailhold "
"""Begins the line after the answer: a comment to whoever reads a stream, and no end of an event, so that it is held
back like any unfinished one."""
HEARTBEAT = b" "
"""Before an answer that is not streamed, while it is worked on: JSON may begin so."""


class Told(BaseModel):
    """At the beginning what is known then, at the end all of it. Seconds since the candidate had the request."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    outcome: str = ""
    """`ok` for an answer that came to its end; empty at the beginning."""
    found: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Until the passages were there."""
    first: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Until the first token."""
    gap: float = Field(0.0, ge=0, allow_inf_nan=False)
    """The longest wait for a token."""
    most: int = Field(0, ge=0)
    """Tokens of the prompt and of the longest answer."""
    used: int = Field(0, ge=0)
    """Tokens of the prompt and of the answer."""

    def header(self) -> bytes:
        """As a header's value."""
        return self.model_dump_json(exclude_defaults=True).encode()

    def line(self) -> bytes:
        """As the line after the answer."""
        return TRAILER + self.header() + b"\n"


def read_told(text: bytes) -> Told | None:
    """None for what a candidate would not say."""
    try:
        return Told.model_validate_json(text)
    except ValidationError:
        return None
