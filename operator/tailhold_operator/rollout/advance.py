"""One step of a rollout. Every state has a next step, and each says why."""

from dataclasses import replace
from datetime import datetime

from tailhold_operator.conditions import stamp
from tailhold_operator.findings import FINE
from tailhold_operator.history import History
from tailhold_operator.rollout import beside, commands, proving
from tailhold_operator.rollout.room import given_up_on, make_room
from tailhold_operator.rollout.turning import (
    give_up,
    go_back,
    hold,
    old_sides,
    serves_well,
    settled,
    settling,
    sooner,
    switch,
)
from tailhold_operator.rollout.view import Step, View


def advance(view: View, now: datetime) -> Step:
    """One step of a rollout; the first clause that fits holds."""
    view = replace(view, history=commands.retried(view).aimed_at(view.target.name))
    if view.serving in (None, view.part):
        return _settle(view, now)
    if view.history.served(view.serving or "") is None and not (view.stable and view.stable.ready):
        # What never served has nothing to lose, and must not stand in the way. What answers has, even where the
        # history that would say so was lost.
        return _settle(view, now)
    failure = view.history.failed(view.target.name)
    if failure:
        return hold(view, failure)
    view = replace(view, history=view.history.tried(view.target, stamp(now)))
    return beside.advance(view, now) if view.is_judged else _replace(view, now)


def stand_still(serving: str | None, replicas: int, history: History, now: datetime) -> Step:
    """Keep what serves while what is asked for cannot be made yet."""
    alone = {serving: replicas} if serving else {}
    return Step(serving or "", alone, history.tried(None, stamp(now)), FINE)


def _settle(view: View, now: datetime) -> Step:
    """The Service sends to the pods that are asked for: wait for them, then let go of all others."""
    failure = view.history.failed(view.target.name)
    back = go_back(view, failure) if failure else None
    if back:
        return back
    if view.is_judged and not failure:
        return proving.advance(view, now)
    history = _tried(view, now)
    if not failure and serves_well(view):
        history = history.with_serving(view.target, view.rules.history, stamp(now))
    left = settling(view, now)
    outcome = settled(view, failure)
    replicas = {view.part: view.replicas, **(old_sides(view) if left else {})}
    return Step(view.part, replicas, history, outcome, sooner(left, outcome))


def _tried(view: View, now: datetime) -> History:
    """Whatever else was tried ends; what serves is itself a trial until it has answered once."""
    before = view.history.candidate
    if view.history.served(view.part) is None:
        return view.history.tried(view.target, stamp(now))
    if before and before.pod_digest != view.target.pod_digest:
        return view.history.tried(None, stamp(now))
    return view.history


def _replace(view: View, now: datetime) -> Step:
    if view.fresh and view.confirmed >= view.replicas:
        return switch(view, now)
    finding = given_up_on(view, now)
    return give_up(view, finding, now) if finding else make_room(view, now)
