"""A stand-in for NVIDIA's device plugin: advertises `nvidia.com/gpu` where there is no GPU.

The kubelet treats its devices as it treats real ones: it counts, allocates and aligns them by NUMA node, and
drops those that fail. No container gets a GPU from it, only the name of one in NVIDIA_VISIBLE_DEVICES.
"""

import signal
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from tailhold_local import deviceplugin_pb2 as api
from tailhold_local.gpus import Gpu, Health, decode

RESOURCE = "nvidia.com/gpu"
FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET = FOLDER / "tailhold-gpu.sock"
KUBELET = FOLDER / "kubelet.sock"
POLL = 0.2
WATCHES = 4
"""Streams served at once: the kubelet holds one, and a second while it restarts."""


def devices(gpus: tuple[Gpu, ...]) -> list[api.Device]:
    """What the kubelet is told of the GPUs."""
    return [
        api.Device(
            ID=gpu.id,
            health="Healthy" if gpu.health is Health.HEALTHY else "Unhealthy",
            topology=api.TopologyInfo(nodes=[api.NUMANode(ID=gpu.numa)]),
        )
        for gpu in gpus
        if gpu.health is not Health.ABSENT
    ]


class Plugin:
    """Answers the kubelet."""

    def __init__(self, control: Path) -> None:
        self._control = control

    def options(self, _request: api.Empty, _context: grpc.ServicerContext) -> api.DevicePluginOptions:
        """Ask for nothing special."""
        return api.DevicePluginOptions()

    def watch(self, _request: api.Empty, context: grpc.ServicerContext) -> Iterator[api.ListAndWatchResponse]:
        """Send the devices now and each time the control file has changed."""
        sent: tuple[Gpu, ...] | None = None
        while context.is_active():
            now = decode(self._control.read_text())
            if now != sent:
                sent = now
                yield api.ListAndWatchResponse(devices=devices(now))
            time.sleep(POLL)

    def allocate(self, request: api.AllocateRequest, _context: grpc.ServicerContext) -> api.AllocateResponse:
        """Name the devices to each container, as NVIDIA's plugin does."""
        answers = [
            api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(container.devices_ids)})
            for container in request.container_requests
        ]
        return api.AllocateResponse(container_responses=answers)


def serve(plugin: Plugin, socket: Path) -> grpc.Server:
    """Serve the plugin's side of the protocol on a socket."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
            plugin.options, api.Empty.FromString, api.DevicePluginOptions.SerializeToString
        ),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            plugin.watch, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": grpc.unary_unary_rpc_method_handler(
            plugin.allocate, api.AllocateRequest.FromString, api.AllocateResponse.SerializeToString
        ),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=WATCHES))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def register(kubelet: Path, socket: Path) -> None:
    """Tell the kubelet where the plugin listens."""
    with grpc.insecure_channel(f"unix://{kubelet}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register", api.RegisterRequest.SerializeToString, api.Empty.FromString
        )
        call(api.RegisterRequest(version="v1beta1", endpoint=socket.name, resource_name=RESOURCE), timeout=5)


def run(control: Path) -> None:
    """Serve for as long as the kubelet that was registered with lives, then for the next one."""
    plugin = Plugin(control)
    while True:
        kubelet = _wait_for_kubelet()
        SOCKET.unlink(missing_ok=True)
        server = serve(plugin, SOCKET)
        try:
            register(KUBELET, SOCKET)
            while _socket_inode() == kubelet and SOCKET.exists():
                time.sleep(POLL)
        except grpc.RpcError as error:
            print(f"the kubelet does not answer: {error}", flush=True)
            time.sleep(POLL)
        server.stop(grace=None).wait()


def _wait_for_kubelet() -> int:
    while (inode := _socket_inode()) is None:
        time.sleep(POLL)
    return inode


def _socket_inode() -> int | None:
    try:
        return KUBELET.stat().st_ino
    except FileNotFoundError:
        return None


def main() -> None:
    """Advertise the GPUs in the control file named on the command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    run(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
