"""Manifests to start from, one for each way to serve; their comments say what to change."""

import re
from importlib import resources

PROFILES = ("cpu", "one-gpu", "pinned-low-latency", "long-context")


_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def render_profile(profile: str, name: str) -> str:
    """The manifest's text, with the pipeline's name in it. Raises ValueError for a profile or a name that cannot be."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be a name: give up to 253 lower-case letters, digits, `-` and `.`")
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}: choose one of {', '.join(PROFILES)}")
    text = (resources.files(__package__) / f"{profile}.yaml").read_text()
    return text.replace("name: NAME", f"name: {name}", 1)
