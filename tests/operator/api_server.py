"""A real API server for a test session: etcd, kube-apiserver and the garbage collector, on loopback."""

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "ragpipelines.tailhold.dev.yaml"
TOKEN = "test-token"


@dataclass(frozen=True)
class ApiServer:
    """Where it is and how to speak to it, as an administrator."""

    url: str
    ca: Path
    kubeconfig: Path
    audit_log: Path

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return httpx.Client(
            base_url=self.url,
            verify=ssl.create_default_context(cafile=str(self.ca)),
            headers=headers,
            timeout=30,
        )


def binaries() -> dict[str, Path] | None:
    """The programs, where they have been built; `scripts/setup` builds them."""
    cache = Path(os.environ.get("TAILHOLD_CACHE") or _cache_home() / "tailhold") / "bin"
    wanted = ("etcd", "kube-apiserver", "kube-controller-manager")
    found = {name: next(iter(sorted(cache.glob(f"*/{name}"))), None) for name in wanted}
    return {name: path for name, path in found.items() if path} if all(found.values()) else None


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@contextmanager
def started() -> Iterator[ApiServer]:
    programs = binaries()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="tailhold-api-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = _control_plane(programs, folder, stack)
        _install_crd(server)
        yield server


def _control_plane(programs: dict[str, Path], folder: Path, stack: ExitStack) -> ApiServer:
    etcd, peer, secure = free_ports(3)
    _run(stack, folder, programs["etcd"], _etcd_flags(folder, etcd, peer))
    _credentials(folder)
    _run(stack, folder, programs["kube-apiserver"], _apiserver_flags(folder, etcd, secure))
    url = f"https://127.0.0.1:{secure}"
    server = ApiServer(url, folder / "certs" / "apiserver.crt", folder / "kubeconfig", folder / "audit.log")
    server.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(url, folder)))
    _until_ready(server, folder)
    _run(stack, folder, programs["kube-controller-manager"], _manager_flags(folder))
    return server


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _run(stack: ExitStack, folder: Path, program: Path, flags: list[str]) -> None:
    log = stack.enter_context((folder / f"{program.name}.log").open("wb"))
    process = subprocess.Popen([str(program), *flags], stdout=log, stderr=log, cwd=folder)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _etcd_flags(folder: Path, port: int, peer: int) -> list[str]:
    client, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
    ]


def _credentials(folder: Path) -> None:
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n{_OPERATOR_LINE}")
    (folder / "audit.yaml").write_text(yaml.safe_dump(_AUDIT))


OPERATOR_TOKEN, OPERATOR_USER = "operator-token", "tailhold-operator-under-test"
_OPERATOR_LINE = f"{OPERATOR_TOKEN},{OPERATOR_USER},operator\n"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def _apiserver_flags(folder: Path, etcd: int, port: int) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certs'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        "--feature-gates=ImageVolume=true",  # off in 1.34, whose API server then drops image volumes unsaid
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    ]


def _manager_flags(folder: Path) -> list[str]:
    wanted = ("garbage-collector", "namespace", "serviceaccount", "deployment", "replicaset", "job")
    controllers = ",".join(f"{name}-controller" for name in wanted)
    return [
        f"--kubeconfig={folder / 'kubeconfig'}",
        "--leader-elect=false",
        f"--controllers={controllers}",
        "--secure-port=0",
        "--bind-address=127.0.0.1",
    ]


def kubeconfig_of(url: str, ca: Path, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": {"token": token}}],
    }


def _kubeconfig(url: str, folder: Path) -> dict[str, Any]:
    return kubeconfig_of(url, folder / "certs" / "apiserver.crt", TOKEN)


def _until_ready(server: ApiServer, folder: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with server.client() as client:
                if client.get("/readyz").status_code == httpx.codes.OK:
                    return
        except (httpx.HTTPError, OSError):
            pass
        time.sleep(0.2)
    raise AssertionError((folder / "kube-apiserver.log").read_text()[-2000:])


def _install_crd(server: ApiServer) -> None:
    crd = yaml.safe_load(CRD.read_text())
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with server.client() as client:
        made = client.post(path, json=crd)
        assert made.is_success, made.text
        until = time.monotonic() + 20
        while client.get("/apis/tailhold.dev/v1alpha1/ragpipelines").status_code != httpx.codes.OK:
            assert time.monotonic() < until, "the CRD is not served"
            time.sleep(0.1)
