"""The trace of one request, as a surface that answers it keeps it."""

import time
from collections.abc import Mapping

from tailhold_server.pipeline import Answering
from tailhold_server.service import Service
from tailhold_server.tracing import Asked, traced


class Trail:
    """From the request's arrival to its end."""

    def __init__(
        self, service: Service, headers: Mapping[str, str], request_id: str, model: str, *, stream: bool
    ) -> None:
        self._service = service
        self.request_id = request_id
        self.model = model
        """As the client called it."""
        self._asked = Asked(request_id, model, service.pod.pipeline, stream)
        self._began = time.monotonic()
        self._context = service.tracer.begin(headers)
        self.answering: Answering | None = None
        """What answers it, once it is admitted."""
        self.outcome = "client_closed"
        """A value of the label `outcome` of `requests_total`; a request that is told nothing of its end was left."""

    @property
    def name(self) -> str:
        """The trace's id, empty where there is none."""
        return self._context.name if self._context else ""

    def count(self, outcome: str) -> None:
        """It ends so, here and in the metrics."""
        self.outcome = outcome
        self._service.telemetry.count(outcome)

    def end(self) -> None:
        """Nothing comes any more."""
        if self._context is None:
            return
        answer = self.answering.answer if self.answering else None
        revision = self._service.revision_of(answer.prepared.content) if answer else ""
        ended = time.monotonic()
        self._service.tracer.end(traced(self._context, self._asked, self._began, ended, self.outcome, answer, revision))
