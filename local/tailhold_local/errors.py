"""What the local cluster tells a person who can put it right."""


class LocalError(Exception):
    """A mistake or a lack on this machine; the message says what, and the next step."""
