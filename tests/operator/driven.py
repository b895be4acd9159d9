"""A pipeline driven into each situation of the truth table."""

from collections.abc import Callable
from typing import Any

from traffic import OBJECTIVE
from worlds import NAME, NAMESPACE, PROMISED, Stage, spec

from tailhold_api import names
from tailhold_api.status import ProbeStatus
from tailhold_operator.errors import RefusedError
from tailhold_operator.kinds import Manifest, Ref
from tailhold_operator.testing import Fate

OTHER = {"engine": {"blockSizeTokens": 64}}
NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
NO_NODE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
WELL = Fate()
STAYS = {"rollout": {"strategy": "Surge"}}


def ended(reason: str, exit_code: int = 2, restarts: int = 0) -> Fate:
    """A server that wrote why it ended."""
    told = {"reason": reason, "message": "the server's words"}
    return Fate(
        ready=False, waiting="CrashLoopBackOff" if restarts else "", exit_code=exit_code, ending=told, restarts=restarts
    )


def first(fate: Fate = WELL, seconds: float = 30, **changes: Any) -> Stage:
    """A new pipeline whose servers fare so; its index is built."""
    stage = Stage()
    stage.controllers.fate = lambda owner: fate if owner["kind"] == "Deployment" else Fate()
    stage.put(spec(**changes))
    stage.run(seconds=seconds)
    return stage


def serving() -> Stage:
    stage = Stage()
    stage.put(spec())
    stage.settle()
    return stage


def edited(fate: Fate = WELL, seconds: float = 30, **changes: Any) -> Stage:
    """One that serves, and an edit whose pods fare so."""
    stage = serving()
    old = stage.served()
    label = names.LABEL_POD_PART
    stage.controllers.fate = lambda owner: Fate() if owner["metadata"]["labels"].get(label) in (old, None) else fate
    stage.put(spec(**(OTHER | changes)))
    stage.run(seconds=seconds)
    return stage


def job(fate: Fate = WELL, *, builds: bool = True, after: Callable[[], Stage] = Stage) -> Stage:
    """An index Job that fares so, for a new pipeline or for an edit."""
    stage = after()
    stage.controllers.builds = builds
    stage.controllers.fate = lambda owner: fate if names.LABEL_BUILD in owner["metadata"]["labels"] else Fate()
    stage.put(spec(corpus={"sources": [{"name": "handbook", "pvc": {"claimName": "others"}}]}))
    stage.run(seconds=20)
    return stage


def inspected(stage: Stage, fate: Fate = WELL, **found: Any) -> Stage:
    """A pipeline whose inspection Job fares so, or does not end where it finds nothing."""
    stage.controllers.inspects, stage.controllers.found = bool(found), found
    label = names.LABEL_INSPECTION
    stage.controllers.fate = lambda owner: fate if label in owner["metadata"]["labels"] else Fate()
    stage.put(spec(server={"image": "registry.example/tailhold/server:other"}))
    stage.run(seconds=20)
    return stage


TOO_SHORT = {"generator": {"contextTokens": 1024}, "embedder": {"dimension": 384}}


def refused_apply() -> Stage:
    stage = serving()
    apply = stage.cluster.apply

    async def refused(manifest: Manifest, uid: str) -> None:
        if manifest["kind"] == "Deployment" and not uid:
            raise RefusedError("exceeded quota: deployments")
        await apply(manifest, uid)

    stage.cluster.apply = refused  # type: ignore[method-assign]
    stage.put(spec(**OTHER))
    stage.run(seconds=30)
    return stage


def refused_pods() -> Stage:
    stage = serving()
    old = stage.served()
    stage.put(spec(**OTHER, **STAYS))
    stage.step()
    stage.step()
    for each in stage.cluster.of_kind("Deployment"):
        if each["metadata"]["labels"][names.LABEL_POD_PART] != old:
            trouble = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}
            each["status"] = {"conditions": [trouble]}
    stage.step()
    return stage


