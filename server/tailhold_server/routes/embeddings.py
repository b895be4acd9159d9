"""`POST /v1/embeddings`."""

import base64
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
import orjson
from fastapi import APIRouter, Request
from numpy.typing import NDArray
from pydantic import Field
from starlette.responses import Response

from tailhold_server.access.caller import caller_of
from tailhold_server.errors import invalid
from tailhold_server.handlers.embed import MOST_TEXTS, Embedded, InputType
from tailhold_server.routes.fields import EMBEDDINGS, Fields
from tailhold_server.routes.reading import JSON, Wire, body_of, json_body, read
from tailhold_server.service import Service


class Encoding(StrEnum):
    """How vectors are written."""

    FLOAT = "float"
    BASE64 = "base64"


class EmbeddingRequest(Wire):
    """A request for embeddings."""

    FIELDS: ClassVar[Fields] = EMBEDDINGS

    input: str | list[str | int | list[int]] = Field(min_length=1)
    model: str | None = Field(None, max_length=200)
    encoding_format: Encoding | None = None
    dimensions: int | None = Field(None, ge=1)
    input_type: InputType | None = None


def embeddings_router(service: Service) -> APIRouter:
    """The route over a service."""
    router = APIRouter()

    @router.post("/v1/embeddings", openapi_extra={"requestBody": json_body(EmbeddingRequest)})
    async def embeddings(request: Request) -> Response:
        """Vectors of texts, as the pipeline's own embedder makes them."""
        asked = read(EmbeddingRequest, await body_of(request))
        service.check_embedder(asked.model)
        handler = service.handlers.embedding
        if asked.dimensions not in (None, handler.dimension):
            told = f"`dimensions`: vectors have {handler.dimension} numbers and are not shortened: leave it out"
            raise invalid(told, "dimensions")
        with service.counted(caller_of(request.scope)):
            embedded = await handler.embed(_texts(asked), asked.input_type or InputType.QUERY)
        body = _body(embedded, asked.encoding_format or Encoding.FLOAT, asked.model or service.embedder_name)
        return Response(orjson.dumps(body), media_type=JSON)

    return router


def _texts(asked: EmbeddingRequest) -> list[str]:
    given = [asked.input] if isinstance(asked.input, str) else asked.input
    texts = [each for each in given[: MOST_TEXTS + 1] if isinstance(each, str)]
    if len(texts) < len(given[: MOST_TEXTS + 1]):
        told = (
            "`input` has token ids, which are those of another tokenizer in most clients: send the text itself. In"
            " LangChain set `check_embedding_ctx_length=False`."
        )
        raise invalid(told, "input", "unsupported_parameter")
    return texts if len(given) <= MOST_TEXTS else [*texts, *[""] * (len(given) - len(texts))]


def _body(embedded: Embedded, encoding: Encoding, model: str) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": place, "embedding": _written(row, encoding)}
        for place, row in enumerate(embedded.vectors)
    ]
    usage = {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _written(row: NDArray[np.float32], encoding: Encoding) -> str | list[float]:
    if encoding is Encoding.BASE64:
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    numbers: list[float] = row.tolist()
    return numbers
