"""An engine that is reached over TCP with TLS, where both sides show certificates."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import hermes_exec
from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.docker import DockerBackend
from tests.conftest import require_part
from tests.rigs.claims import free_port
from tests.rigs.docker_engine import DEBIAN, Dockerd, own_engine

if TYPE_CHECKING:
    from collections.abc import Generator

Signed = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def signed(name: str, by: Signed | None = None, usage: x509.ObjectIdentifier | None = None) -> Signed:
    """A certificate that is good for an hour, and its key; signed by itself when ``by`` nobody."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Python 3.13 and later take no authority that does not say so.
    purpose = x509.KeyUsage(
        digital_signature=by is not None, key_cert_sign=by is None, crl_sign=by is None, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    draft = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[0].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(purpose, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if by and usage:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(by[1].public_key())
        draft = draft.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        draft = draft.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        draft = draft.add_extension(above, critical=False)
    return draft.sign(by[1] if by else key, hashes.SHA256()), key


def keep(signature: Signed, certificate: Path, key: Path) -> None:
    certificate.write_bytes(signature[0].public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key.write_bytes(signature[1].private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[str, Path, Dockerd]]:
    """The address of an engine, the folder with what its clients have to show, and the engine."""
    own_engine()
    folder = tmp_path_factory.mktemp("certificates")
    authority = signed("authority")
    keep(authority, folder / "ca.pem", folder / "ca-key.pem")
    keep(signed("engine", authority, ExtendedKeyUsageOID.SERVER_AUTH), folder / "server.pem", folder / "server-key.pem")
    keep(signed("client", authority, ExtendedKeyUsageOID.CLIENT_AUTH), folder / "cert.pem", folder / "key.pem")
    port = free_port()
    files = {"cacert": "ca.pem", "cert": "server.pem", "key": "server-key.pem"}
    words = [f"--tls{option}={folder / name}" for option, name in files.items()]
    try:
        engine = Dockerd("--tlsverify", *words, f"--host=tcp://127.0.0.1:{port}")
    except RuntimeError as error:
        require_part("an engine with TLS", str(error), usable=False)
        raise
    yield f"tcp://127.0.0.1:{port}", folder, engine
    engine.remove()


@pytest.fixture
def backend(secured: tuple[str, Path, Dockerd], monkeypatch: pytest.MonkeyPatch) -> DockerBackend:
    address, folder, engine = secured
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(folder))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")  # as behind many proxies
    return DockerBackend(engine.profile(DEBIAN).model_copy(update={"engine": address}))


def test_commands_streams_and_files_go_through_it(run: Any, backend: DockerBackend, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "up").write_bytes(data)

    async def use() -> tuple[bytes, bytes]:
        async with hermes_exec.open(backend, audit=False, carrier="guest") as terminal:
            said = await terminal.run("cat; echo err >&2; exit 3", stdin=data)
            assert (said.exit_code, said.stderr) == (3, b"err\n")
            await terminal.upload(tmp_path / "up", "/up")
            await terminal.download("/up", tmp_path / "down")
            return said.stdout, (tmp_path / "down").read_bytes()

    assert run(use()) == (data, data)


def test_the_plain_carrier_ends_its_commands_input_through_it(run: Any, backend: DockerBackend) -> None:
    async def use() -> bytes:
        async with hermes_exec.open(backend, audit=False, carrier="plain") as terminal:
            return (await terminal.run(["cat"], stdin=b"to the end\n" * 1000)).stdout

    assert run(use()) == b"to the end\n" * 1000


def test_an_engine_of_another_authority_is_refused(
    run: Any,
    backend: DockerBackend,
    secured: tuple[str, Path, Dockerd],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(signed("impostor"), tmp_path / "ca.pem", tmp_path / "ca-key.pem")
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_bytes((secured[1] / name).read_bytes())
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(PlaceUnavailable, match=r"(?i)certificate"):
        run(backend.open())


def test_a_client_that_the_engine_does_not_know_is_refused(
    run: Any,
    backend: DockerBackend,
    secured: tuple[str, Path, Dockerd],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(signed("stranger"), tmp_path / "cert.pem", tmp_path / "key.pem")
    (tmp_path / "ca.pem").write_bytes((secured[1] / "ca.pem").read_bytes())
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(PlaceUnavailable):
        run(backend.open())
