"""Another snapshot under load: no question fails, none is answered from two, and memory stays what it was."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OKPKey
from program_process import Starter
from rag_server import body, content_part, store_snapshot

from tailhold_api.codec import dump
from tailhold_server.backends import Opening, searcher
from tailhold_server.content import Contents
from tailhold_server.snapshots import snapshot_folder
from tailhold_server.snapshots.tombstones import add_tombstone
from tailhold_server.testing import StandInDocument, StandInEncoder

KEY = OKPKey.generate_key("Ed25519")
CHUNKS = 3000
MEBIBYTE = 1 << 20


def documents(name: str) -> list[StandInDocument]:
    """Each title says the snapshot's name."""
    return [StandInDocument(f"{name}-{n}", f"{name} office hours are noted on page {n}.") for n in range(CHUNKS)]


def anonymous_bytes(process: int | str = "self") -> int:
    """Memory that nothing can take back."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@dataclass
class Answered:
    status: int
    revision: str
    titles: Sequence[str]


async def ask(client: httpx.AsyncClient, url: str) -> Answered:
    answer = await client.post(f"{url}/v1/chat/completions", json=body("office hours?"))
    said = answer.json()
    titles = [each["title"] for each in said.get("tailhold", {}).get("sources", [])]
    return Answered(answer.status_code, answer.headers.get("x-tailhold-revision", ""), titles)


async def put(client: httpx.AsyncClient, url: str, snapshot: str) -> httpx.Response:
    claims = {"aud": "team/docs", "exp": int(time.time()) + 60}
    token = jwt.encode({"alg": "Ed25519"}, claims, KEY, algorithms=["Ed25519"])
    headers = {"authorization": f"Bearer {token}"}
    return await client.put(f"{url}/internal/content", content=dump(content_part(snapshot)), headers=headers)


async def ask_meanwhile(
    client: httpx.AsyncClient, url: str, per_second: float, done: asyncio.Event, asked: "list[asyncio.Task[Answered]]"
) -> list[Any]:
    """Open loop: the next question does not wait for the last answer; at most 200 are under way."""
    while not done.is_set():
        if sum(not each.done() for each in asked) < 200:
            asked.append(asyncio.ensure_future(ask(client, url)))
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 1 / per_second)
    return list(await asyncio.gather(*asked, return_exceptions=True))


@pytest.mark.parametrize("swaps", [12, pytest.param(200, marks=pytest.mark.long)])
async def test_snapshots_are_swapped_under_load(start_stand_in: Starter, tmp_path: Path, swaps: int) -> None:
    store = tmp_path / "claims" / "snapshots"
    of = {store_snapshot(store, documents(name)): name for name in ("A", "B", "C")}
    key = tmp_path / "operator.pub.json"
    key.write_text(json.dumps(KEY.as_dict(private=False)))
    program = start_stand_in(
        TAILHOLD_PUBLIC_KEY=str(key), TAILHOLD_PIPELINE="team/docs", TAILHOLD_DELETION_SECONDS="0.2"
    )
    revisions: dict[str, str] = {}
    held: list[int] = []
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=httpx.Limits(max_connections=250)) as client:

        async def swap(snapshot: str) -> None:
            taken = await put(client, program.internal_url, snapshot)
            assert taken.status_code == 200, taken.text
            tuning = (await client.get(f"{program.internal_url}/v1/tuning")).json()
            assert tuning["snapshot"] == snapshot
            assert tuning["index"] == {
                "snapshot": snapshot, "kind": "Flat", "chunks": CHUNKS, "recallAt10": 1.0, "deletedDocuments": 0
            }  # fmt: skip
            assert len(tuning["snapshotsHeld"]) == 2
            revisions[tuning["revision"]] = of[snapshot]
            held.append(anonymous_bytes(program.process.pid))

        await swap(next(iter(of)))
        done = asyncio.Event()
        asked: list[asyncio.Task[Answered]] = []
        asking = asyncio.ensure_future(ask_meanwhile(client, program.url, 40, done, asked))
        for turn in range(swaps):
            await swap(list(of)[(turn + 1) % 3])  # each has to be read: the one before the last is gone
            while len(asked) < 3 * turn:  # noqa: ASYNC110  a test has a time limit
                await asyncio.sleep(0.01)
        done.set()
        answers = await asking

        last = list(of)[swaps % 3]
        add_tombstone(store, "notes", f"{of[last]}-7.html", at=time.time())
        while (await client.get(f"{program.internal_url}/v1/tuning")).json()["index"]["deletedDocuments"] != 1:  # noqa: ASYNC110  a test has a time limit
            await asyncio.sleep(0.05)

    assert len(answers) >= 3 * (swaps - 1)
    assert not [each for each in answers if isinstance(each, BaseException)]
    assert {each.status for each in answers} == {200}
    assert len({each.revision for each in answers}) > 1
    for each in answers:
        assert each.titles
        assert {title.partition("-")[0] for title in each.titles} == {revisions[each.revision]}
    warm = held[len(held) // 3]
    assert held[-1] - warm < 24 * MEBIBYTE, [each // MEBIBYTE for each in held]


def test_memory_of_the_exact_search_is_given_back(tmp_path: Path) -> None:
    """Three snapshots in turns: two are held, whatever came before."""
    names = [store_snapshot(tmp_path, documents(name)) for name in ("A", "B", "C")]
    contents = Contents(Opening(partial(snapshot_folder, tmp_path), searcher), StandInEncoder(64, fingerprint=""))
    held = []
    for turn in range(18):
        contents.put(contents.load(content_part(names[turn % 3])))
        held.append(anonymous_bytes())
    assert max(held[9:]) - held[6] < 8 * MEBIBYTE, [each // MEBIBYTE for each in held]
