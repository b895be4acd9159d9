"""Object stores, by obstore."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_api.delivery import ObjectStoreFolder
from tailhold_server.delivery import advice
from tailhold_server.delivery.remote import RemoteFile, TransientError, check_name
from tailhold_server.errors import StartError

SUMS = "SHA256SUMS"
_SUMS_BYTES = 1 << 20
_LINE = re.compile(r"^([0-9a-f]{64}) [ *](?:\./)?(.+)$")
_QUERY = re.compile(r"(https?://[^\s?]*)\?[^\s\"',)]*")
"""May have a signature in it."""
_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_TOOK = re.compile(r" in [\d.]+\S?s\b")
"""Another time each time: a condition would never be the same twice."""
_HEAD = re.compile(r"^Generic \w+ error: (?:Error performing (?:list|get|token) request: )?")
_CAUSE = re.compile(r'message: "([^"]{1,200})"|(InvalidCertificate\(\s*\w+)')
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_CREDENTIALS = ("Missing", "must be specified", "credential", "169.254.169.254", "metadata")


class Bucket:
    """A prefix in a store."""

    def __init__(self, source: ObjectStoreFolder, secret: Mapping[str, str], under: str = "") -> None:
        self._source, self._secret = source, secret
        self._url = source.url.rstrip("/") + (f"/{under}" if under else "")
        self._store = self._opened()
        self._objects: tuple[RemoteFile, ...] | None = None

    @property
    def title(self) -> str:
        """As a person would call it."""
        return self._url

    def files(self) -> Sequence[RemoteFile]:
        """All objects under the prefix; with the digests of `SHA256SUMS`, where it is there. Raises StartError."""
        objects = self._listed()
        sums = next((each for each in objects if each.name == SUMS), None)
        if sums is None and self._source.sha256:
            raise self._refused(Reason.CHECKSUM_MISMATCH, f"`sha256` is given, and there is no {SUMS}: put one there")
        others = tuple(each for each in objects if each.name != SUMS)
        if sums is None:
            return others
        return tuple(self._summed(others, self._sums(sums)))

    def read(self, file: RemoteFile, start: int, end: int) -> bytes:
        """Exactly these bytes of the object that was listed. Raises TransientError or StartError."""
        import obstore

        if start == end:
            return b""
        options: dict[str, Any] = {"range": (start, end)}
        if file.etag and not self._url.startswith("file:"):
            options["if_match"] = file.etag
        try:
            return bytes(obstore.get(self._store, file.name, options=options).bytes())  # type: ignore[arg-type]
        except Exception as error:
            raise self._failed(error) from error

    def get(self, name: str, longest: int) -> bytes:
        """A whole small object, listed or not. Raises TransientError or StartError."""
        import obstore

        try:
            got = obstore.get(self._store, name)
            size = int(got.meta["size"])
            if size > longest:
                raise self._refused(Reason.START_FAILED, f"{name} has {size:,} bytes of at most {longest:,}")
            return bytes(got.bytes())
        except StartError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _listed(self) -> tuple[RemoteFile, ...]:
        import obstore

        if self._objects is None:
            try:
                found = [each for batch in obstore.list(self._store) for each in batch]
            except Exception as error:
                raise self._failed(error) from error
            named = (each for each in found if each["path"] and not each["path"].endswith("/"))
            self._objects = tuple(RemoteFile(each["path"], each["size"], each["e_tag"] or "") for each in named)
            for each in self._objects:
                check_name(each.name, self.title)
        if not self._objects:
            raise self._refused(Reason.MODEL_NOT_FOUND, "nothing is there: correct `url`, bucket and prefix")
        return self._objects

    def _sums(self, sums: RemoteFile) -> dict[str, str]:
        text = self.get(SUMS, _SUMS_BYTES)
        expected, got = self._source.sha256, hashlib.sha256(text).hexdigest()
        if expected and got != expected:
            raise self._refused(Reason.CHECKSUM_MISMATCH, f"expected {SUMS} of sha256 {expected}, got {got}")
        found = (_LINE.match(line) for line in text.decode(errors="replace").splitlines())
        return {each[2]: each[1] for each in found if each}

    def _summed(self, files: Sequence[RemoteFile], sums: Mapping[str, str]) -> Sequence[RemoteFile]:
        """What the sums do not name is no part of the model."""
        if missing := sorted(set(sums) - {each.name for each in files}):
            raise self._refused(Reason.MODEL_NOT_FOUND, f"{SUMS} names {missing[0]}, which is not there: upload it")
        return [replace(each, sha256=sums[each.name]) for each in files if each.name in sums]

    def _opened(self) -> Any:
        from obstore.store import from_url

        source = self._source
        if source.url.startswith("file:"):
            try:
                return from_url(self._url)
            except Exception as error:
                raise self._refused(Reason.MODEL_NOT_FOUND, _first_line(error)) from error
        config: dict[str, Any] = {**_defaults(source), **self._secret}
        options: dict[str, Any] = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "600s"}
        if (source.endpoint or "").startswith("http://"):
            options["allow_http"] = True
        if named := os.environ.get("SSL_CERT_FILE"):
            options["root_certificate"] = Path(named).read_bytes()
        try:
            # How often is tried again is decided in one place, where progress is told.
            return from_url(self._url, config=config, client_options=options, retry_config={"max_retries": 0})  # type: ignore[call-overload]
        except Exception as error:
            raise self._unopened(error) from error

    def _unopened(self, error: Exception) -> StartError:
        words = _first_line(error)
        if "Configuration key" in words:
            allowed = "give the store's own names alone, as `AWS_ACCESS_KEY_ID`"
            return self._refused(Reason.CREDENTIALS_REFUSED, f"Secret `{self._source.secret_name}`: {words}: {allowed}")
        return self._refused(Reason.CREDENTIALS_REFUSED, f"{words}: {self._credentials()}")

    def _failed(self, error: Exception) -> Exception:
        from obstore.exceptions import PermissionDeniedError, PreconditionError, UnauthenticatedError

        text = _QUERY.sub(r"\1", str(error))
        words = _words(text)
        status = next(iter(_STATUS.findall(text)), "")[:3]
        if isinstance(error, PreconditionError):
            self._objects = None
            return self._refused(Reason.CHECKSUM_MISMATCH, "an object was replaced while it was fetched", final=False)
        denied = isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403")
        if denied or (any(each in text for each in _NO_CREDENTIALS) and not self._is_given):
            return self._refused(Reason.CREDENTIALS_REFUSED, f"{words}: {self._credentials()}")
        if isinstance(error, FileNotFoundError) or status == "404":
            return self._refused(Reason.MODEL_NOT_FOUND, f"{words}: correct `url`: bucket or prefix are not there")
        if advice.is_certificate(text):
            return self._refused(Reason.SOURCE_UNREACHABLE, f"{words}; {advice.unreachable(text)}", final=False)
        if status and not status.startswith("5") and status not in ("408", "429"):
            return self._refused(Reason.SOURCE_UNREACHABLE, words, final=False)
        return TransientError(words if status else f"{words}; {advice.unreachable(text)}")

    @property
    def _is_given(self) -> bool:
        return bool(self._secret) or self._source.anonymous

    def _credentials(self) -> str:
        if self._source.anonymous:
            return "`anonymous` is true, and the store asks who is there: give `secretName`"
        if (name := self._source.secret_name) and self._secret:
            return f"the keys of Secret `{name}` may not read there: put keys into it that may list and read the prefix"
        return (
            "neither a Secret's keys, nor variables, nor a workload identity may read there: name a Secret in"
            " `secretName` with the store's keys, as `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"
        )

    def _refused(self, reason: Reason, words: str, *, final: bool = True) -> StartError:
        return StartError(reason, f"{self.title}: {words}", final=final)


def _defaults(source: ObjectStoreFolder) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if source.url.startswith("s3:"):
        found["aws_region"] = source.region or os.environ.get("AWS_REGION") or "us-east-1"
        found |= {"aws_endpoint": source.endpoint} if source.endpoint else {}
        found |= {"aws_skip_signature": True} if source.anonymous else {}
    elif source.url.startswith("gs:"):
        found |= {"google_base_url": source.endpoint} if source.endpoint else {}
        found |= {"google_skip_signature": True} if source.anonymous else {}
    else:
        found |= {"azure_endpoint": source.endpoint} if source.endpoint else {}
        found |= {"azure_skip_signature": True} if source.anonymous else {}
    return found


def _first_line(error: Exception) -> str:
    return _QUERY.sub(r"\1", str(error).partition("\n")[0]).strip()


def _words(text: str) -> str:
    """Its first line, the store's own word for it, and the cause where that stands deeper."""
    first = _HEAD.sub("", _TOOK.sub("", text.partition("\n")[0])).partition(": <")[0].strip()[:300]
    deeper = [each for each in (*_CODE.findall(text)[:1], *_causes(text)) if each not in first]
    return f"{first} ({', '.join(deeper)})" if deeper else first


def _causes(text: str) -> list[str]:
    found = _CAUSE.search(text)
    return ["".join((found[1] or found[2]).split()).replace("(", ": ") if found[2] else found[1]] if found else []
