"""What to do about a first question that was not answered."""

import re
from urllib.parse import urlsplit

_NO_V1 = "the URL of an OpenAI surface ends in /v1"
_HINTS = (
    (r"^(401|UNAUTHENTICATED)\b", "give a key that it knows in TAILHOLD_API_KEY or --api-key"),
    (r"^(403|PERMISSION_DENIED)\b", "the key in TAILHOLD_API_KEY or --api-key may not ask"),
    (r"certificate.verify.failed", "--ca-file names the certificates to trust"),
    (r"refused|unreachable", "is the server up, and is this its port?"),
    (r"^no HTTP|ended before an answer|socket closed", "is this the right port, and has it TLS (https://, grpcs://)?"),
)
"""A pattern of what was said, and the next step."""
_TLS_HINTS = ((r"version.number|record.layer|reset|aborted", "has it TLS there? Without: http://, grpc://"), *_HINTS)
"""The same where TLS was asked for."""


def with_hint(said: str, url: str) -> str:
    """What was said, and where there is one the next step."""
    found = _hint(said, url)
    return f"{said.rstrip().removesuffix('.')}; {found}" if found else said


def _hint(said: str, url: str) -> str | None:
    where = urlsplit(url)
    if re.match(r"(404|405)\b", said) and where.scheme.startswith("http") and not where.path.endswith(("/v1", "/v1/")):
        return _NO_V1
    hints = _TLS_HINTS if where.scheme in ("https", "grpcs") else _HINTS
    return next((hint for pattern, hint in hints if re.search(pattern, said, re.IGNORECASE)), None)