def taken_name() -> Stage:
    stage = Stage()
    metadata = {"name": NAME, "namespace": NAMESPACE}
    stage.cluster.put({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    stage.put(spec())
    stage.run(seconds=20)
    return stage


def namesake() -> Stage:
    stage = serving()
    old = {ref: each for ref, each in stage.cluster.objects.items() if ref.kind not in ("Pod", names.KIND)}
    stage.cluster.drop(Ref(names.KIND, NAMESPACE, NAME))
    stage.cluster.objects |= old
    stage.put(spec())
    stage.run(seconds=20)
    return stage


def content(*, refuses: bool = False) -> Stage:
    stage = serving()
    if refuses:
        stage.pods.refuses = lambda pod, content: "no room for a second index"
    stage.put(spec(retrieval={"topK": 7}))
    stage.step()
    if refuses:
        stage.run(seconds=20)
    return stage


def engine() -> Stage:
    stage = serving()
    stage.pods.engine = {"blockSizeTokens": 128}
    stage.settle()
    return stage


def broken() -> Stage:
    """One that served and whose pods end again and again."""
    stage = serving()
    stage.controllers.fate = lambda owner: ended("", exit_code=1, restarts=4)
    stage.controllers.run()
    stage.run(seconds=10)
    return stage


def after(stage: Stage, seconds: float = 30, **changes: Any) -> Stage:
    stage.put(spec(**changes))
    stage.run(seconds=seconds)
    return stage


def judged(**changes: Any) -> Stage:
    """A pipeline that promises something, serves requests, and gets an edit."""
    stage = Stage()
    stage.put(promised())
    stage.settle()
    stage.traffic.rate = 40
    stage.serve(60)
    stage.put(promised(**(OTHER | changes)))
    stage.serve(9)
    return stage


def promised(**changes: Any) -> dict[str, Any]:
    return spec(**({"slo": {"objectives": [OBJECTIVE]}} | changes))


def asked(*, answers: bool) -> Stage:
    stage = serving()
    stage.pods.probed = lambda pod, probe: ProbeStatus(requests=20, failed=20, message="broken") if answers else None
    stage.put(promised(**OTHER))
    stage.serve(20)
    return stage


def broke(**changes: Any) -> Stage:
    stage = judged(**changes)
    good = str(stage.status()["stable"]["name"])
    stage.traffic.bad = lambda revision: 0.01 if revision == good else 0.5
    stage.serve(300)
    return stage


def undecided(on_unknown: str) -> Stage:
    rules = {"steps": [{"weightPercent": 50, "maxSeconds": 60}], "onUnknown": on_unknown}
    stage = serving()
    stage.put(promised(**OTHER, rollout=rules))
    stage.serve(120)
    return stage


def proving() -> Stage:
    stage = serving()
    stage.put(promised(**OTHER, rollout={"strategy": "DrainFirst"}))
    stage.serve(60)
    return stage


def stopped() -> Stage:
    stage = judged()
    name = str(stage.status()["candidate"]["name"])
    stage.put(promised(**OTHER), annotations={names.ANNOTATION_ABORT: name})
    stage.serve(20)
    return stage


def no_way_back() -> Stage:
    stage = serving()
    stage.cluster.drop(Ref("ConfigMap", NAMESPACE, names.child_name(NAME, "pod", stage.served())))
    stage.put(promised(**OTHER))
    stage.serve(20)
    return stage


WRONG = {"retrieval": {"topK": 1000}}
PROMISES = spec(**PROMISED)["slo"]


def promising(good: int = 0, bad: int = 0) -> Stage:
    """One that promises something and answers so many requests in each look of a quarter of an hour."""
    stage = Stage()
    stage.put(spec(slo=PROMISES))
    stage.settle()
    for _ in range(180):
        stage.count(good, bad)
        stage.look()
    stage.step()
    return stage


def unread() -> Stage:
    stage = promising(good=9)
    stage.pods.pages = dict.fromkeys(stage.pods.pages, "<html>Sign in</html>")
    for _ in range(7):
        stage.look()
    stage.step()
    return stage


DRIVEN: dict[str, Callable[[], Stage]] = {
    "models and image are inspected": lambda: inspected(Stage()),
    "the inspection fails": lambda: inspected(Stage(), ended("StartFailed", restarts=4)),
    "the models do not fit": lambda: inspected(Stage(), **TOO_SHORT),
    "the first index is built": lambda: job(builds=False),
    "the index Job finds no node": lambda: job(Fate(unschedulable=NO_NODE), builds=False),
    "the first build failed": lambda: job(Fate(exit_code=2, ending={"reason": "", "message": "disk full"})),
    "pods find no node": lambda: first(Fate(unschedulable=NO_NODE)),
    "pods find no GPU": lambda: first(Fate(unschedulable=NO_GPU)),
    "the image cannot be pulled": lambda: first(Fate(ready=False, waiting="ImagePullBackOff")),
    "pods load": lambda: first(Fate(ready=False)),
    "the model is not there": lambda: first(ended("ModelNotFound")),
    "the hub or store refuses": lambda: first(ended("CredentialsRefused")),
    "the hub or store does not answer": lambda: first(ended("SourceUnreachable", exit_code=1, restarts=4)),
    "a fetched file is not what it should be": lambda: first(ended("ChecksumMismatch")),
    "what is fetched has no room": lambda: first(ended("NoSpace")),
    "the server cannot start": lambda: first(ended("StartFailed")),
    "the snapshot was tampered with": lambda: first(ended("SnapshotRefused")),
    "the server ends again and again": lambda: first(ended("", exit_code=1, restarts=4)),
    "it serves": serving,
    "it serves, and the engine changed what it was asked": engine,
    "an edit: it is inspected, the old pods serve": lambda: inspected(serving()),
    "an edit: it does not fit, the old pods serve": lambda: inspected(serving(), **TOO_SHORT),
    "an edit: new pods load, the old ones serve": lambda: edited(Fate(ready=False)),
    "an edit: no GPU beside the old pods": lambda: edited(Fate(unschedulable=NO_GPU), **STAYS),
    "an edit: the old pods made room": lambda: edited(Fate(ready=False), rollout={"strategy": "DrainFirst"}),
    "an edit: the new pods fail, the old ones serve": lambda: edited(ended("ModelNotFound")),
    "an edit: not ready in time, the old pods serve": lambda: edited(
        Fate(ready=False), 120, rollout={"deadlineSeconds": 60}
    ),
    "an edit: its index is built, the old one serves": lambda: job(builds=False, after=serving),
    "an edit: its index is empty, the old one serves": lambda: job(ended("EmptyIndex"), after=serving),
    "an edit: content is pushed": content,
    "an edit: content was refused, the old one serves": lambda: content(refuses=True),
    "an edit: pods are not admitted, the old ones serve": refused_pods,
    "an edit: an object is refused, the old pods serve": refused_apply,
    "judged: the candidate is asked questions": lambda: asked(answers=False),
    "judged: the candidate does not answer them": lambda: asked(answers=True),
    "judged: the candidate has a share of the traffic": judged,
    "judged: there was no verdict in time, and it waits on": lambda: undecided("Hold"),
    "judged: there was no verdict in time, and it is taken back": lambda: undecided("Rollback"),
    "judged: the candidate broke an objective": broke,
    "judged: new content broke an objective": lambda: broke(engine={}, retrieval={"topK": 7}),
    "judged: the candidate serves alone until it is proved": proving,
    "judged: somebody took the candidate back": stopped,
    "judged: it could not be taken back, so it is not started": no_way_back,
    "an edit that is not understood, the old one serves": lambda: after(serving(), **WRONG),
    "not understood, and nothing serves": lambda: first(**WRONG),
    "paused, and an edit waits": lambda: after(serving(), paused=True, **OTHER),
    "paused from the first": lambda: first(paused=True),
    "paused, and nothing waits": lambda: after(serving(), paused=True),
    "no replicas are asked for": lambda: after(serving(), replicas=0),
    "no replicas from the first": lambda: first(replicas=0),
    "a name is taken by somebody else": taken_name,
    "a deleted namesake is still leaving": namesake,
    "it serves, and its pods begin to fail": broken,
    "it serves, and its objectives are kept": lambda: promising(good=9),
    "it serves, and breaks an objective": lambda: promising(good=9, bad=1),
    "it serves, and has too few requests to speak of objectives": promising,
    "it serves, and its counters cannot be read": unread,
}
