"""Start-up: `python -m tailhold_operator`."""

import asyncio
import logging
import os
import socket
import ssl
import time
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import httpx
import kopf
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient
from prometheus_client import start_http_server

from tailhold_operator.cluster import KubernetesCluster
from tailhold_operator.controller import Controller
from tailhold_operator.errors import ClusterError
from tailhold_operator.handlers import build_registry, build_settings
from tailhold_operator.journal import start_logging
from tailhold_operator.kinds import Ref
from tailhold_operator.lease import GuardedCluster, Lease
from tailhold_operator.pods import HttpPods
from tailhold_operator.reconcile import World
from tailhold_operator.sampling import Sampler
from tailhold_operator.settings import OperatorSettings
from tailhold_operator.tokens import Signer, read_signer
from tailhold_operator.watch.prometheus import EitherSource, PrometheusSource
from tailhold_operator.watch.rounds import Watch
from tailhold_operator.watch.sources import PodSource

_log = logging.getLogger("tailhold_operator")
_RETRY_SECONDS = 2
_MANY = httpx.Limits(max_connections=200, max_keepalive_connections=200)


def main() -> None:
    """Run until told to stop."""
    settings = OperatorSettings()
    start_logging(settings.log_level)
    if settings.metrics_port:
        start_http_server(settings.metrics_port)
    asyncio.run(run(settings))


async def run(settings: OperatorSettings) -> None:
    """The operator in an event loop of one's own."""
    await _configure()
    trusted = ssl.create_default_context(cafile=settings.pod_authorities)
    async with (
        ApiClient() as client,
        httpx.AsyncClient(trust_env=False, verify=trusted) as http,
        httpx.AsyncClient(trust_env=False, verify=trusted, limits=_MANY) as watching,
    ):
        controller = build(settings, KubernetesCluster(client), http, watching)
        await _wait_for_crd(KubernetesCluster(client), settings)
        await kopf.operator(
            registry=build_registry(),
            settings=build_settings(),
            memo=SimpleNamespace(controller=controller),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
        )


def build(
    settings: OperatorSettings, plain: KubernetesCluster, http: httpx.AsyncClient, watching: httpx.AsyncClient
) -> Controller:
    """Everything put together. Pods are watched through a client of its own: no pass waits for a pod that hangs."""
    identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    ref = Ref("Lease", settings.release_namespace, settings.release_name)
    lease = Lease(plain, ref, identity, time.monotonic, _now)
    cluster = GuardedCluster(plain, lease)
    keys: dict[str, Signer] = {}

    async def prepare() -> None:
        keys["ours"] = await read_signer(cluster, settings.release_namespace, settings.release_name)

    def token(audience: str) -> str:
        lease.check()
        return keys["ours"].token(audience)

    told = PrometheusSource(plain, time.monotonic)
    world = World(
        cluster=cluster,
        pods=HttpPods(http, token),
        setup=settings.setup(),
        public_key=lambda: keys["ours"].public_key,
        now=_now,
        sampler=Sampler(),
        watch=Watch(EitherSource(PodSource(HttpPods(watching, token)), told), _now, time.monotonic),
        log=lambda did, ref, why: _log.info(did, extra={"object": str(ref), "why": why}),
    )
    return Controller(
        world,
        plain,
        lease,
        settings.namespaces,
        settings.resync_seconds,
        settings.workers,
        prepare,
    )


async def _configure() -> None:
    """The pod's service account, or else a kubeconfig."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config()  # type: ignore[no-untyped-call]


async def _wait_for_crd(cluster: KubernetesCluster, settings: OperatorSettings) -> None:
    """Kopf looks for the kinds it watches once; the CRD may come a moment later than we do."""
    while True:
        try:
            await cluster.pipelines(settings.namespaces[0] if settings.namespaces else None)
            return
        except ClusterError as error:
            _log.warning("RagPipelines cannot be listed yet", extra={"why": str(error)})
            await asyncio.sleep(_RETRY_SECONDS)


def _now() -> datetime:
    return datetime.now(UTC)


if __name__ == "__main__":
    main()
