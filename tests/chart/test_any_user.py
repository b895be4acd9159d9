"""The server's image on a real node: any user, a read-only root, one folder to write to."""

import json
import sysconfig
from typing import Any

import pytest

from tailhold.target import Target
from tailhold_local import Cluster
from tailhold_local.build_images import build_image
from tailhold_local.progress import Progress

pytestmark = pytest.mark.cluster

NAME = "any-user"
PROGRAM = """
import getpass, os, pathlib, tempfile
assert os.getuid() == 1000650000 and getpass.getuser()
caches = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT", "HF_HOME")
for name in (str(pathlib.Path.home()), tempfile.mkdtemp(), *map(os.environ.get, caches)):
    folder = pathlib.Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "written").touch()
try:
    pathlib.Path("/opt/tailhold/written").touch()
except OSError:
    print("read-only")
import tailhold_server, tailhold_api, torch
"""


def pod(image: str) -> dict[str, Any]:
    site, cache = "/opt/tailhold/site", "/var/cache/tailhold"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsUser": 1000650000,
                "runAsGroup": 0,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "server",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c", f"tailhold --help && python3 -c '{PROGRAM}'"],
                    "securityContext": {
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "site", "mountPath": site, "readOnly": True},
                        {"name": "cache", "mountPath": cache},
                    ],
                }
            ],
            "volumes": [
                {"name": "site", "hostPath": {"path": sysconfig.get_paths()["purelib"], "type": "Directory"}},
                {"name": "cache", "emptyDir": {"sizeLimit": "64Mi"}},
            ],
        },
    }


def test_the_server_writes_only_to_its_cache_folder(cluster: Cluster, cluster_target: Target) -> None:
    image = build_image("mounted", Progress())
    cluster.load_image(image.archive)
    cluster_target.kubectl("delete", "pod", NAME, "--ignore-not-found")
    cluster_target.kubectl("create", "-f", "-", stdin=json.dumps(pod(image.reference)))
    try:
        cluster_target.kubectl("wait", "pod", NAME, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    finally:
        log = cluster_target.kubectl("logs", NAME)
        cluster_target.kubectl("delete", "pod", NAME, "--wait=false")
    assert log.rstrip().endswith("read-only"), log
