"""A scheduler with so many GPUs, one for each pod."""

from dataclasses import dataclass, field

from tailhold_operator.kinds import Manifest, uid_of
from tailhold_operator.testing import FakeControllers

NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


@dataclass
class Cards(FakeControllers):
    """Pods get a card in the order in which they were made, and keep it until they go."""

    cards: int = 1000
    held: set[str] = field(default_factory=set)
    most: int = 0
    """Cards that were ever held at once."""
    away: set[str] = field(default_factory=set)
    """Names of pods whose node does not answer any more."""

    def run(self) -> None:
        """As all controllers, and twice, so that what came free is taken."""
        for _ in range(2):
            super().run()
            self.held &= {uid_of(each) for each in self.cluster.of_kind("Pod")}
        self.most = max(self.most, len(self.held))

    def _status(self, owner: Manifest, pod: Manifest) -> Manifest:
        if pod["metadata"]["name"] in self.away:
            gone: Manifest = {"type": "Ready", "status": "False"}
            return pod.get("status", {}) | {"conditions": [gone]}
        if owner["kind"] == "Deployment" and not self.fate(owner).unschedulable:
            if uid_of(pod) not in self.held and len(self.held) >= self.cards:
                scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                return {"phase": "Pending", "conditions": [scheduled | {"message": NO_GPU}]}
            self.held.add(uid_of(pod))
        return super()._status(owner, pod)
