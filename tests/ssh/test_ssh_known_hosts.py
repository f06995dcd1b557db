"""A host is only believed to be itself when its key is known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceUnavailable
from tests.ssh.conftest import said

if TYPE_CHECKING:
    from tests.rigs.sshd import Sshd


def test_an_unknown_host_is_refused_with_its_fingerprint(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(PlaceUnavailable, match=r"is not known here \(its key is ED25519 SHA256:"):
        said(sshd.profile(known_hosts_path=str(tmp_path / "none")))


def test_an_unknown_host_is_taken_at_its_word_only_when_asked_and_then_known(sshd: Sshd, tmp_path: Path) -> None:
    hosts = tmp_path / "folder" / "known_hosts"
    assert said(sshd.profile(known_hosts_path=str(hosts), accept_new=True)) == "in\n"
    assert hosts.read_text() == (sshd.folder / "known_hosts").read_text()
    assert said(sshd.profile(known_hosts_path=str(hosts))) == "in\n"


def test_a_changed_key_is_refused_even_so_and_the_way_to_check_is_told(sshd: Sshd, tmp_path: Path) -> None:
    hosts = tmp_path / "known_hosts"
    other = sshd.new_key("other_host").with_suffix(".pub").read_text().split()[:2]
    before = f"# a line\n[127.0.0.1]:{sshd.port} {' '.join(other)}\n"
    hosts.write_text(before)
    with pytest.raises(PlaceUnavailable, match=f"another key .* {hosts} line 2") as caught:
        said(sshd.profile(known_hosts_path=str(hosts), accept_new=True))
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {hosts}" in str(caught.value)
    assert hosts.read_text() == before


def test_a_revoked_key_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    hosts = tmp_path / "known_hosts"
    shutil.copy(sshd.folder / "known_hosts", hosts)
    key = " ".join(Path(f"{sshd.host_key}.pub").read_text().split()[:2])
    with hosts.open("a") as file:
        file.write(f"@revoked * {key}\n")
    with pytest.raises(PlaceUnavailable, match="revoked"):
        said(sshd.profile(known_hosts_path=str(hosts)))


def test_a_hashed_name_is_known(sshd: Sshd, tmp_path: Path) -> None:
    import subprocess

    hosts = tmp_path / "known_hosts"
    shutil.copy(sshd.folder / "known_hosts", hosts)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(hosts)], check=True, capture_output=True)
    assert hosts.read_text().startswith("|1|")
    assert said(sshd.profile(known_hosts_path=str(hosts))) == "in\n"
