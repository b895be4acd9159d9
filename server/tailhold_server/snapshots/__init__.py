"""Index snapshots: written once under their digest, verified before they are read."""

from tailhold_server.snapshots.contents import Contents, Document, Place
from tailhold_server.snapshots.manifest import Manifest, SnapshotRefused
from tailhold_server.snapshots.read import Snapshot, StoredChunks, open_snapshot
from tailhold_server.snapshots.store import keep_snapshots, snapshot_folder, write_snapshot
from tailhold_server.snapshots.structure import HNSWArrays, IVFPQArrays, Structure

__all__ = [
    "Contents",
    "Document",
    "HNSWArrays",
    "IVFPQArrays",
    "Manifest",
    "Place",
    "Snapshot",
    "SnapshotRefused",
    "StoredChunks",
    "Structure",
    "keep_snapshots",
    "open_snapshot",
    "snapshot_folder",
    "write_snapshot",
]
