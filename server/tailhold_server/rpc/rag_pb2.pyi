from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_SYSTEM: _ClassVar[Role]
    ROLE_USER: _ClassVar[Role]
    ROLE_ASSISTANT: _ClassVar[Role]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]

class DocumentState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DOCUMENT_STATE_UNSPECIFIED: _ClassVar[DocumentState]
    DOCUMENT_STATE_IN_PROGRESS: _ClassVar[DocumentState]
    DOCUMENT_STATE_COMPLETED: _ClassVar[DocumentState]
    DOCUMENT_STATE_FAILED: _ClassVar[DocumentState]
ROLE_UNSPECIFIED: Role
ROLE_SYSTEM: Role
ROLE_USER: Role
ROLE_ASSISTANT: Role
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
DOCUMENT_STATE_UNSPECIFIED: DocumentState
DOCUMENT_STATE_IN_PROGRESS: DocumentState
DOCUMENT_STATE_COMPLETED: DocumentState
DOCUMENT_STATE_FAILED: DocumentState

class Message(_message.Message):
    __slots__ = ("role", "text")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    role: Role
    text: str
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., text: _Optional[str] = ...) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ("model", "messages", "max_tokens", "temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    model: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    presence_penalty: float
    frequency_penalty: float
    def __init__(self, model: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ...) -> None: ...

class AskResponse(_message.Message):
    __slots__ = ("opening", "piece", "ending")
    OPENING_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    opening: Opening
    piece: Piece
    ending: Ending
    def __init__(self, opening: _Optional[_Union[Opening, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., ending: _Optional[_Union[Ending, _Mapping]] = ...) -> None: ...

class Opening(_message.Message):
    __slots__ = ("request_id", "revision", "model", "sources", "context")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    revision: str
    model: str
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    context: Context
    def __init__(self, request_id: _Optional[str] = ..., revision: _Optional[str] = ..., model: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., context: _Optional[_Union[Context, _Mapping]] = ...) -> None: ...

class Context(_message.Message):
    __slots__ = ("chunks", "dropped", "truncated", "tokens", "snapshot")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    dropped: int
    truncated: bool
    tokens: int
    snapshot: str
    def __init__(self, chunks: _Optional[int] = ..., dropped: _Optional[int] = ..., truncated: _Optional[bool] = ..., tokens: _Optional[int] = ..., snapshot: _Optional[str] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("number", "title", "url", "document", "key", "score", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: int
    title: str
    url: str
    document: str
    key: str
    score: float
    text: str
    def __init__(self, number: _Optional[int] = ..., title: _Optional[str] = ..., url: _Optional[str] = ..., document: _Optional[str] = ..., key: _Optional[str] = ..., score: _Optional[float] = ..., text: _Optional[str] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("text", "citations")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    text: str
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    def __init__(self, text: _Optional[str] = ..., citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ...) -> None: ...

class Citation(_message.Message):
    __slots__ = ("number", "start", "end")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    number: int
    start: int
    end: int
    def __init__(self, number: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Ending(_message.Message):
    __slots__ = ("finish_reason", "citations", "usage", "stage_milliseconds", "engine")
    class StageMillisecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    finish_reason: FinishReason
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    usage: Usage
    stage_milliseconds: _containers.ScalarMap[str, float]
    engine: str
    def __init__(self, finish_reason: _Optional[_Union[FinishReason, str]] = ..., citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., stage_milliseconds: _Optional[_Mapping[str, float]] = ..., engine: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class RetrieveRequest(_message.Message):
    __slots__ = ("query", "max_results", "min_score", "filter")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULTS_FIELD_NUMBER: _ClassVar[int]
    MIN_SCORE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    query: str
    max_results: int
    min_score: float
    filter: _struct_pb2.Struct
    def __init__(self, query: _Optional[str] = ..., max_results: _Optional[int] = ..., min_score: _Optional[float] = ..., filter: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class RetrieveResponse(_message.Message):
    __slots__ = ("passages",)
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    passages: _containers.RepeatedCompositeFieldContainer[Passage]
    def __init__(self, passages: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ...) -> None: ...

class Passage(_message.Message):
    __slots__ = ("file_id", "filename", "score", "text", "key", "attributes")
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    file_id: str
    filename: str
    score: float
    text: str
    key: str
    attributes: _struct_pb2.Struct
    def __init__(self, file_id: _Optional[str] = ..., filename: _Optional[str] = ..., score: _Optional[float] = ..., text: _Optional[str] = ..., key: _Optional[str] = ..., attributes: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class IngestRequest(_message.Message):
    __slots__ = ("document", "data")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    document: Document
    data: bytes
    def __init__(self, document: _Optional[_Union[Document, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Document(_message.Message):
    __slots__ = ("filename", "attributes")
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    filename: str
    attributes: _struct_pb2.Struct
    def __init__(self, filename: _Optional[str] = ..., attributes: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class IngestResponse(_message.Message):
    __slots__ = ("documents",)
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    documents: _containers.RepeatedCompositeFieldContainer[StoredDocument]
    def __init__(self, documents: _Optional[_Iterable[_Union[StoredDocument, _Mapping]]] = ...) -> None: ...

class StoredDocument(_message.Message):
    __slots__ = ("file_id", "filename", "state", "bytes")
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    FILENAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    file_id: str
    filename: str
    state: DocumentState
    bytes: int
    def __init__(self, file_id: _Optional[str] = ..., filename: _Optional[str] = ..., state: _Optional[_Union[DocumentState, str]] = ..., bytes: _Optional[int] = ...) -> None: ...
