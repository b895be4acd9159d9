"""Failures as gRPC says them: a code, a text, and details that programs read (google.rpc)."""

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from tailhold_api import names
from tailhold_server.errors import Failure, ServeError

_CODES = {
    Failure.INVALID: code_pb2.INVALID_ARGUMENT,
    Failure.UNAUTHENTICATED: code_pb2.UNAUTHENTICATED,
    Failure.FORBIDDEN: code_pb2.PERMISSION_DENIED,
    Failure.NOT_FOUND: code_pb2.NOT_FOUND,
    Failure.METHOD: code_pb2.UNIMPLEMENTED,
    Failure.TOO_SLOW: code_pb2.DEADLINE_EXCEEDED,
    Failure.TOO_LARGE: code_pb2.RESOURCE_EXHAUSTED,
    Failure.MEDIA_TYPE: code_pb2.INVALID_ARGUMENT,
    Failure.MISDIRECTED: code_pb2.FAILED_PRECONDITION,
    Failure.HEAD_TOO_LARGE: code_pb2.RESOURCE_EXHAUSTED,
    Failure.OVERLOADED: code_pb2.RESOURCE_EXHAUSTED,
    Failure.INTERNAL: code_pb2.INTERNAL,
    Failure.UNAVAILABLE: code_pb2.UNAVAILABLE,
    Failure.FULL: code_pb2.RESOURCE_EXHAUSTED,
}


def status_of(error: ServeError) -> status_pb2.Status:
    """The code, and as details the field, the reason, and when to try again, where they are known."""
    details: list[Message] = []
    if error.param:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.param, description=error.message)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.code:
        details.append(error_details_pb2.ErrorInfo(reason=error.code, domain=names.GROUP))
    if error.retry_after_seconds is not None:
        wait = Duration(seconds=error.retry_after_seconds)
        details.append(error_details_pb2.RetryInfo(retry_delay=wait))
    return status_pb2.Status(code=_CODES[error.failure], message=error.message, details=list(map(_packed, details)))


def _packed(detail: Message) -> Any:
    packed = Any()
    packed.Pack(detail)
    return packed
