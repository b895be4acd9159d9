"""What a handover decides, without a socket."""

import json
import random
import ssl
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tailhold_api import codec
from tailhold_api.handover import EXPIRES_SECONDS, MOST_CANDIDATES, Candidate, Handover
from tailhold_server import sse
from tailhold_server.handover.carrier import Carrier
from tailhold_server.handover.events import News, cut, news
from tailhold_server.handover.handovers import Handovers
from tailhold_server.handover.listening import Listening
from tailhold_server.handover.outcomes import Outcome
from tailhold_server.handover.peers import FAILURES, SHUT_SECONDS, Peer, Peers
from tailhold_server.handover.split import Split
from tailhold_server.handover.told import Told, read_told
from tailhold_server.handover.wire import OURS, Sent, answer_headers, is_request_id, request_headers
from tailhold_server.stages import Marks

REVISION = "c" * 10 + "-" + "d" * 10
WEIGHTS = st.floats(0, 100) | st.integers(0, 100) | st.sampled_from([0.1, 1, 33.3, 50, 66.7, 99.9, 100])


class TestSplit:
    @given(st.lists(WEIGHTS, max_size=400), st.randoms(use_true_random=False))
    def test_after_any_number_of_requests_the_share_is_within_one_of_the_weight(
        self, weights: list[float], chance: random.Random
    ) -> None:
        """C33: whatever the weights, in any order, and however chance falls."""
        split = Split(chance.randrange)
        handed = accumulate(split.takes(each) for each in weights)
        wanted = accumulate(round(each * 1e6) / 1e8 for each in weights)
        assert all(abs(have - want) < 1 + 1e-9 for have, want in zip(handed, wanted, strict=True))

    @given(st.integers(1, 300))
    def test_nothing_is_nothing_and_all_is_all(self, requests: int) -> None:
        split = Split()
        assert not any(split.takes(0) for _ in range(requests))
        assert all(split.takes(100) for _ in range(requests))
        assert not any(split.takes(0) for _ in range(requests))

    @pytest.mark.parametrize("weight", [10, 25, 50])
    def test_clients_that_take_turns_send_both_kinds_to_both_sides(self, weight: float) -> None:
        """C52: each n-th request would be one client's."""
        split, turns = Split(random.Random(1).randrange), round(100 / weight)  # noqa: S311
        handed = [at % turns for at in range(40_000) if split.takes(weight)]
        shares = [handed.count(each) / len(handed) for each in range(turns)]
        assert max(shares) < 1.5 / turns


class TestPeers:
    @staticmethod
    def peers(count: int) -> Peers:
        peers = Peers()
        peers.keep([Candidate(pod=f"p{at}", ip=f"10.0.0.{at}") for at in range(count)])
        return peers

    @given(st.integers(1, 5), st.lists(st.integers(0, 6), max_size=60))
    def test_the_one_with_the_fewest_in_flight_is_chosen(self, count: int, ends: list[int]) -> None:
        peers = self.peers(count)
        open_: list[Peer] = []
        for end in ends:
            chosen = peers.choose(0)
            assert chosen is not None
            known = list(peers._peers.values())
            assert chosen.in_flight == min(each.in_flight for each in known)
            chosen.in_flight += 1
            open_.append(chosen)
            if end < len(open_):
                open_.pop(end).in_flight -= 1

    def test_equal_ones_take_turns(self) -> None:
        peers = self.peers(3)
        chosen = [peers.choose(0) for _ in range(6)]
        assert [each.candidate.pod for each in chosen if each] == ["p0", "p1", "p2"] * 2

    def test_one_that_failed_often_is_tried_once_a_second(self) -> None:
        peers = self.peers(1)
        peer = peers.choose(0)
        assert peer is not None
        for _ in range(FAILURES):
            assert peers.choose(0) is peer
            peer.failed(0)
        assert peers.choose(SHUT_SECONDS / 2) is None
        assert peers.choose(SHUT_SECONDS) is peer
        assert peers.choose(SHUT_SECONDS) is None, "one try"
        peer.failed(SHUT_SECONDS)
        assert peers.choose(1.5 * SHUT_SECONDS) is None
        assert peers.choose(2 * SHUT_SECONDS) is peer
        peer.succeeded()
        assert peers.choose(2 * SHUT_SECONDS) is peer

    def test_those_that_stay_keep_what_is_known_of_them(self) -> None:
        peers = self.peers(2)
        first = peers.choose(0)
        assert first is not None
        first.in_flight += 1
        first.failed(0)
        peers.keep([first.candidate])
        again = peers.choose(0)
        assert again is first
        assert (again.in_flight, again.failures) == (1, 1)


