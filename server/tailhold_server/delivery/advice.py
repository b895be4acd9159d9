"""What to do where another side does not answer, in words that fit what was seen."""

import os
from collections.abc import Mapping

_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED", "invalid peer certificate", "InvalidCertificate")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def is_certificate(words: str) -> bool:
    """Whether the other side's certificate is why."""
    return any(each in words for each in _CERTIFICATE)


def unreachable(words: str, env: Mapping[str, str] = os.environ) -> str:
    """The next step."""
    if is_certificate(words):
        return "its certificate is of no authority that is trusted here: give the company's in `pod.trust`"
    if "proxy" in words.lower() or "tunnel" in words.lower():
        return "check the proxy that `HTTPS_PROXY` in `pod.env` names, and what `NO_PROXY` leaves out"
    proxied = any(env.get(each) for each in _PROXIES)
    none = "a proxy belongs into `pod.env` as `HTTPS_PROXY` and `NO_PROXY`"
    proxy = "the proxy of `pod.env` is used" if proxied else none
    return (
        f"{proxy}; network policies and a service mesh have to let the pod out; without a network take a claim, or a"
        " mirror as `endpoint`"
    )
