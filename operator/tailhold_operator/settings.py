"""The operator's environment."""

from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tailhold_operator.render.setup import Setup


class LogLevel(StrEnum):
    """Lowest level that is logged."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"


class ServerExtra(BaseModel):
    """What is added to every pod, as it would stand in a pod."""

    volumes: tuple[dict[str, Any], ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = Field((), alias="volumeMounts")
    env: tuple[dict[str, Any], ...] = ()
    command: tuple[str, ...] = ()
    """In place of the image's entry point."""


class OperatorSettings(BaseSettings):
    """Each is `TAILHOLD_` and its name in the environment; lists and objects are JSON."""

    model_config = SettingsConfigDict(env_prefix="TAILHOLD_", frozen=True, use_attribute_docstrings=True)

    namespaces: tuple[str, ...] = ()
    """Namespaces that are looked after; empty is the whole cluster."""
    server_image: str = "ghcr.io/tailhold/server:latest"
    """Image of server and index Job where a RagPipeline names none."""
    server_image_pull_policy: str = "IfNotPresent"
    """When kubelet fetches it."""
    server_image_pull_secrets: tuple[str, ...] = ()
    """Names of pull secrets in the pipeline's namespace."""
    server_extra: ServerExtra = ServerExtra()
    """Volumes, mounts and variables of every pod."""
    release_name: str = "tailhold"
    """Names the Lease, and with `-key` the Secret."""
    release_namespace: str = "tailhold-system"
    """Where both are."""
    pod_authorities: Path | None = None
    """PEM file of the authorities that sign the certificates of pods with `server.tls.internal: On`, read at the start.
    The system's where it is not given."""
    resync_seconds: int = Field(300, ge=5)
    """Between two looks at everything."""
    log_level: LogLevel = LogLevel.INFO
    """Lowest level that is logged."""
    workers: int = Field(4, ge=1, le=64)
    """Pipelines that are worked on at once."""
    health_port: int = 8080
    """Where `/healthz` answers."""
    metrics_port: int = 8081
    """Where `/metrics` answers; 0 is nowhere."""

    def setup(self) -> Setup:
        """What every pod gets."""
        extra = self.server_extra
        return Setup(
            image=self.server_image,
            pull_policy=self.server_image_pull_policy,
            pull_secrets=self.server_image_pull_secrets,
            command=extra.command,
            volumes=extra.volumes,
            mounts=extra.volume_mounts,
            env=extra.env,
        )