def handover(weight: float = 100, candidates: int = 1) -> Handover:
    found = tuple(Candidate(pod=f"p{at}", ip=f"10.0.0.{at}") for at in range(candidates))
    return Handover(weight_percent=weight, revision=REVISION, candidates=found, token="secret-token")


class TestExpiry:
    def handovers(self) -> tuple[Handovers, list[float], list[Outcome]]:
        now, counted = [0.0], list[Outcome]()
        return Handovers(counted.append, Carrier(ssl.create_default_context), lambda: now[0]), now, counted

    def test_a_dead_operator_means_the_stable_side_alone(self) -> None:
        found, now, _ = self.handovers()
        assert found.turn() is None
        found.put(handover())
        now[0] = EXPIRES_SECONDS - 0.001
        assert found.turn() is not None
        found.put(handover())
        now[0] += EXPIRES_SECONDS - 0.001
        assert found.turn() is not None
        now[0] += 0.001
        assert found.turn() is None
        assert found.in_force is None
        assert found.body() is None

    @pytest.mark.parametrize("over", [handover(0), handover(candidates=0)], ids=["weight 0", "no candidates"])
    def test_it_is_over_at_once_when_the_operator_says_so(self, over: Handover) -> None:
        found, _, _ = self.handovers()
        found.put(handover())
        found.put(over)
        assert found.turn() is None
        assert found.body() is None

    def test_what_is_in_force_is_told_without_the_token(self) -> None:
        found, now, _ = self.handovers()
        found.put(handover(12.5))
        now[0] = 4
        body = found.body()
        assert body is not None
        assert (body["revision"], body["weightPercent"], body["expiresInSeconds"]) == (REVISION, 12.5, 6)
        assert body["candidates"] == [{"pod": "p0", "ip": "10.0.0.0", "port": 8002, "serverName": ""}]
        assert "secret" not in json.dumps(body)
        assert "secret" not in repr(handover())

    def test_where_all_are_left_alone_nothing_is_tried(self) -> None:
        found, _, counted = self.handovers()
        found.put(handover())
        for _ in range(FAILURES):
            turn = found.turn()
            assert turn is not None
            with turn:
                assert found.in_flight == 1
                turn.outcome = Outcome.FAILED
        assert found.turn() is None
        assert counted == [Outcome.FAILED] * FAILURES + [Outcome.AVOIDED]
        assert found.in_flight == 0

    @pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.GIVEN_UP])
    def test_what_may_be_the_clients_fault_leaves_a_candidate_as_it_was(self, outcome: Outcome) -> None:
        found, _, _ = self.handovers()
        found.put(handover())
        for _ in range(2 * FAILURES):
            turn = found.turn()
            assert turn is not None
            with turn:
                turn.outcome = outcome


@pytest.mark.parametrize(
    "wrong",
    [
        {"weightPercent": 100.1},
        {"weightPercent": -1},
        {"weightPercent": "10"},
        {"revision": "x y"},
        {"candidates": [{"pod": "p", "ip": "evil.example.com"}]},
        {"candidates": [{"pod": "p", "ip": "10.0.0.1", "port": 0}]},
        {"candidates": [{"pod": "p", "ip": "10.0.0.1", "serverName": "a/b"}]},
        {"candidates": [{"pod": "p", "ip": "10.0.0.1"}] * (MOST_CANDIDATES + 1)},
        {"patienceMilliseconds": 1},
        {"other": 1},
    ],
    ids=str,
)
def test_a_handover_that_says_nonsense_is_refused(wrong: dict[str, object]) -> None:
    right = json.loads(codec.dump(handover(50)))
    assert codec.load(Handover, json.dumps(right)) == handover(50)
    with pytest.raises(ValidationError):
        codec.load(Handover, json.dumps(right | wrong))


EVENT = st.sampled_from([sse.event({"a": "b\n\n"}), sse.COMMENT, sse.DONE, sse.event({"text": 'data: {"error":'})])


@given(st.lists(EVENT, max_size=6).map(b"".join), st.lists(st.integers(1, 60)))
def test_a_stream_in_any_pieces_is_the_same_events(stream: bytes, sizes: list[int]) -> None:
    passed, rest, at = [], b"", 0
    for size in [*sizes, len(stream)]:
        whole, rest = cut(rest + stream[at : at + size])
        assert not whole or whole.endswith(b"\n\n")
        passed.append(whole)
        at += size
    assert b"".join(passed) == stream
    assert rest == b""


ROLE, WORD, ERROR = sse.event({"id": 1}), sse.event({"id": 2}), sse.event({"error": {"message": "no"}})


