"""What the operator tells the pods of the stable side to hand over to a candidate, and for how long it holds."""

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from tailhold_api import names
from tailhold_api.fields import Model, policy

EXPIRES_SECONDS = 10.0
"""After the last repeat: an operator that is gone means the stable side alone."""
MOST_CANDIDATES = 64


def _address(given: str) -> str:
    """Raises ValueError for a name: what a name stands for may change between two requests."""
    return str(ip_address(given))


class Candidate(Model):
    """A pod of the candidate revision."""

    pod: str = policy(min_length=1, max_length=253)
    """Its name, for people."""
    ip: Annotated[str, AfterValidator(_address)] = policy(max_length=45)
    """Its address, of version 4 or 6."""
    port: int = policy(names.HANDOVER_PORT, ge=1, le=65535)
    """Where it takes what is handed over."""
    server_name: str = policy("", max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")
    """The name that its certificate is checked under; empty for plain HTTP, where the pipeline has no `server.tls`."""


class Handover(Model):
    """So many percent of the questions go to these pods. It expires 10 s after the last repeat; no candidates, or a
    weight of 0, end it at once."""

    weight_percent: float = policy(ge=0, le=100, allow_inf_nan=False)
    """Share of the questions that arrive over HTTP."""
    revision: str = policy(max_length=100, pattern=r"^[0-9a-f]+-[0-9a-f]+$")
    """The candidates' revision. One that runs on another answers nothing, and nothing is counted for it."""
    candidates: tuple[Candidate, ...] = policy((), max_length=MOST_CANDIDATES)
    """The pods; each question goes to the one with the fewest in flight."""
    patience_milliseconds: int = policy(30000, ge=100, le=600000)
    """How long a candidate may take until there is something of its answer to pass on, or a sign that it works on it.
    After that the stable pod answers itself."""
    token: str = Field("", max_length=4096, repr=False)
    """Signed by the operator for the pipeline's handover: candidates take nothing without it."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is handed over."""
        return not self.candidates or not self.weight_percent


def handover_audience(pipeline: str) -> str:
    """Whom a token is for that proves a handover between pods of a pipeline, given as `namespace/name`.

    It opens nothing else, and a token for the pipeline itself opens no handover.
    """
    return f"{pipeline}/handover"
