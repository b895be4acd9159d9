"""What a snapshot says of itself. Its canonical text is hashed, and the hash is the snapshot's name."""

from typing import Literal

from pydantic import Field

from tailhold_api.conditions import Reason
from tailhold_api.fields import Model
from tailhold_api.sources import IndexKind, Metric
from tailhold_server.errors import StartError

MANIFEST = "manifest.json"
MANIFEST_BYTES = 65536
"""A manifest is about 2 KiB; a longer file is none."""
HASH = r"^[0-9a-f]{64}$"

VECTORS = "vectors.f32"
TEXTS = "texts.utf8"
TEXT_OFFSETS = "text_offsets.i64"
TOKENS = "tokens.i32"
TOKEN_OFFSETS = "token_offsets.i64"  # noqa: S105
PASSAGES = "passages.sha256"
PLACES = "places.i64"
PLACE_OFFSETS = "place_offsets.i64"
DOCUMENTS = "documents.json"
FILES = (
    VECTORS,
    TEXTS,
    TEXT_OFFSETS,
    TOKENS,
    TOKEN_OFFSETS,
    PASSAGES,
    PLACES,
    PLACE_OFFSETS,
    DOCUMENTS,
)
"""All that a snapshot may hold: little-endian arrays without a header, whose length the manifest gives, and
text. Nothing in them can name code, a path or a length to allocate."""
PASSAGE_BYTES = 32
PLACE_COLUMNS = 3
"""Document, first character, one past the last."""


class SnapshotRefused(StartError):  # noqa: N818 - it says more than Error would
    """A snapshot that is not what its name and manifest say. The message names file, expected and got."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.SNAPSHOT_REFUSED, message)


class StoredFile(Model):
    """One file of a snapshot."""

    bytes: int = Field(ge=0)
    """Its size."""
    sha256: str = Field(pattern=HASH)
    """Of its content."""


class Manifest(Model):
    """The facts that a server checks before it reads anything else."""

    format: Literal[1]
    """Raised when a file's meaning changes: an older server then refuses what it cannot read."""
    kind: IndexKind
    """How vectors are searched."""
    metric: Metric
    """How vectors are compared."""
    count: int = Field(ge=1)
    """Chunks, one vector each."""
    dimension: int = Field(ge=1, le=65536)
    """Numbers in a vector."""
    vocabulary: int = Field(ge=1, le=2**31 - 1)
    """Token ids are below this."""
    embedder: str = Field(pattern=HASH)
    """Fingerprint of the embedder: a question embedded by another one finds nonsense."""
    tokenizer: str = Field(pattern=HASH)
    """Fingerprint of the generator's tokenizer: token ids of another one are other words."""
    build: str = Field(pattern=HASH)
    """Digest of the build part."""
    recall: float = Field(ge=0, le=1)
    """Share of the true nearest neighbours that a search finds, measured when it was built."""
    files: dict[str, StoredFile]
    """Each file's size and hash."""
