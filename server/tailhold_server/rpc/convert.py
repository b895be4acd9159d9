"""Protocol buffers to what the pipeline takes, and back."""

import json
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value

from tailhold_server.citations import Citation
from tailhold_server.handlers.documents import Attributes
from tailhold_server.handlers.search import Hit
from tailhold_server.handlers.stored import FileState, StoredFile
from tailhold_server.pipeline import Answer, Prepared, Step
from tailhold_server.routes.chat.protocol import ChatRequest, parse
from tailhold_server.routes.reading import read
from tailhold_server.routes.vector_stores.protocol import AddRequest, SearchRequest
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.sources import Source

_ROLES = {
    api.ROLE_UNSPECIFIED: "",
    api.ROLE_SYSTEM: "system",
    api.ROLE_USER: "user",
    api.ROLE_ASSISTANT: "assistant",
}
_GIVEN_OR_NOT = ("max_tokens", "temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
_STATES = {
    FileState.IN_PROGRESS: api.DOCUMENT_STATE_IN_PROGRESS,
    FileState.COMPLETED: api.DOCUMENT_STATE_COMPLETED,
    FileState.FAILED: api.DOCUMENT_STATE_FAILED,
}
_REASONS = {"stop": api.FINISH_REASON_STOP, "length": api.FINISH_REASON_LENGTH}


def chat_request(asked: api.AskRequest) -> ChatRequest:
    """What the HTTP surface would have read, checked as there. Raises ServeError that names the field."""
    body: dict[str, Any] = {name: getattr(asked, name) for name in _GIVEN_OR_NOT if asked.HasField(name)}
    body["messages"] = [{"role": _ROLES.get(each.role, ""), "content": each.text} for each in asked.messages]
    if asked.model:
        body["model"] = asked.model
    if asked.stop:
        body["stop"] = list(asked.stop)
    return parse(json.dumps(body).encode())


def search_request(asked: api.RetrieveRequest) -> SearchRequest:
    """The same for a search. Raises ServeError."""
    body: dict[str, Any] = {"query": asked.query}
    if asked.HasField("max_results"):
        body["max_num_results"] = asked.max_results
    if asked.HasField("min_score"):
        body["ranking_options"] = {"score_threshold": asked.min_score}
    if asked.HasField("filter"):
        body["filters"] = plain(asked.filter)
    return read(SearchRequest, json.dumps(body).encode())


def attributes(document: api.Document) -> Attributes:
    """Those of a document, checked as over HTTP. Raises ServeError."""
    body = {"file_id": "", "attributes": plain(document.attributes)}
    return read(AddRequest, json.dumps(body).encode()).attributes or {}


def plain(given: Struct) -> dict[str, Any]:
    """As JSON has it, but for numbers that are none: the check that follows refuses them by the field's name."""
    return {key: _value(each) for key, each in given.fields.items()}


def _value(given: Value) -> Any:
    kind = given.WhichOneof("kind")
    if kind == "struct_value":
        return plain(given.struct_value)
    if kind == "list_value":
        return [_value(each) for each in given.list_value.values]
    return None if kind in (None, "null_value") else getattr(given, kind)


def passage(hit: Hit) -> api.Passage:
    """What a search found."""
    said = ParseDict(dict(hit.attributes), Struct())
    return api.Passage(
        file_id=hit.file_id, filename=hit.filename, score=hit.score, text=hit.text, key=hit.key, attributes=said
    )


def stored(file: StoredFile) -> api.StoredDocument:
    """A document that is part of the corpus."""
    state = _STATES.get(file.state, api.DOCUMENT_STATE_UNSPECIFIED)
    return api.StoredDocument(file_id=file.file_id, filename=file.filename, state=state, bytes=file.bytes)


def opening(prepared: Prepared, revision: str, model: str) -> api.AskResponse:
    """What is known before the first token."""
    context = api.Context(
        chunks=len(prepared.sources),
        dropped=prepared.dropped,
        truncated=prepared.truncated,
        tokens=prepared.context_tokens,
        snapshot=prepared.content.index.snapshot,
    )
    said = api.Opening(
        request_id=prepared.request_id,
        revision=revision,
        model=model,
        sources=[source(each) for each in prepared.sources],
        context=context,
    )
    return api.AskResponse(opening=said)


def piece(step: Step) -> api.AskResponse:
    """Text and the citations that it completes."""
    return api.AskResponse(piece=api.Piece(text=step.text, citations=_citations(step.citations)))


def ending(answer: Answer, finish_reason: str, *, made_up: bool = False) -> api.AskResponse:
    """Why it ended, all citations, the figures, and whether the stand-in engine made it up."""
    usage = api.Usage(
        prompt_tokens=len(answer.prepared.prompt_ids),
        completion_tokens=answer.completion_tokens,
        cached_tokens=answer.cached_tokens,
    )
    said = api.Ending(
        finish_reason=_REASONS.get(finish_reason, api.FINISH_REASON_UNSPECIFIED),
        citations=_citations(answer.citations),
        usage=usage,
        stage_milliseconds=answer.stages,
        engine="stand-in" if made_up else "",
    )
    return api.AskResponse(ending=said)


def source(given: Source) -> api.Source:
    """A passage on the wire."""
    return api.Source(
        number=given.number,
        title=given.title,
        url=given.url,
        document=given.document,
        key=given.key,
        score=given.score,
        text=given.text,
    )


def _citations(given: list[Citation]) -> list[api.Citation]:
    return [api.Citation(number=each.number, start=each.start, end=each.end) for each in given]
