"""What a spec asks for, as parts and as a revision, and what of earlier ones has to stay."""

from collections.abc import Iterable
from dataclasses import dataclass

from tailhold_api import codec
from tailhold_api.parts import (
    SHORT,
    BuildPart,
    ContentPart,
    PodPart,
    build_part,
    changes,
    content_part,
    pod_part,
    revision_name,
)
from tailhold_api.spec import Spec
from tailhold_api.status import FieldChange, RevisionStatus, SnapshotStatus
from tailhold_operator.history import History
from tailhold_operator.kinds import Manifest, Ref, label_of
from tailhold_operator.observe import Seen
from tailhold_operator.render.config import (
    ANNOTATION_DIGEST,
    CONTENT_KEY,
    LABEL_DIGEST,
    LABEL_PART,
    read_part,
)

MOST_CHANGES = 48
"""Fields of an edit that the status names: what it has room for."""


@dataclass(frozen=True)
class Asked:
    """What a spec asks for, before its index is known."""

    spec: Spec
    pod: PodPart
    build: BuildPart | None
    """None where the snapshot is given."""
    pod_digest: str
    build_digest: str


@dataclass(frozen=True)
class Target:
    """A whole revision."""

    status: RevisionStatus
    content: ContentPart


def asked_for(pipeline: str, spec: Spec, rebuild: str) -> Asked:
    """The parts of a spec."""
    pod, build = pod_part(pipeline, spec), build_part(spec, rebuild)
    return Asked(spec, pod, build, codec.digest(pod), codec.digest(build) if build else "")


def target_of(asked: Asked, snapshot: SnapshotStatus, image: str) -> Target:
    """The revision that a spec and its snapshot make."""
    content = content_part(asked.spec, snapshot.digest)
    digest = codec.digest(content)
    name = revision_name(asked.pod_digest, digest)
    revision = RevisionStatus(
        name=name,
        pod_digest=asked.pod_digest,
        content_digest=digest,
        snapshot=snapshot.digest,
        image=image,
    )
    return Target(revision, content)


def noted(history: History, spec: Spec) -> History:
    """Remember the spec that is acted on, and what it changed."""
    if history.spec == spec:
        return history
    found = changes(history.spec, spec) if history.spec else ()
    told = tuple(FieldChange(path=each.path, field_class=each.field_class) for each in found)
    return history.model_copy(update={"spec": spec, "last_change": told[:MOST_CHANGES]})


def content_by_digest(seen: Seen, digest: str, target: Target | None) -> ContentPart | None:
    """A content part that is asked for or was kept; its name is not trusted, its digest is."""
    if target and target.status.content_digest == digest:
        return target.content
    kept = (child for child in seen.of_kind("ConfigMap") if label_of(child, LABEL_PART) == "content")
    for child in kept:
        annotations = child["metadata"].get("annotations") or {}
        part = read_part(ContentPart, child, CONTENT_KEY)
        if annotations.get(ANNOTATION_DIGEST) == digest and part and codec.digest(part) == digest:
            return part
    return None


def kept_configs(seen: Seen, history: History, more: Iterable[RevisionStatus], parts: Iterable[str]) -> set[Ref]:
    """ConfigMaps of revisions that a rollback may want: nothing that a target needs is deleted."""
    revisions = [*history.revisions, *more]
    pods = {each.pod_digest[:SHORT] for each in revisions} | set(parts)
    contents = {each.content_digest[:SHORT] for each in revisions}
    wanted = {"pod": pods, "content": contents}
    return {ref for ref, child in seen.children.items() if _is_kept(child, wanted)}


def _is_kept(child: Manifest, wanted: dict[str, set[str]]) -> bool:
    return label_of(child, LABEL_DIGEST) in wanted.get(label_of(child, LABEL_PART), ())
