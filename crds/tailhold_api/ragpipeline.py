"""The RagPipeline as a whole."""

from tailhold_api.fields import Model
from tailhold_api.spec import Spec
from tailhold_api.status import Status


class RagPipeline(Model):
    """A RAG service that keeps a latency promise: what it is made of, and how it is doing."""

    spec: Spec
    """What the service is made of and what it promises."""
    status: Status = Status()
    """What is, as the operator saw it last. Written by the operator alone."""
