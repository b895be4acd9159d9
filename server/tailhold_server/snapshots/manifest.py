"""What a snapshot says of itself. Its canonical text is hashed, and the hash is the snapshot's name."""

from typing import Literal

from pydantic import Field, model_validator

from tailhold_api.conditions import Reason
from tailhold_api.fields import Model
from tailhold_api.index_kinds import HNSWStructure, IndexKind, IVFPQStructure
from tailhold_api.sources import Metric
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
"""What every snapshot holds: little-endian arrays without a header, whose length the manifest gives, and
text. Nothing in them can name code, a path or a length to allocate."""
CENTRES = "ivf_centres.f32"
LIST_OFFSETS = "ivf_offsets.i64"
LIST_IDS = "ivf_ids.i64"
CODEBOOKS = "pq_codebooks.f32"
CODES = "pq_codes.u8"
LEVELS = "hnsw_levels.i32"
LINKS = "hnsw_links.i32"
INDEX_FILES = {
    IndexKind.IVFPQ: (CENTRES, LIST_OFFSETS, LIST_IDS, CODEBOOKS, CODES),
    IndexKind.HNSW: (LEVELS, LINKS),
}
"""What a kind adds, arrays of the same sort: FAISS's own file format is never parsed."""
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
    """Share of the true nearest ten that a search with default parameters finds, measured when it was built."""
    recall_questions: int = Field(0, ge=0)
    """How many vectors it was measured with; 0 for a search that is exact."""
    ivfpq: IVFPQStructure | None = None
    """What an IVFPQ index is built of."""
    hnsw: HNSWStructure | None = None
    """What an HNSW index is built of."""
    files: dict[str, StoredFile]
    """Each file's size and hash."""

    @model_validator(mode="after")
    def _structure_of_its_kind(self) -> "Manifest":
        if self.kind is IndexKind.CAGRA:
            raise ValueError("kind CAGRA cannot be searched")
        for kind, structure in ((IndexKind.IVFPQ, self.ivfpq), (IndexKind.HNSW, self.hnsw)):
            if (self.kind is kind) != (structure is not None):
                raise ValueError(f"kind {self.kind} and parameters of {kind}")
        if self.ivfpq and self.dimension % self.ivfpq.subquantizers:
            raise ValueError(f"dimension {self.dimension} in {self.ivfpq.subquantizers} pieces")
        return self
