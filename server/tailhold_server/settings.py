"""What the environment decides: where things lie on this machine, and limits that no spec has."""

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from tailhold_api import names

STAND_IN = "stand-in"
"""The value of TAILHOLD_ENGINE that serves without a model."""


class ServerSettings(BaseSettings):
    """Environment variables of the server, each with the prefix TAILHOLD_."""

    model_config = SettingsConfigDict(env_prefix="TAILHOLD_", frozen=True)

    claims: Path = Path(names.CLAIMS_FOLDER)
    """Persistent volume claims, each a folder of its name."""
    images: Path = Path(names.IMAGES_FOLDER)
    """Image volumes, each in a folder named by the image."""
    secrets: Path = Path(names.SECRETS_FOLDER)
    """Secrets, each a folder of its name with a file for each entry."""
    fetched: Path = Path(f"{names.CACHE_FOLDER}/fetched")
    """Where fetched models and snapshots are kept."""
    pipeline: str = ""
    """`namespace/name` of the pipeline: the audience of the operator's tokens."""
    public_key: Path = Path(names.PUBLIC_KEY_PATH)
    """The operator's public key. Without the file no content is taken over the network."""
    handover_port: int = names.HANDOVER_PORT
    """Where pods of the same pipeline hand requests over to this one, where it is a candidate; 0 is nowhere. Only a
    server with a `pipeline` listens there."""
    otlp_endpoint: str = ""
    """Where traces go, whatever the spec says."""
    otlp_headers: Path = Path(names.OTLP_HEADERS_FOLDER)
    """Headers for the collector, a file for each; none where there is no such folder."""
    termination_log: Path = Path("/dev/termination-log")
    """Where the reason of an end is left; not written where it does not exist."""
    pod_name: str = ""
    """Names the folder of audit records; the host's name, which in a pod is the pod's, where it is empty."""
    engine: str = "vllm"
    """`vllm`, or `stand-in` for tests of the control plane."""
    comment_seconds: float = 10.0
    """A stream without news gets an SSE comment this often, so that no proxy cuts it."""
    send_seconds: float = 30.0
    """A client that takes nothing of its answer for so long has left."""
    receive_seconds: float = 30.0
    """A client that sends nothing more of a request's body for so long is answered with 408, over gRPC with
    DEADLINE_EXCEEDED."""
    stall_seconds: float = 10.0
    """An engine that is asked, gives no sign and whose threads do not run for so long is not alive."""
    patience_seconds: float = 60.0
    """An engine that is asked, works and gives no token for so long is not alive either; more where its longest prompt
    takes more than a quarter of it."""
    look_seconds: float = 1.0
    """How often the engine is looked at."""
    calibration_seconds: float = 1.5
    """How long the engine is measured at the start, before the server is ready; twice that on a slow machine. 0
    measures on real answers alone."""
    retire_seconds: float = 2.0
    """How long a server that was told to stop still answers what comes on open connections, closing each with its
    answer; it then refuses what is new. Part of `drainSeconds`."""
    deletion_seconds: float = 5.0
    """How often the volume is asked what was deleted."""
    uploads_seconds: float = 30.0
    """How long the volume of uploads may take for one operation; it is then refused, and ten times as long for a whole
    upload. A start waits no longer for it either."""
    death_seconds: float = 3.0
    """How long an engine's death is shown on the probes before the server ends."""
    stand_in_seconds_per_token: float = 0.0
    """How fast the stand-in engine speaks."""
    stand_in_start_seconds: float = 0.0
    """How long the stand-in engine takes to start."""
    stand_in_start_error: str = ""
    """With it the stand-in engine does not start."""
