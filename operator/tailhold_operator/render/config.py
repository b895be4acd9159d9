"""ConfigMaps: the parts of a revision, what is remembered, and the public key."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tailhold_api import codec, names
from tailhold_api.inspection import InspectionPart
from tailhold_api.parts import SHORT, BuildPart, ContentPart, PodPart
from tailhold_operator.history import KEY as HISTORY_KEY
from tailhold_operator.history import History
from tailhold_operator.kinds import Manifest
from tailhold_operator.render.identity import Identity

LABEL_PART = f"{names.GROUP}/part"
"""Which part of a revision a ConfigMap holds: `pod`, `content`, `build` or `inspection`."""
LABEL_DIGEST = f"{names.GROUP}/digest"
"""Its short digest."""
ANNOTATION_DIGEST = f"{names.GROUP}/digest"
"""The whole digest, which a label has no room for."""
TEMPLATE_KEY = "template.json"
CONTENT_KEY = "content.json"
_POD_KEY = "pod.json"

Parsed = TypeVar("Parsed", bound=BaseModel)


def render_pod_config(part: PodPart, template: Manifest, identity: Identity) -> Manifest:
    """A pod part, and the pod template first made from it: an upgrade of the operator restarts nothing."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return _hashed("pod", part, identity, {_POD_KEY: codec.dump(part), TEMPLATE_KEY: text})


def render_content_config(part: ContentPart, identity: Identity) -> Manifest:
    """A content part, kept for as long as a rollback may want it."""
    return _hashed("content", part, identity, {CONTENT_KEY: codec.dump(part)})


def render_build_config(part: BuildPart, identity: Identity) -> Manifest:
    """What an index Job builds from."""
    return _hashed("build", part, identity, {"build.json": codec.dump(part)})


def render_inspection_config(part: InspectionPart, identity: Identity) -> Manifest:
    """What an inspection Job looks at."""
    return _hashed("inspection", part, identity, {names.INSPECTION_PATH.rpartition("/")[2]: codec.dump(part)})


def render_mounted_content(part: ContentPart, pod_part: str, identity: Identity) -> Manifest:
    """The content that pods of a pod part start with. The one part of a revision that changes in place."""
    annotations = {ANNOTATION_DIGEST: codec.digest(part)}
    mounted = identity.object("ConfigMap", identity.child(pod_part, "content"), annotations=annotations)
    mounted["metadata"]["labels"][names.LABEL_POD_PART] = pod_part
    return mounted | {"data": {CONTENT_KEY: codec.dump(part)}}


def render_history(history: History, identity: Identity) -> Manifest:
    """What is remembered."""
    kept = identity.object("ConfigMap", identity.child("history"))
    return kept | {"data": {HISTORY_KEY: codec.dump(history)}}


def render_key(public_key: str, identity: Identity) -> Manifest:
    """What pods check the operator's tokens with."""
    kept = identity.object("ConfigMap", identity.child("key"))
    return kept | {"data": {names.PUBLIC_KEY_PATH.rpartition("/")[2]: public_key}}


def read_part(kind: type[Parsed], config: Manifest | None, key: str) -> Parsed | None:
    """A part out of its ConfigMap; None where it is missing or was tampered with."""
    text = ((config or {}).get("data") or {}).get(key)
    if not text:
        return None
    try:
        return codec.load_lenient(kind, json.loads(text))
    except (ValueError, ValidationError):
        return None


def read_template(config: Manifest | None) -> dict[str, Any] | None:
    """The pod template that is kept with a pod part."""
    text = ((config or {}).get("data") or {}).get(TEMPLATE_KEY)
    return json.loads(text) if text else None


def _hashed(part: str, model: BaseModel, identity: Identity, data: dict[str, str]) -> Manifest:
    digest = codec.digest(model)
    labels = {LABEL_PART: part, LABEL_DIGEST: digest[:SHORT]}
    name = identity.child(part, digest[:SHORT])
    config = identity.object("ConfigMap", name, labels=labels, annotations={ANNOTATION_DIGEST: digest})
    return config | {"immutable": True, "data": data}
