"""What a search is told comes from the content in force: a push changes it, and nothing is loaded anew."""

import numpy as np
import pytest
from numpy.typing import NDArray
from rag_server import DOCUMENTS, SNAPSHOT, content_part, running

from tailhold_api.index_kinds import BY_DEFAULT, SearchParameters
from tailhold_api.parts import ContentPart
from tailhold_server.content import Content, Contents, Index
from tailhold_server.retriever import Lookup, Retriever
from tailhold_server.testing import StandInEncoder, StandInSearcher, stand_in_index

MORE = SearchParameters(ef_search=200)


class Recording(StandInSearcher):
    """Remembers what it was told."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        super().__init__(vectors)
        self.told: list[tuple[int, SearchParameters]] = []

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        parameters: SearchParameters = BY_DEFAULT,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        self.told.append((len(vectors), parameters))
        return super().search(vectors, k, parameters, allowed=allowed)


@pytest.fixture
def recorded() -> tuple[Index, Recording]:
    """An index whose searches are remembered."""
    plain = stand_in_index(DOCUMENTS, SNAPSHOT)
    searcher = Recording(StandInEncoder().encode([each.text for each in DOCUMENTS]))
    return Index(SNAPSHOT, plain.chunks, searcher, plain.metric, plain.dimension, plain.fingerprint), searcher


def searching(parameters: SearchParameters) -> ContentPart:
    return content_part().model_copy(update={"search": parameters})


def test_questions_of_one_batch_are_searched_as_their_own_content_says(recorded: tuple[Index, Recording]) -> None:
    index, searcher = recorded
    old, new = (Content(searching(told), index) for told in (BY_DEFAULT, MORE))
    lookups = [Lookup("when", content) for content in (old, new, old)]
    found = Retriever(StandInEncoder(), "").work(lookups)
    assert sorted(searcher.told, key=lambda each: each[0]) == [(1, MORE), (2, BY_DEFAULT)]
    assert [[each.index for each in one.passages] for one in found] == [[0, 1]] * 3


def test_new_parameters_open_no_snapshot(recorded: tuple[Index, Recording]) -> None:
    opened: list[str] = []

    def open_(snapshot: str) -> Index:
        opened.append(snapshot)
        return recorded[0]

    contents = Contents(open_, StandInEncoder())
    contents.put(contents.load(searching(BY_DEFAULT)))
    after = contents.load(searching(MORE))
    assert opened == [SNAPSHOT]
    assert after.index is contents.current.index
    assert after.digest != contents.current.digest


async def test_a_push_reaches_the_next_question(recorded: tuple[Index, Recording]) -> None:
    index, searcher = recorded
    async with running(content=searching(BY_DEFAULT)) as server:
        server.service.put_content(Content(searching(BY_DEFAULT), index, "0" * 64))
        await server.ask()
        server.service.put_content(server.service.contents.load(searching(MORE)))
        await server.ask()
        tuning = (await server.internal.get("/v1/tuning")).json()
    assert [told for _, told in searcher.told] == [BY_DEFAULT, MORE]
    assert tuning["content"]["search"]["efSearch"] == 200
