"""The gRPC server: the service, standard health and reflection, on a port of its own."""

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_health.v1.health import aio as health_aio
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from tailhold_api.rpc import Grpc
from tailhold_server.access.authentication import Authenticator
from tailhold_server.access.certificates import Certificates, Material
from tailhold_server.rpc.rag import SERVICE, Rag
from tailhold_server.service import Service

_MEBIBYTE = 1024 * 1024
_KEPT_PINGS_MILLISECONDS = 10_000
"""Clients may ask this often whether the connection lives; more often is an attack to gRPC."""
_METADATA_BYTES = 16 * 1024
_SHOWN = ("", SERVICE)


class RpcServer:
    """One for each process, on the event loop that everything else is on."""

    def __init__(
        self,
        service: Service,
        settings: Grpc,
        authenticator: Authenticator | None = None,
        certificates: Certificates | None = None,
        receive_seconds: float = 30.0,
    ) -> None:
        """With an authenticator questions are behind it; health and reflection, which tell nothing, are not."""
        self._service = service
        self._certificates = certificates
        self._health = health_aio.HealthServicer()
        self._server = grpc.aio.server(options=_options(settings))
        rag = grpc.method_handlers_generic_handler(SERVICE, Rag(service, authenticator, receive_seconds).handlers())
        self._server.add_generic_rpc_handlers((rag,))
        add_HealthServicer_to_server(self._health, self._server)
        if settings.reflection:
            shown = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(shown, self._server)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError where somebody else does."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._open(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await self.show(ready=True)
        await self._server.start()

    def _open(self, address: str) -> None:
        if self._certificates is None:
            self._server.add_insecure_port(address)
        else:
            self._server.add_secure_port(address, credentials(self._certificates))

    async def show(self, *, ready: bool) -> None:
        """What the health service says, to those that watch it too."""
        serving = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in _SHOWN:
            await self._health.set(name, serving)

    async def drain(self, seconds: float) -> None:
        """No new calls; those that run have so long, and are then cancelled."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(seconds)


def credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """What handshakes are made with: each looks whether there is a newer certificate."""
    last = certificates.newest

    def configuration(material: Material) -> grpc.ServerCertificateConfiguration:
        pair = (material.key, material.certificate)
        return grpc.ssl_server_certificate_configuration([pair], material.authorities)

    def newer() -> grpc.ServerCertificateConfiguration | None:
        nonlocal last
        if (newest := certificates.newest) is last:
            return None
        last = newest
        return configuration(newest)

    required = last.authorities is not None
    # None is "no newer one", as the library's documentation says and its types do not.
    return grpc.dynamic_ssl_server_credentials(configuration(last), newer, required)  # type: ignore[arg-type]


def _options(settings: Grpc) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_mebibytes * _MEBIBYTE),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEPT_PINGS_MILLISECONDS),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
