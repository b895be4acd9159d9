"""TLS over real sockets: what is spoken, who is let in, and certificates that change while it serves."""

import asyncio
import socket
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import uvicorn
from certificates import CertificateAuthority, Pair, key_pem
from cryptography.hazmat.primitives.asymmetric import ec
from program_process import Starter, free_port
from rag_server import body, pod_part, running
from secret_folder import replace, swap

from tailhold.ask import AskError, Endpoint, ask
from tailhold_api.access import ApiKeys, Auth, InternalTls, Tls
from tailhold_api.rpc import Grpc
from tailhold_api.spec import Program
from tailhold_server.access.access import Access, open_access
from tailhold_server.access.watched import KEPT_SECONDS
from tailhold_server.app import create_app
from tailhold_server.errors import StartError
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.server import RpcServer
from tailhold_server.telemetry import Telemetry

AUTHORITY = CertificateAuthority()
CLIENTS = CertificateAuthority("clients")
FIRST, SECOND = AUTHORITY.signed("first"), AUTHORITY.signed("second")


def files(pair: Pair) -> dict[str, bytes | str]:
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


@dataclass
class Site:
    """A served pipeline with its Secrets."""

    folder: Path
    access: Access
    url: str
    grpc_port: int
    telemetry: Telemetry

    def renew(self, pair: Pair) -> None:
        replace(self.folder / "tls", files(pair))

    def trust(self, authority: CertificateAuthority) -> None:
        replace(self.folder / "ca", {"ca.crt": authority.pem})


@asynccontextmanager
async def serving(
    folder: Path, *, mutual: bool = False, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Site]:
    """The surfaces behind TLS on loopback."""
    replace(folder / "tls", files(FIRST))
    replace(folder / "ca", {"ca.crt": CLIENTS.pem})
    program = Program(tls=Tls(secret_name="tls", client_ca_secret_name="ca" if mutual else None))
    async with running() as server:
        access = open_access(program, folder, server.service.telemetry, server.service.tenant_of, clock)
        assert access.certificates is not None
        context, port = access.certificates.context, free_port()
        app: Any = create_app(server.service, server.settings)
        config = uvicorn.Config(app, port=port, log_config=None, lifespan="off", ssl_context_factory=lambda *_: context)
        http = uvicorn.Server(config)
        task = asyncio.ensure_future(http.serve())
        rpc, rpc_port = RpcServer(server.service, Grpc(), None, access.certificates), free_port()
        await rpc.start("127.0.0.1", rpc_port)
        while not http.started:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.01)
        try:
            yield Site(folder, access, f"https://127.0.0.1:{port}", rpc_port, server.service.telemetry)
        finally:
            http.should_exit = True
            await rpc.drain(0)
            await task


