"""Reads a streamed chat completion as it comes in: pure, fed with bytes."""

from typing import Any

import orjson

from tailhold_bench.load.samples import Outcome, Sample

_MOST_BYTES = 4_000_000


class StreamReader:
    """Fills a sample from server-sent events, cut anywhere."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._rest = b""
        self._finished = False
        self._failed = False

    def feed(self, data: bytes, now: float) -> None:
        """The next bytes of the body."""
        buffer = self._rest + data
        *lines, self._rest = buffer.split(b"\n")
        if len(self._rest) > _MOST_BYTES:
            self._fail("a line of more than 4 MB in the stream")
            self._rest = b""
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def end(self) -> None:
        """No more bytes come."""
        if self._finished and not self._failed:
            self._sample.outcome = Outcome.OK
        elif not self._failed:
            self._sample.fail(Outcome.CUT, "the stream ended before the answer did")

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            return
        try:
            self._body(orjson.loads(data), now)
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            self._fail(f"an event that is no chat completion chunk: {error}")

    def _body(self, body: dict[str, Any], now: float) -> None:
        if "error" in body:
            self._fail(message_of(body))
            return
        for choice in body.get("choices") or ():
            if choice["delta"].get("content"):
                self._sample.token(now)
            if choice.get("finish_reason"):
                self._finish(now)
        if usage := body.get("usage"):
            self._sample.prompt_tokens = usage["prompt_tokens"]
            self._sample.output_tokens = usage["completion_tokens"]
        if said := body.get("tailhold"):
            self._ours(said)

    def _ours(self, said: dict[str, Any]) -> None:
        """What only Tailhold's own events have."""
        self._sample.trace = str(said.get("trace") or self._sample.trace)
        self._sample.made_up = self._sample.made_up or said.get("engine") == "stand-in"
        stages = said.get("stages") or {}
        self._sample.stages |= {str(name): float(milliseconds) for name, milliseconds in stages.items()}

    def _finish(self, now: float) -> None:
        self._finished = True
        if self._sample.first_token is None:  # an empty answer is one all the same
            self._sample.first_token = self._sample.last_token = now

    def _fail(self, detail: str) -> None:
        if not self._failed:
            self._failed = True
            self._sample.fail(Outcome.ERROR, detail)


def message_of(body: Any) -> str:
    """The message of OpenAI's error envelope, or all of it."""
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message", error)) if isinstance(error, dict) else str(error or body)
