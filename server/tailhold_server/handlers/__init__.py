"""What the surfaces offer, without a word of HTTP or gRPC: embed, search, upload."""

from dataclasses import dataclass

from tailhold_server.handlers.embed import Embedding
from tailhold_server.handlers.search import Search
from tailhold_server.handlers.store import VectorStore
from tailhold_server.handlers.visible import Visible

__all__ = ["Embedding", "Handlers", "Search", "VectorStore", "Visible"]


@dataclass(frozen=True)
class Handlers:
    """All of a started server."""

    embedding: Embedding
    search: Search
    store: VectorStore
