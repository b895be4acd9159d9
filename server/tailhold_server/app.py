"""The ASGI applications: for clients, for pods that hand over, and for operator, kubelet and Prometheus."""

from fastapi import FastAPI
from starlette.types import ASGIApp

from tailhold_api.handover import handover_audience
from tailhold_server.access.authentication import Authenticated, Authenticator
from tailhold_server.authority import Authority
from tailhold_server.handover.receiving import Receiving
from tailhold_server.routes.body import BodyLimit
from tailhold_server.routes.catalogue import catalogue_router
from tailhold_server.routes.chat.router import chat_router
from tailhold_server.routes.embeddings import embeddings_router
from tailhold_server.routes.envelope import install
from tailhold_server.routes.files import PATH as FILES
from tailhold_server.routes.files import files_router
from tailhold_server.routes.internal import internal_router
from tailhold_server.routes.openapi import document
from tailhold_server.routes.vector_stores.router import vector_stores_router
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings

_MEBIBYTE = 1 << 20
_MOST_CONTENT_BYTES = 4 * _MEBIBYTE
"""More than a ConfigMap holds."""


def create_app(service: Service, settings: ServerSettings, authenticator: Authenticator | None = None) -> FastAPI:
    """What clients use. No route but those listed answers, and none of the engine's own.

    With an authenticator all of them are behind it.
    """
    most = service.pod.server.http.max_body_mebibytes * _MEBIBYTE
    app = FastAPI(title="Tailhold", docs_url=None, redoc_url=None)
    install(app)
    uploads = service.pod.uploads
    larger = {FILES: (uploads.max_file_mebibytes + 1) << 20} if uploads else {}
    app.add_middleware(BodyLimit, max_bytes=most, receive_seconds=settings.receive_seconds, larger=larger)
    if authenticator is not None:
        app.add_middleware(Authenticated, authenticator=authenticator, deny=service.telemetry.deny_for)
    app.include_router(chat_router(service))
    app.include_router(embeddings_router(service))
    app.include_router(files_router(service))
    app.include_router(vector_stores_router(service))
    app.include_router(catalogue_router(service))
    app.openapi = document(app)  # type: ignore[method-assign]
    return app


def create_handover_app(app: ASGIApp, service: Service, settings: ServerSettings) -> Receiving:
    """What pods of the same pipeline use where this one is a candidate, on a port of its own: clients' questions."""
    audience = handover_audience(settings.pipeline) if settings.pipeline else ""
    return Receiving(app, Authority(settings.public_key, audience), lambda: service.revision)


def create_internal_app(service: Service, settings: ServerSettings) -> FastAPI:
    """Probes, metrics and content, on a port of its own."""
    app = FastAPI(title="Tailhold, internal", docs_url=None, redoc_url=None, openapi_url=None)
    install(app)
    app.add_middleware(BodyLimit, max_bytes=_MOST_CONTENT_BYTES, receive_seconds=settings.receive_seconds)
    app.include_router(internal_router(service, Authority(settings.public_key, settings.pipeline)))
    return app