@pytest.mark.parametrize(
    ("beginning", "told"),
    [
        (b"", News.NOTHING),
        (ROLE, News.NOTHING),
        (ROLE + sse.COMMENT, News.ALIVE),
        (ROLE + WORD, News.TOKEN),
        (ROLE + sse.COMMENT + WORD, News.TOKEN),
        (ROLE + ERROR + sse.DONE, News.ERROR),
        (ROLE + sse.COMMENT + ERROR, News.ERROR),
        (sse.event({"text": 'an \n\ndata: {"error":'}), News.NOTHING),
    ],
)
def test_what_the_beginning_of_a_stream_tells(beginning: bytes, told: News) -> None:
    assert news(beginning) is told


def test_a_stream_is_marked_as_the_pods_own_answers_are() -> None:
    now, marks = [0.0], Marks(0.0)
    listening = Listening(marks, lambda: now[0])

    def arrives(at: float, events: bytes, taken: float | None = None) -> None:
        now[0] = at
        listening.arrived(events)
        now[0] = at if taken is None else taken
        listening.taken()

    arrives(1, ROLE)
    assert marks.first_token is None
    arrives(2, WORD)
    assert (marks.first_token, marks.awaited) == (2, 2)
    arrives(2.5, WORD, taken=9)
    assert marks.longest_gap == 0.5, "a client that lags behind stretches nothing"
    arrives(10, sse.COMMENT)
    assert marks.awaited == 9, "a sign of life is no token"
    arrives(11, WORD)
    assert marks.longest_gap == 2
    now[0] = 12
    listening.ended()
    assert (marks.finished, marks.awaited) == (12, None)


SENT = Sent(
    b"/v1/chat/completions",
    b"",
    (
        (b"host", b"docs.example.com"),
        (b"authorization", b"Bearer key"),
        (b"traceparent", b"00-old"),
        (b"tracestate", b"a=b"),
        (b"x-request-id", b"mine"),
        (b"connection", b"keep-alive, X-Hop"),
        (b"x-hop", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"5"),
        (OURS, b"forged"),
        (OURS + b"-request", b"chatcmpl-forged"),
        (OURS + b"-other", b"1"),
        (b"x-word", "grüße".encode()),
        (b"x-bytes", b"\xff"),
    ),
    b"{}",
)


def test_the_candidate_gets_the_clients_own_request_and_our_proof() -> None:
    given = request_headers(SENT, "token", "chatcmpl-1", REVISION, ((b"traceparent", b"00-new"),))
    assert sorted(given) == sorted(
        [
            ("host", "docs.example.com"),
            ("authorization", "Bearer key"),
            ("traceparent", "00-new"),
            ("x-request-id", "mine"),
            ("x-tailhold-handover", "token"),
            ("x-tailhold-handover-request", "chatcmpl-1"),
            ("x-tailhold-handover-revision", REVISION),
            ("x-word", "grüße"),
        ]
    )
    untraced = dict(request_headers(SENT, "token", "chatcmpl-1", REVISION, ()))
    assert (untraced["traceparent"], untraced["tracestate"]) == ("00-old", "a=b")


def test_the_client_gets_nothing_that_is_between_pods() -> None:
    given = (
        (b"Content-Type", b"application/json"),
        (b"X-Tailhold-Handover-Told", b"{}"),
        (b"X-Tailhold-Revision", REVISION.encode()),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"close"),
        (b"Date", b"today"),
    )
    kept = [(b"content-type", b"application/json"), (b"x-tailhold-revision", REVISION.encode())]
    assert answer_headers(given) == kept


@pytest.mark.parametrize("text", [b"", b"chatcmpl-1", b"chatcmpl-" + b"g" * 32, b"a b-" + b"0" * 32])
def test_an_id_is_one_of_ours(text: bytes) -> None:
    assert is_request_id(b"chatcmpl-" + b"0" * 32)
    assert not is_request_id(text)


TOLD = st.builds(
    Told, outcome=st.sampled_from(["", "ok", "failed"]), gap=st.floats(0, 1e6), used=st.integers(0, 1 << 40)
)


@given(TOLD)
def test_what_is_told_is_read_again(told: Told) -> None:
    assert read_told(told.header()) == told
    assert told.line().endswith(b"}\n")
    assert b"\n" not in told.header()


@given(st.binary(max_size=40) | st.sampled_from([b'{"gap": NaN}', b'{"found": -1}', b'{"used": "1"}', b"[]"]))
def test_nonsense_tells_nothing_and_raises_nothing(text: bytes) -> None:
    read_told(text)
