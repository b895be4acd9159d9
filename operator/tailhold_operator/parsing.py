"""From a stored RagPipeline to models, and from a mistake to a sentence that helps."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tailhold_api import codec, names
from tailhold_api.faults import said
from tailhold_api.spec import Spec
from tailhold_api.status import Status
from tailhold_operator.history import KEY, History
from tailhold_operator.kinds import Manifest
from tailhold_operator.render.config import read_part

_MOST = 5


def read_spec(pipeline: Manifest) -> Spec | str:
    """The spec, or what is wrong with it: field, value and what is allowed."""
    try:
        return codec.load_lenient(Spec, pipeline.get("spec") or {})
    except ValidationError as error:
        return explain(error)


def read_status(pipeline: Manifest) -> Status:
    """The status as it was written last; an empty one where it cannot be understood."""
    try:
        return codec.load_lenient(Status, pipeline.get("status") or {})
    except ValidationError:
        return Status()


def read_history(config: Manifest | None) -> History:
    """What is remembered; nothing where it cannot be understood."""
    return read_part(History, config, KEY) or History()


def rebuild_mark(pipeline: Manifest) -> str:
    """The value of the annotation that asks for another build."""
    return str((pipeline["metadata"].get("annotations") or {}).get(names.ANNOTATION_REBUILD, ""))


def generation_of(pipeline: Manifest) -> int:
    """Which edit of the spec this is."""
    return int(pipeline["metadata"].get("generation", 0))


def explain(error: ValidationError) -> str:
    """What is wrong with a spec: the first faults, each with its field."""
    told = [_sentence(each) for each in error.errors(include_url=False)]
    more = f"; and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return "; ".join(told[:_MOST]) + more


def _sentence(detail: ErrorDetails) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    message = said(detail, Spec)
    if detail["type"] in ("missing", "extra_forbidden"):
        return f"`spec{where}`: {message}"
    return f"`spec{where}`: {message}, and is {str(detail['input'])[:100]!r}"
