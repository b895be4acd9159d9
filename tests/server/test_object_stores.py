"""Models and snapshots from object stores: a real S3 protocol on loopback, and a folder as a store."""

import hashlib
import json
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import certifi
import numpy as np
import pytest
from buckets import BUCKET, KEY, SECRET, Front, bucket, upload
from hub import Faults
from rag_server import pod_part, stood_in, store_snapshot
from safetensors.numpy import save_file

from tailhold_api.conditions import Reason
from tailhold_api.delivery import ObjectStoreFolder
from tailhold_api.sources import ClaimFolder, ModelSource, SnapshotSource
from tailhold_server.backends import choose_backend
from tailhold_server.delivery.deliver import Places, deliver_model, deliver_snapshot
from tailhold_server.delivery.transfer import Pace
from tailhold_server.delivery.trust import VARIABLES, trust
from tailhold_server.errors import ContentRefusedError, StartError
from tailhold_server.inspection.remote import model_facts
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots.read import open_snapshot

PIECE = 4096
PREFIX = "team/m"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials and no authorities of the machine that the tests run on."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_PROFILE", *VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["A"]}))
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    save_file({"words": np.arange(10_000, dtype=np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def where(tmp_path: Path) -> Places:
    secret = tmp_path / "secrets" / "bucket"
    secret.mkdir(parents=True)
    (secret / "AWS_ACCESS_KEY_ID").write_text(KEY)
    (secret / "AWS_SECRET_ACCESS_KEY").write_text(SECRET)
    pace = Pace(piece_bytes=PIECE, at_once=3, tries=4, sleep=lambda _: None)
    folders = {name: tmp_path / name for name in ("claims", "images", "secrets", "fetched")}
    return Places(**folders, pace=pace)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def store(there: Path, faults: Faults) -> Iterator[tuple[str, Any, Front]]:
    with bucket(faults) as (url, client, front):
        upload(client, there, PREFIX)
        yield url, client, front


def source(url: str, prefix: str = PREFIX, **more: Any) -> ModelSource:
    folder = ObjectStoreFolder(url=f"s3://{BUCKET}/{prefix}", endpoint=url, secret_name="bucket", **more)
    return ModelSource(object_store=folder)


def sums(folder: Path) -> bytes:
    names = sorted(each.name for each in folder.iterdir())
    return "".join(f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in names).encode()


def refusal(source: ModelSource, where: Places) -> StartError:
    with pytest.raises(StartError) as caught:
        deliver_model(source, where)
    return caught.value


def test_a_model_is_fetched_and_kept_under_what_the_prefix_held(
    store: tuple[str, Any, Front], there: Path, where: Places
) -> None:
    url, client, front = store
    folder = deliver_model(source(url), where)
    assert {each.name for each in folder.iterdir()} == {"config.json", "model.safetensors", ".tailhold.json"}
    assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
    before = len(front.sent)
    assert deliver_model(source(url), where) == folder
    assert len(front.sent) == before
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/config.json", Body=b'{"architectures": ["B"]}')
    other = deliver_model(source(url), where)
    assert other != folder, "another content is another copy: pods that run keep theirs"
    assert json.loads((other / "config.json").read_text()) == {"architectures": ["B"]}


@pytest.mark.parametrize("ordered", [{"busy": 3}, {"cut": 3}, {"busy": 1, "cut": 1}])
def test_what_fails_by_chance_is_tried_again_and_costs_its_piece_alone(
    store: tuple[str, Any, Front], there: Path, where: Places, faults: Faults, ordered: dict[str, int]
) -> None:
    for name, count in ordered.items():
        setattr(faults, name, count)
    url, _, front = store
    folder = deliver_model(source(url), where)
    assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
    assert sum(front.sent) <= sum(each.stat().st_size for each in there.iterdir()) + 3 * PIECE


def test_sums_beside_the_model_find_a_wrong_byte(
    store: tuple[str, Any, Front], there: Path, where: Places, faults: Faults
) -> None:
    url, client, _ = store
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/SHA256SUMS", Body=sums(there))
    faults.wrong = 1
    folder = deliver_model(source(url), where)
    assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/model.safetensors", Body=bytes(40_000))
    error = refusal(source(url), where)
    assert (error.reason, error.final) == (Reason.CHECKSUM_MISMATCH, True)
    assert "model.safetensors" in error.message


def test_a_pinned_prefix_is_asked_once_and_refused_when_it_changed(
    store: tuple[str, Any, Front], there: Path, where: Places, tmp_path: Path
) -> None:
    """C23."""
    url, client, front = store
    pinned = hashlib.sha256(sums(there)).hexdigest()
    assert "there is no SHA256SUMS" in refusal(source(url, sha256=pinned), where).message
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/SHA256SUMS", Body=sums(there))
    folder = deliver_model(source(url, sha256=pinned), where)
    before = len(front.asked)
    assert deliver_model(source(url, sha256=pinned), where) == folder
    assert len(front.asked) == before
    client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/SHA256SUMS", Body=sums(there) + b"\n")
    error = refusal(source(url, sha256=pinned), replace(where, fetched=tmp_path / "other"))
    assert (error.reason, pinned in error.message) == (Reason.CHECKSUM_MISMATCH, True)
    assert deliver_model(source(url, sha256=pinned), where) == folder, "what is there is what was pinned"


def test_keys_that_may_not_read_are_said_without_being_shown(
    store: tuple[str, Any, Front], where: Places, caplog: pytest.LogCaptureFixture
) -> None:
    url, _, _ = store
    secret = where.secrets / "bucket"
    (secret / "AWS_ACCESS_KEY_ID").write_text("AKIAWRONG")
    error = refusal(source(url), where)
    assert (error.reason, error.final) == (Reason.CREDENTIALS_REFUSED, True)
    for each in ("403", "InvalidAccessKeyId", "keys of Secret `bucket`"):
        assert each in error.message
    assert SECRET not in error.message + caplog.text

    (secret / "COLOUR").write_text("red")
    assert "'COLOUR' is not valid" in refusal(source(url), where).message.replace("colour", "COLOUR")
    for each in list(secret.iterdir()):
        each.unlink()
    assert "Secret `bucket` has no keys" in refusal(source(url), where).message


def test_what_is_not_there_is_named(store: tuple[str, Any, Front], where: Places) -> None:
    url, _, _ = store
    error = refusal(source(url, "team/none"), where)
    assert (error.reason, "correct `url`" in error.message) == (Reason.MODEL_NOT_FOUND, True)
    folder = ObjectStoreFolder(url="s3://none/m", endpoint=url, secret_name="bucket")
    error = refusal(ModelSource(object_store=folder), where)
    assert (error.reason, "NoSuchBucket" in error.message) == (Reason.MODEL_NOT_FOUND, True)


def test_a_store_that_does_not_answer_is_tried_again_with_the_same_words(where: Places) -> None:
    """Words that differ each time would change the status each time."""
    told = {refusal(source("http://127.0.0.1:9"), where).message for _ in range(3)}
    assert len(told) == 1
    assert "Connection refused" in told.pop()


def test_an_inspection_reads_headers_where_they_are(store: tuple[str, Any, Front], where: Places) -> None:
    url, _, front = store
    folder, weights = model_facts(source(url), where)
    assert (weights.parameters, weights.size, weights.dtype) == (10_000, 40_000, "F32")
    assert not (folder / "model.safetensors").exists()
    assert sum(front.sent) < 1000


def test_a_folder_is_a_store_too(there: Path, where: Places) -> None:
    (there / "SHA256SUMS").write_bytes(sums(there))
    folder = deliver_model(ModelSource(object_store=ObjectStoreFolder(url=f"file://{there}")), where)
    assert (folder / "model.safetensors").read_bytes() == (there / "model.safetensors").read_bytes()
    none = ModelSource(object_store=ObjectStoreFolder(url=f"file://{there}/none"))
    assert refusal(none, where).reason is Reason.MODEL_NOT_FOUND


@pytest.fixture
def snapshots(tmp_path: Path) -> tuple[Path, str]:
    """A claim that an index Job wrote, and the snapshot on it."""
    claim = tmp_path / "claims" / "snapshots"
    return claim, store_snapshot(claim)


def test_a_snapshot_comes_from_a_store_and_is_what_its_digest_says(
    store: tuple[str, Any, Front], snapshots: tuple[Path, str], where: Places, faults: Faults
) -> None:
    url, client, front = store
    claim, digest = snapshots
    upload(client, claim / "snapshots", "indexes")
    given = SnapshotSource(
        object_store=ObjectStoreFolder(url=f"s3://{BUCKET}/indexes", endpoint=url, secret_name="bucket")
    )
    faults.cut = 1
    folder = deliver_snapshot(given, digest, where)
    assert len(open_snapshot(folder, digest).chunks) > 0
    before = len(front.asked)
    assert deliver_snapshot(given, digest, where) == folder
    assert len(front.asked) == before
    with pytest.raises(StartError, match="0000"):
        deliver_snapshot(given, "0" * 64, where)


def test_a_snapshot_that_was_changed_in_the_store_is_refused(
    store: tuple[str, Any, Front], snapshots: tuple[Path, str], where: Places
) -> None:
    url, client, _ = store
    claim, digest = snapshots
    upload(client, claim / "snapshots", "indexes")
    name = f"indexes/{digest}/vectors.f32"
    size = len(client.get_object(Bucket=BUCKET, Key=name)["Body"].read())
    client.put_object(Bucket=BUCKET, Key=name, Body=bytes(size))
    given = SnapshotSource(
        object_store=ObjectStoreFolder(url=f"s3://{BUCKET}/indexes", endpoint=url, secret_name="bucket")
    )
    with pytest.raises(StartError) as caught:
        deliver_snapshot(given, digest, where)
    assert caught.value.reason is Reason.CHECKSUM_MISMATCH


def test_the_server_opens_a_given_snapshot_and_refuses_one_that_is_not_there(
    snapshots: tuple[Path, str], tmp_path: Path
) -> None:
    _, digest = snapshots
    source = SnapshotSource(pvc=ClaimFolder(claim_name="snapshots", path="snapshots"))
    pod = stood_in(pod_part()).model_copy(update={"store": None, "snapshots": source})
    settings = ServerSettings(claims=tmp_path / "claims")
    backend = choose_backend(pod, settings)
    assert backend.opener(digest).snapshot == digest
    with pytest.raises(ContentRefusedError, match="0000"):
        backend.opener("0" * 64)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority's certificate, and beside it that of a server that it vouches for."""
    folder = tmp_path_factory.mktemp("company")
    (folder / "leaf.ext").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    new = ["req", "-newkey", "rsa:2048", "-nodes", "-subj"]
    sign = ["x509", "-req", "-in", "leaf.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
    for words in (
        [*new, "/CN=company", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt"],
        [*new, "/CN=127.0.0.1", "-keyout", "leaf.key", "-out", "leaf.csr"],
        [*sign, "-extfile", "leaf.ext", "-out", "leaf.crt"],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)
    return folder / "ca.crt"


def test_a_companys_authority_is_trusted_beside_the_public_ones(
    there: Path, where: Places, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C114: by Python's libraries and by the object store's alike, and no public root is lost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.with_name("leaf.crt"), authority.with_name("leaf.key"))
    with bucket(certificates=context) as (url, client, _):
        upload(client, there, PREFIX)
        error = refusal(source(url), where)
        assert error.reason is Reason.SOURCE_UNREACHABLE
        assert "`pod.trust`" in error.message

        for name in VARIABLES:
            monkeypatch.setenv(name, "")  # so that it is taken away afterwards
            monkeypatch.delenv(name)
        monkeypatch.setenv("TAILHOLD_TRUST", str(authority.parent))
        monkeypatch.setenv("TAILHOLD_TRUST_BUNDLE", str(tmp_path / "trust.pem"))
        roots = ssl.create_default_context(cafile=certifi.where()).cert_store_stats()["x509_ca"]
        bundle = trust()
        assert bundle == trust() == tmp_path / "trust.pem", "a container that starts again"
        trusted = ssl.create_default_context(cafile=str(bundle)).cert_store_stats()["x509_ca"]
        assert trusted > roots > 0
        assert (deliver_model(source(url), where) / "config.json").is_file()


def test_a_file_that_holds_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(StartError, match=r"`pod\.trust`"):
        trust({"TAILHOLD_TRUST": str(tmp_path)})
    assert trust({"TAILHOLD_TRUST": str(tmp_path / "none")}) is None
