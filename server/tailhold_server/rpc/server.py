"""The gRPC server: the service, standard health and reflection, on a port of its own."""

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from tailhold_api.rpc import Grpc
from tailhold_server.rpc.rag import SERVICE, Rag
from tailhold_server.service import Service

_MEBIBYTE = 1024 * 1024
_KEPT_PINGS_MILLISECONDS = 10_000
"""Clients may ask this often whether the connection lives; more often is an attack to gRPC."""
_METADATA_BYTES = 16 * 1024
_SHOWN = ("", SERVICE)


class RpcServer:
    """One for each process, on the event loop that everything else is on."""

    def __init__(self, service: Service, settings: Grpc) -> None:
        self._service = service
        self._health = health_aio.HealthServicer()
        self._server = grpc.aio.server(options=_options(settings))
        rag = grpc.method_handlers_generic_handler(SERVICE, Rag(service).handlers())
        self._server.add_generic_rpc_handlers((rag,))
        add_HealthServicer_to_server(self._health, self._server)
        if settings.reflection:
            shown = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(shown, self._server)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError where somebody else does."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await self.show(ready=True)
        await self._server.start()

    async def show(self, *, ready: bool) -> None:
        """What the health service says, to those that watch it too."""
        serving = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in _SHOWN:
            await self._health.set(name, serving)

    async def drain(self, seconds: float) -> None:
        """No new calls; those that run have so long, and are then cancelled."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(seconds)


def _options(settings: Grpc) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_mebibytes * _MEBIBYTE),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEPT_PINGS_MILLISECONDS),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