def trusting(pair: Pair | None = None, folder: Path | None = None) -> ssl.SSLContext:
    """A client's context; `pair` is its certificate."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    if pair and folder:
        (folder / "client.pem").write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(folder / "client.pem")
    return context


async def spoken(site: Site, context: ssl.SSLContext) -> tuple[str, str]:
    """Version and certificate of a new connection that gets an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(site.url.rpartition(":")[2]), ssl=context)
    writer.write(b"GET /v1/models HTTP/1.1\r\nhost: docs\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    connection = writer.get_extra_info("ssl_object")
    writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ssl.SSLError("closed")
    subject = dict(each[0] for each in connection.getpeercert()["subject"])
    return connection.version(), subject["commonName"]


async def test_it_speaks_tls_of_today_and_nothing_older(tmp_path: Path) -> None:
    async with serving(tmp_path) as site:
        assert await spoken(site, trusting()) == ("TLSv1.3", "first")
        newest = trusting()
        newest.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await spoken(site, newest) == ("TLSv1.2", "first")
        with pytest.raises(ssl.SSLCertVerificationError):
            await spoken(site, ssl.create_default_context())
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.TransportError):
                await client.get(site.url.replace("https", "http") + "/v1/models")


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """The version that both agree on, without a socket."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server)]
    for _ in range(6):
        for end in reversed(ends):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[1].version()


def test_tls_1_1_is_refused_to_clients_that_know_nothing_newer(tmp_path: Path) -> None:
    old = trusting()
    old.check_hostname = False
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    replace(tmp_path / "tls", files(FIRST))
    access = open_access(Program(tls=Tls(secret_name="tls")), tmp_path, Telemetry(), lambda _: "")
    assert access.certificates is not None
    with pytest.raises(ssl.SSLError, match=r"(?i)version|protocol"):
        shaken(access.certificates.context, old)
    lax = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    lax.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        lax.minimum_version = ssl.TLSVersion.TLSv1_1
    lax.load_cert_chain(tmp_path / "tls" / "tls.crt", tmp_path / "tls" / "tls.key")
    assert shaken(lax, old) == "TLSv1.1", "the client would"


async def test_a_renewed_certificate_is_taken_up_and_cuts_no_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as site, httpx.AsyncClient(verify=trusting(), trust_env=False) as kept:
        assert (await kept.get(f"{site.url}/v1/models")).status_code == 200
        stream = kept.stream("POST", f"{site.url}/v1/chat/completions", json=body(stream=True))
        async with stream as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            site.renew(SECOND)
            await site.access.refresh()
            assert [line async for line in lines][-2] == "data: [DONE]"
        assert (await spoken(site, trusting()))[1] == "second"
        opened = len(kept._transport._pool.connections)  # type: ignore[attr-defined]
        assert (await kept.get(f"{site.url}/v1/models")).status_code == 200
        assert len(kept._transport._pool.connections) == opened == 1  # type: ignore[attr-defined]


def half_of_another() -> dict[str, bytes | str]:
    return {"tls.crt": SECOND.certificate, "tls.key": FIRST.key}


def with_password() -> dict[str, bytes | str]:
    return {"tls.crt": FIRST.certificate, "tls.key": key_pem(ec.generate_private_key(ec.SECP256R1()), b"secret")}


BROKEN: dict[str, dict[str, bytes | str]] = {
    "the key of another": half_of_another(),
    "a key with a password": with_password(),
    "no PEM": {"tls.crt": "nonsense", "tls.key": "nonsense"},
    "empty": {"tls.crt": "", "tls.key": ""},
    "no key": {"tls.crt": SECOND.certificate},
    "nothing": {},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_broken_certificate_leaves_the_old_one_and_is_said(
    broken: dict[str, bytes | str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as site:
        replace(tmp_path / "tls", broken)
        for _ in range(3):
            await site.access.refresh()
        assert (await spoken(site, trusting()))[1] == "first"
        said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert len(said) == 1
        assert str(tmp_path / "tls") in said[0]
        assert 'tailhold_access_current{what="certificate"} 0.0' in site.telemetry.text()
        site.renew(SECOND)
        await site.access.refresh()
        assert (await spoken(site, trusting()))[1] == "second"
        assert 'tailhold_access_current{what="certificate"} 1.0' in site.telemetry.text()


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_start_without_a_usable_certificate_says_so(broken: dict[str, bytes | str], tmp_path: Path) -> None:
    replace(tmp_path / "tls", broken)
    with pytest.raises(StartError, match="tls"):
        open_access(Program(tls=Tls(secret_name="tls")), tmp_path, Telemetry(), lambda _: "")


async def refused(site: Site, context: ssl.SSLContext) -> bool:
    try:
        await spoken(site, context)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


async def test_mutual_tls_lets_in_whom_the_authorities_signed_and_nobody_else(tmp_path: Path) -> None:
    newer = CertificateAuthority("newer clients")
    ada, eve = CLIENTS.signed("ada"), newer.signed("eve")
    async with serving(tmp_path, mutual=True) as site:
        assert await refused(site, trusting())
        assert await refused(site, trusting(eve, tmp_path))
        assert not await refused(site, trusting(ada, tmp_path))
        site.trust(newer)
        await site.access.refresh()
        assert not await refused(site, trusting(eve, tmp_path))
        assert await refused(site, trusting(ada, tmp_path)), "an authority that is taken out signs nobody any more"


async def test_of_a_broken_bundle_the_authorities_that_can_be_read_hold_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newer = CertificateAuthority("newer clients")
    ada, eve = CLIENTS.signed("ada"), newer.signed("eve")
    async with serving(tmp_path, mutual=True) as site:
        broken = CLIENTS.pem.replace(b"MII", b"!!!", 1)
        replace(tmp_path / "ca", {"ca.crt": broken + newer.pem})
        for _ in range(3):
            await site.access.refresh()
        assert not await refused(site, trusting(eve, tmp_path))
        assert await refused(site, trusting(ada, tmp_path)), "what the newest file does not hold is not trusted"
        said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert len(said) == 1
        assert "certificate 1 cannot be read" in said[0]
        assert 'tailhold_access_current{what="client_authorities"} 0.0' in site.telemetry.text()
        assert 'tailhold_access_current{what="certificate"} 1.0' in site.telemetry.text()
        told = site.access.told()["clientAuthorities"]
        assert (told["current"], told["closed"], "certificate 1 " in told["lacks"]) == (False, False, True)
        site.trust(newer)
        await site.access.refresh()
        assert 'tailhold_access_current{what="client_authorities"} 1.0' in site.telemetry.text()
        assert site.access.told()["clientAuthorities"]["current"]


@pytest.mark.parametrize("files_", [{"ca.crt": "nonsense"}, {"ca.crt": ""}, {}], ids=["nonsense", "empty", "gone"])
async def test_a_bundle_without_any_authority_lets_nobody_in_once_five_minutes_are_over(
    files_: dict[str, bytes | str], tmp_path: Path
) -> None:
    """One that was taken out would be trusted for ever."""
    now = [0.0]
    ada = CLIENTS.signed("ada")
    async with serving(tmp_path, mutual=True, clock=lambda: now[0]) as site:
        replace(tmp_path / "ca", files_)
        await site.access.refresh()
        assert 'tailhold_access_current{what="client_authorities"} 0.0' in site.telemetry.text()
        now[0] = KEPT_SECONDS - 1
        await site.access.refresh()
        assert not await refused(site, trusting(ada, tmp_path))
        assert await asyncio.to_thread(ask_grpc, site.grpc_port, AUTHORITY.pem, ada)
        now[0] = KEPT_SECONDS + 1
        assert await refused(site, trusting(ada, tmp_path)), "also where no look comes back"
        with pytest.raises(grpc.RpcError):
            await asyncio.to_thread(ask_grpc, site.grpc_port, AUTHORITY.pem, ada)
        assert site.access.told()["clientAuthorities"]["closed"]
        site.trust(CLIENTS)
        await site.access.refresh()
        assert not await refused(site, trusting(ada, tmp_path))
        assert await asyncio.to_thread(ask_grpc, site.grpc_port, AUTHORITY.pem, ada)


async def test_an_authority_that_is_taken_out_goes_though_the_certificate_is_broken(tmp_path: Path) -> None:
    newer = CertificateAuthority("newer clients")
    ada, eve = CLIENTS.signed("ada"), newer.signed("eve")
    async with serving(tmp_path, mutual=True) as site:
        replace(tmp_path / "tls", half_of_another())
        site.trust(newer)
        await site.access.refresh()
        assert not await refused(site, trusting(eve, tmp_path))
        assert await refused(site, trusting(ada, tmp_path))
        assert site.access.told()["certificate"]["current"] is False


def session_of(
    site: Site, context: ssl.SSLContext, before: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, bool]:
    """The session of a new connection that gets an answer, and whether it was resumed."""
    address = ("127.0.0.1", int(site.url.rpartition(":")[2]))
    with (
        socket.create_connection(address, timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=before) as connection,
    ):
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: docs\r\nconnection: close\r\n\r\n")
        if not connection.recv(100):
            raise ssl.SSLError("closed")
        return connection.session, bool(connection.session_reused)


async def test_a_session_of_a_client_is_not_resumed_without_its_certificate(tmp_path: Path) -> None:
    """A resumed one shows none: who is no longer trusted would go on. TLS 1.2 cannot be kept from it."""
    context, older = (trusting(CLIENTS.signed("ada"), tmp_path) for _ in range(2))
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    async with serving(tmp_path, mutual=True) as site:
        session, _ = await asyncio.to_thread(session_of, site, context, None)
        _, resumed = await asyncio.to_thread(session_of, site, context, session)
        assert not resumed
        assert await refused(site, older)
        site.trust(CertificateAuthority("newer clients"))
        await site.access.refresh()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(session_of, site, context, session)


def ask_grpc(port: int, authority: bytes, pair: Pair | None = None) -> list[Any]:
    credentials = grpc.ssl_channel_credentials(
        authority, pair.key if pair else None, pair.certificate if pair else None
    )
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=[("grpc.use_local_subchannel_pool", 1)]) as one:
        call = one.unary_stream("/tailhold.v1.Rag/Ask", api.AskRequest.SerializeToString, api.AskResponse.FromString)
        return list(call(api.AskRequest(messages=[api.Message(role=api.ROLE_USER, text="When?")]), timeout=10))


async def test_grpc_has_the_same_certificate_and_the_same_clients(tmp_path: Path) -> None:
    other = CertificateAuthority("another")
    async with serving(tmp_path, mutual=True) as site:
        ada = CLIENTS.signed("ada")
        assert await asyncio.to_thread(ask_grpc, site.grpc_port, AUTHORITY.pem, ada)
        for pair in (None, other.signed("eve")):
            with pytest.raises(grpc.RpcError):
                await asyncio.to_thread(ask_grpc, site.grpc_port, AUTHORITY.pem, pair)
        site.renew(other.signed("renewed"))
        await site.access.refresh()
        assert await asyncio.to_thread(ask_grpc, site.grpc_port, other.pem, ada)


def test_the_whole_program_speaks_tls_on_both_ports_and_asks_for_keys(
    start_stand_in: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet checks no certificate and has none; the operator checks the Service's name."""
    key = "ada-0123456789abcdef"
    pair = AUTHORITY.signed("pod", "docs.team.svc")
    replace(tmp_path / "secrets" / "tls", files(pair))
    swap(tmp_path / "secrets" / "clients", ada=key)
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem)
    spec = Program(
        auth=Auth(api_keys=ApiKeys(secret_name="clients")), tls=Tls(secret_name="tls", internal=InternalTls.ON)
    )
    pod = pod_part().model_copy(update={"server": spec})
    program = start_stand_in(pod=pod, wait=False, TAILHOLD_SECRETS=str(tmp_path / "secrets"))
    inside, outside = f"https://127.0.0.1:{program.internal_port}", f"https://127.0.0.1:{program.port}/v1"

    def ready() -> bool:
        try:
            return httpx.get(f"{inside}/readyz", verify=False, trust_env=False).status_code == 200  # noqa: S501
        except httpx.TransportError:
            return False

    program.wait_until(ready)
    with httpx.Client(verify=trusting(), trust_env=False) as operator:
        told = operator.get(f"{inside}/v1/tuning", extensions={"sni_hostname": "docs.team.svc"})
        assert told.json()["ready"]
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.Client(verify=trusting(), trust_env=False).get(
                f"{inside}/v1/tuning", extensions={"sni_hostname": "other.team.svc"}
            )
    ca = tmp_path / "ca.pem"
    assert ask(Endpoint(outside, key, ca), "When?", on_text=lambda _: None).text.startswith("You asked")
    with pytest.raises(AskError, match=r"401.*--api-key"):
        ask(Endpoint(outside, None, ca), "When?", on_text=lambda _: None)
    with pytest.raises(AskError, match="--ca-file"):
        ask(Endpoint(outside, key), "When?", on_text=lambda _: None)
    assert program.stop() == 0
