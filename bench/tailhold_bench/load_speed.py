"""What a request costs the generator, beside other clients: `python -m tailhold_bench.load_speed --help`.

All send the same streamed chat completions to the same trivial server, 64 at a time, from one process; CPU time of that
process is counted. Requests a second for a core is what one process could send at most; a load that is to be believed
stays below seven tenths of it.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import httpx

from tailhold_bench.load.addresses import endpoint
from tailhold_bench.load.openai_http import HttpSettings, HttpTarget
from tailhold_bench.load.questions import Asked
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.waiting import punctual_loop
from tailhold_bench.load_truth import stand_in

_AT_A_TIME = 64
Ask = Callable[[], Awaitable[None]]


async def _cost(ask: Ask, requests: int) -> float:
    """CPU seconds for each request."""

    async def client(count: int) -> None:
        for _ in range(count):
            await ask()

    await client(5)
    began = time.process_time()
    await asyncio.gather(*(client(requests // _AT_A_TIME) for _ in range(_AT_A_TIME)))
    return (time.process_time() - began) / (requests // _AT_A_TIME * _AT_A_TIME)


async def _ours(url: str, requests: int) -> float:
    target = HttpTarget(HttpSettings(endpoint(url, is_own=False)))
    loop = asyncio.get_running_loop()

    async def ask() -> None:
        sample = Sample(0, 0.0, 16)
        async with asyncio.timeout(60):
            await target.ask(Asked("How do I add a user to a group?", 16), sample, loop.time)
        assert sample.outcome is Outcome.OK, sample.detail  # noqa: S101  a bench of failures is none

    cost = await _cost(ask, requests)
    await target.close()
    return cost


async def _httpx(url: str, requests: int) -> float:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:

        async def ask() -> None:
            async with client.stream("POST", f"{url}/chat/completions", json=_BODY) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        json.loads(line[6:])

        return await _cost(ask, requests)


async def _aiohttp(url: str, requests: int) -> float:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask() -> None:
            async with session.post(f"{url}/chat/completions", json=_BODY) as response:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        json.loads(line[6:])

        return await _cost(ask, requests)


_BODY = {"messages": [{"role": "user", "content": "How do I add a user to a group?"}], "stream": True, "max_tokens": 16}
_CLIENTS = {"tailhold load": _ours, "aiohttp": _aiohttp, "httpx": _httpx}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=6400, help="for each client and length (default: %(default)s)")
    args = parser.parse_args()
    print("| client | events in an answer | CPU us a request | requests a second for a core | to ours |")
    print("|---|---|---|---|---|")
    for tokens in (1, 16, 128):
        with stand_in("--tokens", str(tokens)) as url:
            ours = 0.0
            for name, client in _CLIENTS.items():
                with asyncio.Runner(loop_factory=punctual_loop) as runner:
                    cost = runner.run(client(url, args.requests))
                ours = ours or cost
                print(f"| {name} | {tokens} | {1e6 * cost:.0f} | {1 / cost:.0f} | {cost / ours:.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
