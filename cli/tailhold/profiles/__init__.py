"""Manifests to start from, one for each way to serve; their comments say what to change."""

from importlib import resources

PROFILES = ("cpu", "one-gpu", "pinned-low-latency", "long-context")


def render_profile(profile: str, name: str) -> str:
    """The manifest's text, with the pipeline's name in it. Raises ValueError for a profile that there is not."""
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}: choose one of {', '.join(PROFILES)}")
    text = (resources.files(__package__) / f"{profile}.yaml").read_text()
    return text.replace("name: NAME", f"name: {name}", 1)
