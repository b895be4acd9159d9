"""The hub, or a mirror that speaks its protocol: what a commit holds, and bytes of it by range."""

import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import httpx

from tailhold_api.conditions import Reason
from tailhold_api.delivery import HuggingFaceModel
from tailhold_server.delivery import advice
from tailhold_server.delivery.remote import RemoteFile, TransientError, check_name
from tailhold_server.errors import StartError

_TIMEOUT = httpx.Timeout(60, connect=10)
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_BUSY = (408, 425, 429)
_OURS = re.compile(r"hf_[A-Za-z0-9]{8,}")


class Hub:
    """A model at a commit."""

    def __init__(self, model: HuggingFaceModel, token: str) -> None:
        self._model, self._token = model, token
        self._endpoint = (model.endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self._client = httpx.Client(
            follow_redirects=True, timeout=_TIMEOUT, headers=self._headers(), verify=_authorities()
        )

    @property
    def title(self) -> str:
        """As a person would call it."""
        return f"{self._model.repo} at {self._model.revision[:10]}"

    def files(self) -> Sequence[RemoteFile]:
        """What the commit holds, with the hub's own digests. Raises TransientError or StartError."""
        return tuple(self._listed())

    def read(self, file: RemoteFile, start: int, end: int) -> bytes:
        """Exactly these bytes. Raises TransientError or StartError."""
        from huggingface_hub import hf_hub_url

        if start == end:
            return b""
        model = self._model
        url = hf_hub_url(model.repo, file.name, revision=model.revision, endpoint=self._endpoint)
        answer = self._asked(url, {"Range": f"bytes={start}-{end - 1}"})
        if answer.status_code == 200 and len(answer.content) > end - start:
            raise self._refused(Reason.START_FAILED, "it sends whole files where a range was asked for")
        if answer.status_code not in (200, 206):
            raise self._answered(answer)
        return answer.content

    def _listed(self) -> Iterator[RemoteFile]:
        """Page by page. The hub's client would try again by itself, for a minute and unheard."""
        model = self._model
        page: str | None = f"{self._endpoint}/api/models/{model.repo}/tree/{model.revision}?recursive=true"
        while page:
            answer = self._asked(page)
            if answer.status_code != 200:
                raise self._answered(answer)
            try:
                yield from (self._described(each) for each in answer.json() if each["type"] == "file")
            except (ValueError, KeyError, TypeError) as error:
                text = f"{self._endpoint} answers with no list of files ({error!r}): it is no hub; correct `endpoint`"
                raise self._refused(Reason.SOURCE_UNREACHABLE, text, final=False) from error
            page = answer.links.get("next", {}).get("url")

    def _asked(self, url: str, headers: Mapping[str, str] = NO_HEADERS) -> httpx.Response:
        try:
            return self._client.get(url, headers=headers)
        except httpx.TransportError as error:
            raise self._unreached(error) from error

    def _described(self, file: Mapping[str, Any]) -> RemoteFile:
        check_name(file["path"], self.title)
        if lfs := file.get("lfs"):
            return RemoteFile(file["path"], lfs["size"], sha256=lfs["oid"])
        return RemoteFile(file["path"], file["size"], git_sha1=file["oid"])

    def _answered(self, answer: httpx.Response) -> Exception:
        """What a refusal means, by status and the hub's word for it."""
        status, code = answer.status_code, answer.headers.get("X-Error-Code", "")
        said = f"the hub answers {status}{f' {code}' if code else ''}"
        if status in _BUSY or status >= 500:
            return TransientError(f"{self._endpoint}: {said}", _wait(answer.headers))
        if code == "RevisionNotFound":
            return self._refused(Reason.MODEL_NOT_FOUND, f"{said}: there is no such commit; correct `revision`")
        if status in (401, 403):
            return self._refused(Reason.CREDENTIALS_REFUSED, f"{said}: {self._credentials(code)}")
        if status == 404:
            text = "there is no such model, or it is private and the token may not see it; correct `repo`"
            return self._refused(Reason.MODEL_NOT_FOUND, f"{said}: {text}")
        return self._refused(Reason.SOURCE_UNREACHABLE, said, final=False)

    def _credentials(self, code: str) -> str:
        name = self._model.token_secret_name
        if not self._token:
            secret = f"Secret `{name}` has no key `token`" if name else "no `tokenSecretName` is given"
            kind = "the model is gated" if code == "GatedRepo" else "the model is gated, private or not there"
            return (
                f"{kind}, and {secret}: accept the model's terms on the hub, put a token that may read it into a Secret"
                " under the key `token`, and name the Secret in `huggingFace.tokenSecretName`; without a cluster set"
                " `HF_TOKEN`"
            )
        where = f"of Secret `{name}`" if name else "of this machine"
        if code == "GatedRepo":
            return f"the token {where} is not of an account that has accepted the model's terms: accept them on the hub"
        return f"the token {where} may not read it, or is no longer valid: put another one there"

    def _unreached(self, error: Exception) -> Exception:
        words = f"{self._endpoint}: {type(error).__name__}: {_OURS.sub('hf_...', str(error))}"
        if advice.is_certificate(words):
            return self._refused(Reason.SOURCE_UNREACHABLE, f"{words}; {advice.unreachable(words)}", final=False)
        return TransientError(f"{words}; {advice.unreachable(words)}")

    def _refused(self, reason: Reason, words: str, *, final: bool = True) -> StartError:
        return StartError(reason, f"{self._model.repo} at {self._model.revision[:10]}: {words}", final=final)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def offline(model: HuggingFaceModel, why: str) -> StartError:
    """It may not be fetched, and is not there."""
    return StartError(
        Reason.MODEL_NOT_FOUND,
        f"{model.repo} at {model.revision[:10]}: {why}, and no cache has it: fetch it once with the network into the"
        " claim of `server.cache`, or give the model as a claim (`pvc`)",
    )


def own_copy(model: HuggingFaceModel) -> str | None:
    """The folder of the hub's own cache that has this commit, by the hub's client."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return snapshot_download(model.repo, revision=model.revision, local_files_only=True)
    except (LocalEntryNotFoundError, OSError):
        return None


def why_offline(model: HuggingFaceModel) -> str:
    """Why no hub is asked; empty where one may be."""
    from huggingface_hub import constants

    if model.offline:
        return "`offline` is true"
    return "`HF_HUB_OFFLINE` is set" if constants.HF_HUB_OFFLINE else ""


def _wait(headers: Mapping[str, str]) -> float:
    """Seconds of a Retry-After; a date in it is not worth the reading."""
    told = headers.get("Retry-After", "")
    return float(told) if told.isdigit() else 0.0


def _authorities() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        named = os.environ.get("SSL_CERT_FILE", "")
        raise StartError(Reason.START_FAILED, f"`SSL_CERT_FILE` is {named}: {error}") from error
