"""The gRPC surface of the server."""

from tailhold_api.fields import Model, restart


class Grpc(Model):
    """The service `tailhold.v1.Rag` on a port of its own, 9000, with standard health beside it."""

    enabled: bool = restart(True)
    """Whether it is there. It costs a port and a few MiB; switch it off where nobody uses it."""
    reflection: bool = restart(True)
    """Whether clients such as grpcurl may ask for the service's definition. It tells nothing of documents."""
    max_message_mebibytes: int = restart(4, ge=1, le=64)
    """Largest message of a client. A larger one is refused with RESOURCE_EXHAUSTED before it is read."""
