"""How a request, a start, or a snapshot fails."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from tailhold_api.conditions import Reason


class Failure(Enum):
    """Why a request failed: the HTTP status, OpenAI's `type`, and the outcome counted."""

    INVALID = (400, "invalid_request_error", "invalid")
    UNAUTHENTICATED = (401, "invalid_request_error", "invalid")
    FORBIDDEN = (403, "invalid_request_error", "invalid")
    NOT_FOUND = (404, "invalid_request_error", "invalid")
    METHOD = (405, "invalid_request_error", "invalid")
    TOO_SLOW = (408, "invalid_request_error", "client_closed")
    TOO_LARGE = (413, "invalid_request_error", "invalid")
    MEDIA_TYPE = (415, "invalid_request_error", "invalid")
    MISDIRECTED = (421, "invalid_request_error", "invalid")
    HEAD_TOO_LARGE = (431, "invalid_request_error", "invalid")
    OVERLOADED = (429, "rate_limit_error", "rejected")
    INTERNAL = (500, "server_error", "failed")
    UNAVAILABLE = (503, "server_error", "failed")
    FULL = (507, "server_error", "failed")

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.value[0]

    @property
    def kind(self) -> str:
        """The envelope's `type`."""
        return self.value[1]

    @property
    def outcome(self) -> str:
        """The label of `requests_total`."""
        return self.value[2]


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class ServeError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        self.headers = headers
        """Sent beside the status, where it is not sent yet."""


class StartError(Exception):
    """The server cannot serve. `reason` is a word of the contract, the text is for the user."""

    def __init__(self, reason: Reason, message: str, *, final: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.final = final
        """Whether trying again cannot help."""


class EngineDiedError(Exception):
    """The engine's process is gone; the server goes with it."""


class ContentRefusedError(Exception):
    """New content was not taken; the old one serves on."""


def invalid(message: str, param: str | None = None, code: str | None = None) -> ServeError:
    """A request that can never be answered as it is."""
    return ServeError(Failure.INVALID, message, param=param, code=code)
