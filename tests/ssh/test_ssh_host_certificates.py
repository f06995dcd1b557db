"""A host that somebody vouches for: ``@cert-authority`` lines of known_hosts."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceUnavailable
from tests.rigs.sshd import Sshd
from tests.ssh.conftest import said

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hermes_exec_backends.profiles.ssh import SshProfile


@pytest.fixture(scope="module")
def vouched() -> Generator[Sshd]:
    """A server with a certificate for 127.0.0.1, signed by ``authority``."""
    sshd = Sshd(settings="HostCertificate {folder}/host_key-cert.pub")
    sshd.new_key("authority")
    sshd.new_key("stranger")
    _sign(sshd, "-n", "127.0.0.1")
    with sshd:
        yield sshd


def _sign(sshd: Sshd, *options: str, host: bool = True, by: str = "authority") -> None:
    words = ["ssh-keygen", "-q", "-s", str(sshd.folder / by), "-I", "test", *(["-h"] if host else []), *options]
    subprocess.run([*words, f"{sshd.host_key}.pub"], check=True, stderr=subprocess.DEVNULL)


def _trusting(sshd: Sshd, folder: Path, names: str, *, by: str = "authority", also: str = "") -> SshProfile:
    hosts = folder / "known_hosts"
    hosts.write_text(f"@cert-authority {names} {(sshd.folder / f'{by}.pub').read_text()}{also}")
    return sshd.profile(known_hosts_path=str(hosts))


@pytest.mark.parametrize("names", ["127.0.0.1", "127.0.0.*", "*", "other,127.*", "[127.0.0.1]:*"])
def test_a_host_is_known_by_who_vouches_for_it(vouched: Sshd, tmp_path: Path, names: str) -> None:
    assert said(_trusting(vouched, tmp_path, names)) == "in\n"


@pytest.mark.parametrize("names", ["127.0.0.2", "*,!127.0.0.1", "*.example.com"])
def test_nobody_vouches_for_hosts_that_they_are_not_let_vouch_for(vouched: Sshd, tmp_path: Path, names: str) -> None:
    with pytest.raises(PlaceUnavailable, match="is not known here"):
        said(_trusting(vouched, tmp_path, names))


def test_a_stranger_vouches_for_nobody(vouched: Sshd, tmp_path: Path) -> None:
    with pytest.raises(PlaceUnavailable, match="is not known here"):
        said(_trusting(vouched, tmp_path, "*", by="stranger"))


def test_who_is_marked_as_revoked_vouches_for_nobody(vouched: Sshd, tmp_path: Path) -> None:
    revoked = f"@revoked * {(vouched.folder / 'authority.pub').read_text()}"
    with pytest.raises(PlaceUnavailable, match="is not known here"):
        said(_trusting(vouched, tmp_path, "*", also=revoked))


@pytest.mark.parametrize(
    ("options", "host"),
    [
        (["-n", "127.0.0.9"], True),
        (["-n", "127.0.0.1", "-V", "-2d:-1d"], True),
        (["-n", "127.0.0.1", "-V", "+1d:+2d"], True),
        (["-n", "127.0.0.1"], False),
    ],
    ids=["another-host", "over", "not-yet", "of-a-user"],
)
def test_a_certificate_that_does_not_fit_proves_nothing(tmp_path: Path, options: list[str], host: bool) -> None:
    sshd = Sshd(settings="HostCertificate {folder}/host_key-cert.pub")
    sshd.new_key("authority")
    _sign(sshd, *options, host=host)
    with sshd, pytest.raises(PlaceUnavailable, match=r"is not known here|not an SSH server that we can talk to"):
        said(_trusting(sshd, tmp_path, "*"))


def test_the_key_alone_is_enough_where_it_is_known(vouched: Sshd, tmp_path: Path) -> None:
    known = (vouched.folder / "known_hosts").read_text()
    assert said(_trusting(vouched, tmp_path, "*", by="stranger", also=known)) == "in\n"
