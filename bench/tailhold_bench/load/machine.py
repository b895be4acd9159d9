"""What the generator runs on."""

import os
import platform
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Machine(BaseModel):
    """A computer, as far as it matters to a figure. Its name is left out."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    system: str
    processor: str
    cores: int
    python: str


def this_machine() -> Machine:
    """Read now."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=cores,
        python=platform.python_version(),
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
