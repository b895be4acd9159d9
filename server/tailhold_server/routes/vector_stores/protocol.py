"""Requests to a vector store, as values."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator
from pydantic_core import PydanticCustomError

from tailhold_server.errors import invalid
from tailhold_server.handlers.documents import Attributes
from tailhold_server.handlers.filters import Comparing, Comparison, Filter, Junction
from tailhold_server.handlers.store import MOST_IN_BATCH
from tailhold_server.routes.fields import ATTACH, BATCH, SEARCH, Fields
from tailhold_server.routes.reading import COMPARISON, JUNCTION, ONE, SEVERAL, Said, Wire

MOST_QUERIES = 32
MOST_DEPTH = 8
MOST_TEXT = 512
MOST_VALUES = 1000
_Text = Annotated[str, Field(max_length=MOST_TEXT)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_SCALAR = f"a finite number, true or false, or a text of at most {MOST_TEXT} characters"
_Scalar = Annotated[bool | _Number | _Text, Said(f"give {_SCALAR}")]
_Key = Annotated[str, StringConstraints(min_length=1, max_length=64)]
_Attributes = Annotated[dict[_Key, _Scalar], Field(max_length=16)]
_Value = Annotated[
    Annotated[_Scalar, Tag(ONE)] | Annotated[list[_Scalar], Field(max_length=MOST_VALUES), Tag(SEVERAL)],
    Discriminator(lambda given: SEVERAL if isinstance(given, list) else ONE),
]


class WireComparison(Wire):
    """One attribute against a value."""

    key: _Key
    type: Comparing
    value: _Value

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        if isinstance(self.value, list) != (self.type in (Comparing.IN, Comparing.NIN)):
            raise PydanticCustomError("value", "`value` is a list with `in` and `nin`, and with no other `type`")
        return self


class WireJunction(Wire):
    """All of the filters, or any."""

    type: Literal["and", "or"]
    filters: Annotated[list["WireFilter"], Field(min_length=1, max_length=100)]


def _kind(given: Any) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    return JUNCTION if kind in ("and", "or") else COMPARISON


WireFilter = Annotated[
    Annotated[WireComparison, Tag(COMPARISON)] | Annotated[WireJunction, Tag(JUNCTION)], Discriminator(_kind)
]


class RankingOptions(Wire):
    """How results are ranked."""

    ranker: Literal["auto", "none"] | None = None
    score_threshold: _Number | None = None


class SearchRequest(Wire):
    """A search without an answer."""

    FIELDS: ClassVar[Fields] = SEARCH

    query: str | Annotated[list[str], Field(min_length=1, max_length=MOST_QUERIES)]
    max_num_results: int = Field(10, ge=1, le=50)
    filters: WireFilter | None = None
    ranking_options: RankingOptions | None = None

    @property
    def queries(self) -> list[str]:
        """All of them. Raises ServeError for an empty one."""
        queries = [self.query] if isinstance(self.query, str) else self.query
        for place, text in enumerate(queries):
            if not text.strip():
                raise invalid("`query` is empty", "query" if isinstance(self.query, str) else f"query[{place}]")
        return queries

    @property
    def min_score(self) -> float:
        """Every score passes where nothing is asked."""
        given = self.ranking_options.score_threshold if self.ranking_options else None
        return -1.0 if given is None else given

    @property
    def wanted(self) -> Filter | None:
        """The filter. Raises ServeError where it is nested too deeply."""
        return _filter(self.filters, 1) if self.filters else None


def _filter(given: WireComparison | WireJunction, depth: int) -> Filter:
    if depth > MOST_DEPTH:
        raise invalid(f"`filters` are nested more than {MOST_DEPTH} deep", "filters")
    if isinstance(given, WireJunction):
        return Junction(given.type == "and", tuple(_filter(each, depth + 1) for each in given.filters))
    values = tuple(given.value) if isinstance(given.value, list) else (given.value,)
    return Comparison(given.key, given.type, values)


class AddRequest(Wire):
    """A file that becomes part of the corpus."""

    FIELDS: ClassVar[Fields] = ATTACH

    file_id: str = Field(max_length=200)
    attributes: _Attributes | None = None


class DescribeRequest(Wire):
    """Other attributes of a file."""

    attributes: _Attributes | None


class AddRequestInBatch(AddRequest):
    """One of several."""


class BatchRequest(Wire):
    """Files that become part of the corpus together."""

    FIELDS: ClassVar[Fields] = BATCH

    file_ids: Annotated[list[str], Field(max_length=MOST_IN_BATCH)] | None = None
    files: Annotated[list[AddRequestInBatch], Field(max_length=MOST_IN_BATCH)] | None = None
    attributes: _Attributes | None = None

    @property
    def entries(self) -> list[tuple[str, Attributes]]:
        """Each file with its attributes. Raises ServeError."""
        if (self.file_ids is None) == (self.files is None):
            raise invalid("exactly one of `file_ids` and `files` must be given", "file_ids")
        if self.files is not None:
            return [(each.file_id, each.attributes or {}) for each in self.files]
        return [(each, self.attributes or {}) for each in self.file_ids or ()]
