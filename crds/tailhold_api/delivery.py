"""Places that files are fetched from, or mounted from, before a pod can serve."""

from enum import StrEnum
from typing import ClassVar

from tailhold_api.fields import Model, Rule, restart
from tailhold_api.grammar import KEY, NAME, WITHIN, one_of


class HuggingFaceModel(Model):
    """A model on the hub or a mirror of it, pinned to a commit. Only safetensors, configs and tokenizers are fetched,
    each checked against the hub's own digest of it."""

    repo: str = restart(min_length=3, max_length=200, pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")
    """Owner and name on the hub, as in `HuggingFaceTB/SmolLM2-135M-Instruct`."""
    revision: str = restart(min_length=40, max_length=40, pattern=r"^[0-9a-f]{40}$")
    """The commit, 40 hex digits. A branch is refused: pods of one revision would run different weights."""
    token_secret_name: str | None = restart(None, **NAME)
    """A Secret of the pipeline's namespace whose key `token` is a token of the hub: for gated and private models. It is
    mounted as a file, read when something is fetched, and never logged. Without a cluster the hub's own `HF_TOKEN`
    and login are used where no such Secret is there."""
    endpoint: str | None = restart(None, max_length=500, pattern=r"^https?://[^ ?#]+$")
    """A mirror that speaks the hub's protocol, as `https://hub.example.com`. The variable `HF_ENDPOINT` where it is not
    given, or else the public hub."""
    offline: bool = restart(False)
    """Ask no hub at all: the model has to be in the cache already (`server.cache`, or the hub's own at `HF_HOME`), and
    a start without it ends at once and says so."""


class ObjectStoreFolder(Model):
    """A prefix in an object store. A file `SHA256SUMS` under it, as `sha256sum` writes it, is held against all that is
    fetched; without one, sizes and ETags are."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.anonymous || !has(self.secretName)",
            "`anonymous` may not be true beside `secretName`: take one of them away",
            {"url": "s3://models/smollm2", "anonymous": True},
            {"url": "s3://models/smollm2", "anonymous": True, "secretName": "bucket"},
        ),
        Rule(
            r"!self.url.matches('(^|/)\\.\\.?(/|$)')",
            "`url` may not have `.` or `..` as a step of its path: name the prefix itself",
            {"url": "s3://models/a..b"},
            {"url": "s3://models/a/../b"},
        ),
    )

    url: str = restart(max_length=1000, pattern=r"^(s3://|gs://|az://|file:///)[^ ?#]+$")
    """`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or `file:///folder` for a folder of
    the container or machine."""
    endpoint: str | None = restart(None, max_length=500, pattern=r"^https?://[^ ?#]+$")
    """Address of a store that speaks S3's protocol but is not Amazon's, or of Azure's emulator, as
    `https://minio.example.com:9000`."""
    region: str | None = restart(None, min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")
    """Region of an `s3://` bucket. The variable `AWS_REGION` where it is not given, or else `us-east-1`."""
    secret_name: str | None = restart(None, **NAME)
    """A Secret of the pipeline's namespace whose keys are the store's own names: `AWS_ACCESS_KEY_ID` and
    `AWS_SECRET_ACCESS_KEY`; `GOOGLE_SERVICE_ACCOUNT_KEY`; `AZURE_STORAGE_ACCOUNT_NAME` and
    `AZURE_STORAGE_ACCOUNT_KEY` or `AZURE_STORAGE_SAS_KEY`. It is mounted as files and never logged.
    Without it the pod's workload identity or its variables are used."""
    anonymous: bool = restart(False)
    """Sign nothing: for public buckets."""
    sha256: str | None = restart(None, min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}$")
    """Digest of the file `SHA256SUMS`, which pins every byte: what is in the cache is then used without asking the
    store, and another `SHA256SUMS` is refused. Without it each start takes what the prefix holds by then."""


class PullPolicy(StrEnum):
    """When a node asks the registry for an image."""

    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"
    NEVER = "Never"


class ImageFolder(Model):
    """A folder in an image or OCI artefact, mounted by kubelet as an image volume. It needs Kubernetes' feature gate
    `ImageVolume` and a container runtime that can. Kubernetes 1.34 has the gate off by default, and then drops the
    volume from the pod without a word: the inspection Job finds that out before anything else is started."""

    reference: str = restart(min_length=1, max_length=500, pattern=r"^[^ ]+$")
    """The image, as `registry.example.com/models/smollm2@sha256:...`. Prefer a digest: a tag may move under a running
    revision. Pulled with the pod's `imagePullSecrets`."""
    pull_policy: PullPolicy = restart(PullPolicy.IF_NOT_PRESENT)
    """When a node asks the registry for it."""
    path: str = restart(".", **WITHIN)
    """Folder within the image."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            r"!self.path.matches('(^|/)\\.\\.(/|$)')",
            "`path` may not have `..`: name a folder within the image",
            {"reference": "models:1", "path": "a/..b"},
            {"reference": "models:1", "path": "a/../b"},
        ),
    )


class CertificateKey(Model):
    """A key of a ConfigMap or Secret that holds certificates."""

    name: str = restart(**NAME)
    """The object's name, in the pipeline's namespace."""
    key: str = restart("ca.crt", **KEY)
    """Its key: one certificate or several in PEM."""


class Trust(Model):
    """Certificates of authorities that are trusted beside the public ones. Exactly one of `configMap` and `secret`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "configMap",
            "secret",
            accepted={"configMap": {"name": "company-ca"}},
            refused={"configMap": {"name": "company-ca"}, "secret": {"name": "company-ca"}},
        ),
    )

    config_map: CertificateKey | None = None
    """In a ConfigMap, as trust-manager makes one."""
    secret: CertificateKey | None = None
    """In a Secret, as cert-manager makes one."""


class Cache(Model):
    """Where fetched models and snapshots are kept."""

    claim_name: str = restart(**NAME)
    """A persistent volume claim that all of the pipeline's pods can mount and write (ReadWriteMany for more than one
    node). One pod fetches, the others wait for it and read the same files; a restart fetches nothing. Without a claim
    each pod fetches into its own `placement.cacheMebibytes`."""
