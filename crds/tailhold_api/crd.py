"""The CustomResourceDefinition, printed from the models."""

import inspect
from typing import Any

from pydantic import BaseModel

from tailhold_api import names
from tailhold_api.fields import CLASS_KEY, Model, Rule
from tailhold_api.spec import Spec
from tailhold_api.status import Status

_KEPT = (
    "type", "format", "default", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "multipleOf",
    "minItems", "maxItems", "maxProperties", "required",
)  # fmt: skip

COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Reason", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason'},
    {"name": "Stable", "type": "string", "jsonPath": ".status.stable.name"},
    {"name": "Candidate", "type": "string", "jsonPath": ".status.candidate.name"},
    {"name": "Weight", "type": "integer", "jsonPath": ".status.weightPercent"},
    {"name": "P99(ms)", "type": "integer", "jsonPath": ".status.p99Milliseconds"},
    {"name": "Replicas", "type": "string", "jsonPath": ".status.replicasText"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Chunks", "type": "integer", "jsonPath": ".status.snapshot.chunks", "priority": 1},
    {"name": "Step", "type": "string", "jsonPath": ".status.progress.step", "priority": 1},
    {"name": "SLO", "type": "string", "jsonPath": '.status.conditions[?(@.type=="SLOMet")].status', "priority": 1},
    {"name": "URL", "type": "string", "jsonPath": ".status.url", "priority": 1},
)
"""What `kubectl get ragp` shows; priority 1 with `-o wide`."""
UNSEEN = {"observedGeneration": -1}
"""The status before the operator's first look: without it kstatus takes a new pipeline for one that is done."""


def custom_resource_definition() -> dict[str, Any]:
    """The CRD as it is installed."""
    plural = f"{names.PLURAL}.{names.GROUP}"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": plural},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": [names.CATEGORY],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": list(COLUMNS),
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "schema": {"openAPIV3Schema": _root()},
    }


def _root() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "A RAG service that keeps a latency promise: what it is made of, and how it is doing.",
        "required": ["spec"],
        "properties": {
            "apiVersion": text | {"description": "Version of the API that this object is written in."},
            "kind": text | {"description": "Always RagPipeline."},
            "metadata": {"type": "object"},  # Kubernetes describes it, and lets nobody else
            "spec": structural(Spec) | {"description": "What the service is made of and what it promises."},
            "status": structural(Status) | {"description": "What is, as the operator saw it last.", "default": UNSEEN},
        },
    }


def structural(model: type[Model]) -> dict[str, Any]:
    """The OpenAPI v3 schema of a model in the form that Kubernetes takes: no references, no nulls, no titles."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}), model)


def _convert(node: dict[str, Any], defs: dict[str, Any], model: type[BaseModel] | None) -> dict[str, Any]:
    node = _resolved(node, defs)
    out: dict[str, Any] = {key: node[key] for key in _KEPT if key in node and node[key] is not None}
    if node.get("description"):
        out["description"] = inspect.cleandoc(node["description"]).replace("\n", " ")
    if "items" in node:
        out["items"] = _convert(node["items"], defs, None)
    if "properties" in node:
        required = node.get("required", ())
        out["properties"] = {
            name: _property(child, defs, required=name in required) for name, child in node["properties"].items()
        }
        out |= _rules(node.get("title", ""))
    elif isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(node["additionalProperties"], defs, None)
    return out


def _property(node: dict[str, Any], defs: dict[str, Any], *, required: bool) -> dict[str, Any]:
    out = _convert(node, defs, None)
    if CLASS_KEY in node and "description" in out:
        out["description"] += f" [{node[CLASS_KEY]}]"
    # A block with a default factory is a bare reference in pydantic's schema; an optional one is an anyOf.
    if "properties" in out and not required and "anyOf" not in node:
        out["default"] = _defaults(out)
    return out


def _defaults(block: dict[str, Any]) -> dict[str, Any]:
    """The block as it is when it is left out. Spelt out, since its rules are checked on the default as it stands."""
    return {name: child["default"] for name, child in block["properties"].items() if "default" in child}


def _resolved(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in node:
        (chosen,) = (option for option in node["anyOf"] if option.get("type") != "null")
        rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return _resolved(chosen | rest, defs)
    if "$ref" in node:
        target: dict[str, Any] = defs[node["$ref"].rsplit("/", 1)[1]]
        return target | {key: value for key, value in node.items() if key != "$ref"}
    return node


def _rules(title: str) -> dict[str, Any]:
    rules = _RULES.get(title, ())
    if not rules:
        return {}
    return {"x-kubernetes-validations": list(map(_validation, rules))}


def _validation(rule: Rule) -> dict[str, str]:
    said = {"messageExpression": rule.message_expression} if rule.message_expression else {}
    return {"rule": rule.expression, "message": rule.message} | said


def _models(kind: type[Model]) -> list[type[Model]]:
    return [kind, *(model for child in kind.__subclasses__() for model in _models(child))]


_RULES = {model.__name__: model.rules for model in _models(Model) if "rules" in vars(model)}
