"""Manifests to start from, one for each way to serve; their comments say what to change."""

from importlib import resources

from tailhold_api.faults import quoted
from tailhold_api.grammar import NAME_WORDS, is_name

PROFILES = ("cpu", "one-gpu", "pinned-low-latency", "long-context")
_NO_TEXT = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def render_profile(profile: str, name: str) -> str:
    """The manifest's text, with the pipeline's name in it. Raises ValueError for a profile or a name that cannot be."""
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}: choose one of {', '.join(PROFILES)}")
    if not is_name(name):
        raise ValueError(f"the pipeline's name is {quoted(name)}: {NAME_WORDS}")
    text = (resources.files(__package__) / f"{profile}.yaml").read_text()
    return text.replace("name: NAME", f"name: {_as_text(name)}", 1)


def _as_text(name: str) -> str:
    """A legal name as YAML reads it as text: `7`, `2026-01-01` and `no` are none unless they are quoted."""
    return name if name[0].isalpha() and name not in _NO_TEXT else f'"{name}"'
