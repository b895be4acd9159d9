"""Quantities in the form that the API server gives back, so that what is read equals what was asked for."""

_BINARY = ((1024**2, "Ti"), (1024, "Gi"))


def mebibytes(count: int) -> str:
    """Memory."""
    for size, unit in _BINARY:
        if count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}Mi"


def millicores(count: int) -> str:
    """Processor time."""
    return str(count // 1000) if count % 1000 == 0 else f"{count}m"
