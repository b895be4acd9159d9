"""The capacity that a server predicts beside the throughput that it reaches when it is saturated, with the real vLLM.

Twice: from the calibration of the start alone, for the shape of requests that is then sent, and from what the server
learned while it was under that load. Closed loop: as many clients as may run, each asking anew when it is answered.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tailhold_bench.demo_server import Served, prepare, serving
from tailhold_server.capacity import Limits, Rates, Shape, capacity


def main() -> None:
    """Print predictions, the measurement and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of load, after ten to get going")
    parser.add_argument("--running", type=int, default=8, help="requests at once")
    parser.add_argument("--words", type=int, default=60, help="of a question, none of them like another's")
    parser.add_argument("--answer", type=int, default=24, help="most tokens of an answer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), engine={"maxRunningRequests": arguments.running})
        with serving(Path(folder)) as served:
            _report(served, arguments)


def _report(served: Served, arguments: argparse.Namespace) -> None:
    before = served.tuning()
    load = _Load(served, arguments.words, arguments.answer)
    with ThreadPoolExecutor(arguments.running) as pool:
        clients = [pool.submit(load.ask, number) for number in range(arguments.running)]
        time.sleep(10)
        answered, began = load.answered, time.monotonic()
        time.sleep(arguments.seconds)
        measured = (load.answered - answered) / (time.monotonic() - began)
        busy = os.getloadavg()[0]
        load.stop.set()
        for client in clients:
            client.result()
    after = served.tuning()
    _print(before, after, measured, busy)


def _print(before: Mapping[str, Any], after: Mapping[str, Any], measured: float, busy: float) -> None:
    asked = after["rates"]["requests"]
    shape = Shape(asked["promptTokens"], asked["computedPromptTokens"], asked["answerTokens"], answers=asked["seen"])
    limits = Limits(before["engine"]["maxRunningRequests"])
    first = capacity(_rates(before["rates"]), shape, limits)
    learned = after["rates"]["capacity"]["requestsPerSecond"]
    print(f"requests: {asked}; load of the machine {busy:.1f} on {os.cpu_count()} cores")
    for name, told in (("calibrated", before["rates"]), ("learned", after["rates"])):
        curve = told["decodeTokensPerSecondByStreams"]
        print(f"{name}: prefill {told['prefillTokensPerSecond']} tokens/s, decode by streams {curve}")
    print(f"measured at saturation: {measured:.2f} requests/s")
    if first:
        ratio = first.requests_per_second / measured
        print(f"predicted from the calibration: {first.requests_per_second:.2f} requests/s, ratio {ratio:.2f}")
    print(f"predicted from what was learned: {learned:.2f} requests/s, ratio {learned / measured:.2f}")


def _rates(told: Mapping[str, Any]) -> Rates:
    curve = tuple(sorted((int(streams), rate) for streams, rate in told["decodeTokensPerSecondByStreams"].items()))
    return Rates(told["prefillTokensPerSecond"], told["decodeTokensPerSecondPerStream"], curve)


class _Load:
    def __init__(self, served: Served, words: int, answer_tokens: int) -> None:
        self._url = f"{served.url}/v1/chat/completions"
        self._words = words
        self._answer_tokens = answer_tokens
        self._lock = threading.Lock()
        self.answered = 0
        self.stop = threading.Event()

    def ask(self, client: int) -> None:
        """Until it is told to stop."""
        count = 0
        with httpx.Client(timeout=300, trust_env=False) as session:
            while not self.stop.is_set():
                count += 1
                text = " ".join(f"{client}x{count}y{word}" for word in range(self._words))
                sent = {"messages": [{"role": "user", "content": text}], "max_tokens": self._answer_tokens}
                session.post(self._url, json=sent).raise_for_status()
                with self._lock:
                    self.answered += 1


if __name__ == "__main__":
    main()
