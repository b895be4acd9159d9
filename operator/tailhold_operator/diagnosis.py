"""Why pods do not answer yet: one reason out of what scheduler, kubelet and the pods themselves say."""

from collections.abc import Mapping, Sequence

from tailhold_api.conditions import Reason
from tailhold_operator.findings import Finding, advised, reason_of, stuck, waiting
from tailhold_operator.observe import HOPELESS, Deployment, Pod, Report
from tailhold_operator.progress import words

_LOOPING = 3
_NO_VICTIMS = "No preemption victims found"
_NO_HELP = "Preemption is not helpful"
_STARTED = ("serving", "draining")
"""What a server says once its start is over."""
_NOT_ITS_DOING = ("Unknown", "ContainerStatusUnknown", Reason.SOURCE_UNREACHABLE)
"""Why a container ended: its node started anew, or what it fetches cannot be had for now."""


def diagnose(pods: Sequence[Pod], deployment: Deployment | None, reports: Mapping[str, Report], gpu: str) -> Finding:
    """The most telling trouble of pods that are not all ready."""
    idle = [pod for pod in pods if not pod.ready and not pod.terminating]
    for look in (_ended, _image, _unschedulable, _rejected):
        found = look(idle, gpu, reports)
        if found:
            return found
    if deployment and deployment.trouble:
        return stuck(Reason.POD_REFUSED, deployment.trouble)
    return _starting(idle, reports)


def lacks_room(pod: Pod) -> bool:
    """Whether a node would take it if other pods went.

    The scheduler says so in what it tells of preemption: it finds no victims, pods of ours being as important, where
    room could be made, and calls preemption no help where the node could not hold the pod even when it is empty.
    """
    words = pod.unschedulable
    full = "Insufficient" in words or "Too many pods" in words
    return full and (_NO_VICTIMS in words or _NO_HELP not in words)


def broken(pods: Sequence[Pod], reports: Mapping[str, Report]) -> Finding | None:
    """Of pods that ran and fail by their own doing: their container ended, or they say that their start is over and are
    not ready any more. A pod that says nothing may be on a node that went away, and one that has just started is ready
    once kubelet has looked."""
    idle = [pod for pod in pods if not pod.ready and not pod.terminating]
    ended = next((pod for pod in idle if _fails(pod, reports) and not _was_ended(pod)), None)
    if ended and ended.ending:
        ending = ended.ending
        text = f"pod {ended.name} ended with exit code {ending.exit_code}: {ending.message or ending.reason}"
        return stuck(reason_of(ending.reason, Reason.CRASH_LOOP), text)
    for pod in idle:
        report = reports.get(pod.name)
        if report and report.phase in _STARTED and (report.error or pod.was_ready):
            return stuck(Reason.NOT_READY, f"pod {pod.name} does not answer any more: {report.error or report.phase}")
    return None


def _was_ended(pod: Pod) -> bool:
    """Whether something else than its own program ended it, or it only waits for what it fetches."""
    return pod.ending is not None and pod.ending.reason in _NOT_ITS_DOING


def _ended(pods: Sequence[Pod], gpu: str, reports: Mapping[str, Report]) -> Finding | None:
    ended = [pod for pod in pods if _fails(pod, reports)]
    if not ended:
        return None
    worst = max(ended, key=lambda pod: pod.restarts)
    ending = worst.ending
    assert ending is not None  # noqa: S101 - filtered above
    text = f"pod {worst.name} ended with exit code {ending.exit_code}: {ending.message or ending.reason}"
    if ending.exit_code == HOPELESS:
        return stuck(reason_of(ending.reason, Reason.START_FAILED), text)
    if ending.reason == Reason.SOURCE_UNREACHABLE:
        # Nothing of the revision is wrong: it gets until its deadline, and goes on where it stopped.
        return waiting(Reason.SOURCE_UNREACHABLE, text)
    if worst.waiting == "CrashLoopBackOff" or worst.restarts >= _LOOPING:
        reason = reason_of(ending.reason, Reason.CRASH_LOOP)
        return stuck(reason, f"{text}; started {worst.restarts + 1} times")
    return waiting(reason_of(ending.reason, Reason.START_FAILED), text)


def _fails(pod: Pod, reports: Mapping[str, Report]) -> bool:
    """Whether its last end still matters: not that of a pod which started well since, nor one that was asked for."""
    if pod.ending is None or not (pod.waiting or pod.ending.exit_code):
        return False
    report = reports.get(pod.name)
    return not (report and report.phase in _STARTED)


def _image(pods: Sequence[Pod], gpu: str, reports: Mapping[str, Report]) -> Finding | None:
    for pod in pods:
        if pod.has_image_trouble or pod.has_container_trouble:
            return waiting(Reason.WAITING_FOR_PODS, f"pod {pod.name}: {pod.waiting}: {advised(pod.waiting_message)}")
    return None


def _unschedulable(pods: Sequence[Pod], gpu: str, reports: Mapping[str, Report]) -> Finding | None:
    left = [pod for pod in pods if pod.unschedulable]
    if not left:
        return None
    words = left[0].unschedulable
    reason = Reason.INSUFFICIENT_GPU if f"Insufficient {gpu}" in words else Reason.UNSCHEDULABLE
    never = "; no node could hold it, even if nothing else ran there" if _never_fits(words) else ""
    return waiting(reason, f"{len(left)} of {len(pods)} pods that are not ready have no node: {advised(words)}{never}")


def _never_fits(words: str) -> bool:
    return "Insufficient" in words and _NO_HELP in words and _NO_VICTIMS not in words


def _rejected(pods: Sequence[Pod], gpu: str, reports: Mapping[str, Report]) -> Finding | None:
    refused = [pod for pod in pods if pod.refused]
    if not refused:
        return None
    nodes = ", ".join(sorted({pod.node for pod in refused}))
    text = f"{len(refused)} pods were not admitted on {nodes}: {refused[-1].refused}"
    return waiting(Reason.POD_REFUSED, text)


def _starting(pods: Sequence[Pod], reports: Mapping[str, Report]) -> Finding:
    if not pods:
        return waiting(Reason.WAITING_FOR_PODS, "the pods are being created")
    running = [pod for pod in pods if pod.phase == "Running"]
    if not running:
        warning = next(
            (f": pod {pod.name}: {advised(pod.warning)}" for pod in pods if pod.is_held_up and pod.warning), ""
        )
        return waiting(Reason.WAITING_FOR_PODS, f"{len(pods)} pods wait for their containers{warning}")
    fetching = next((pod for pod in running if pod.name in reports and reports[pod.name].progress), None)
    if fetching and (progress := reports[fetching.name].progress):
        return waiting(Reason.LOADING_MODEL, f"pod {fetching.name}: {words(progress)}")
    report = next((reports[pod.name] for pod in running if pod.name in reports), None)
    if report and report.error:
        return waiting(Reason.NOT_READY, f"pod {running[0].name}: {report.error}")
    if report and report.phase in _STARTED:
        return waiting(Reason.NOT_READY, f"pod {running[0].name} has started and does not answer")
    if report and report.phase:
        return waiting(Reason.LOADING_MODEL, f"pod {running[0].name}: {report.phase}")
    return waiting(Reason.LOADING_MODEL, f"{len(running)} pods are starting")
