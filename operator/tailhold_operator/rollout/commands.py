"""What people ask of a rollout by annotation: of one revision, and once."""

from tailhold_api import names
from tailhold_operator.history import History
from tailhold_operator.kinds import Manifest
from tailhold_operator.rollout.view import Commands, View

_LONGEST = 128
_ANNOTATIONS = {
    "promote": names.ANNOTATION_PROMOTE,
    "abort": names.ANNOTATION_ABORT,
    "retry": names.ANNOTATION_RETRY,
}


def read_commands(pipeline: Manifest) -> Commands:
    """The annotations of a RagPipeline."""
    found = pipeline["metadata"].get("annotations") or {}
    return Commands(**{kind: str(found.get(name, ""))[:_LONGEST] for kind, name in _ANNOTATIONS.items()})


def is_told(view: View, kind: str) -> bool:
    """Whether it is asked of the revision that the spec asks for, and was not done before."""
    value = str(getattr(view.commands, kind))
    return value.split("@")[0] == view.target.name and _mark(kind, value) not in view.history.marks


def done(view: View, kind: str) -> History:
    """Remember that it was done; what was asked for before and is asked no more is forgotten."""
    present = {_mark(each, str(getattr(view.commands, each))) for each in _ANNOTATIONS}
    kept = tuple(mark for mark in view.history.marks if mark in present)
    mark = _mark(kind, str(getattr(view.commands, kind)))
    return view.history.model_copy(update={"marks": (*(each for each in kept if each != mark), mark)})


def retried(view: View) -> History:
    """Forget the failure of a revision that is to be tried again."""
    if not is_told(view, "retry"):
        return _tidied(view)
    known = done(view, "retry")
    return known.model_copy(update={"failure": None}) if known.failed(view.target.name) else known


def _tidied(view: View) -> History:
    """An annotation that was taken away may be put there again."""
    present = {_mark(each, str(getattr(view.commands, each))) for each in _ANNOTATIONS}
    kept = tuple(mark for mark in view.history.marks if mark in present)
    return view.history if kept == view.history.marks else view.history.model_copy(update={"marks": kept})


def _mark(kind: str, value: str) -> str:
    return f"{kind}={value}"
