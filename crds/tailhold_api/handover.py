"""What the operator tells the pods that serve about a candidate."""

from tailhold_api.fields import Model, policy


class Handover(Model):
    """So much of the requests goes on to the candidate. Without a repeat it is forgotten after some seconds."""

    weight_percent: int = policy(0, ge=0, le=100)
    """Share of the requests that are handed over."""
    revision: str = policy("", max_length=64)
    """The candidate."""
    candidates: tuple[str, ...] = policy((), max_length=1000)
    """Addresses of its pods."""
    patience_milliseconds: int = policy(1000, ge=1, le=600000)
    """How long a candidate pod has to take a request."""
