"""The OpenSSH client's own files: whom they mean by a name, and the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import ConfigError
from hermes_exec_backends.profiles.ssh import SshProfile
from hermes_exec_backends.ssh.host import Host, resolve
from tests.rigs.sshd import Sshd
from tests.ssh.conftest import said

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def meant(home: Path, text: str, host: str = "cluster", **options: Any) -> Host:
    (home / ".ssh" / "config").write_text(text)
    return resolve(SshProfile.model_validate({"host": host, **options}))


def test_a_host_block_gives_name_port_user_and_key(home: Path) -> None:
    text = "Host cluster\n  HostName login.example.com\n  Port 2222\n  User ada\n  IdentityFile ~/.ssh/cluster\n"
    host = meant(home, text)
    assert (host.address, host.port, host.user) == ("login.example.com", 2222, "ada")
    assert host.keys == (home / ".ssh/cluster",)
    assert host.known_as == "[login.example.com]:2222"


def test_the_profile_comes_before_the_file(home: Path) -> None:
    host = meant(home, "Host *\n  Port 2222\n  User ada\n", user="bob", port=23)
    assert (host.port, host.user) == (23, "bob")


def test_other_hosts_blocks_do_not_count(home: Path) -> None:
    host = meant(home, "Host other !cluster\n  User ada\nHost clus*\n  User carol\n")
    assert host.user == "carol"


def test_includes_are_followed_with_patterns_and_from_the_right_folder(home: Path) -> None:
    folder = home / ".ssh" / "config.d"
    folder.mkdir()
    (folder / "one.conf").write_text("Host cluster\n  User ada\n")
    (folder / "two.conf").write_text("Host cluster\n  Port 2022\n")
    host = meant(home, "Include config.d/*.conf\nHost *\n  User late\n")
    assert (host.user, host.port) == ("ada", 2022)


def test_an_include_in_a_block_counts_for_its_hosts_only(home: Path) -> None:
    (home / ".ssh" / "more").write_text("Host cluster\n  User ada\n")
    text = "Host other\n  Include more\nHost *\n  User everybody\n"
    assert meant(home, text).user == "everybody"
    text = "Host cluster\n  Include more\n  Port 99\nHost *\n  User everybody\n"
    assert (meant(home, text).user, meant(home, text).port) == ("ada", 99)


def test_an_include_below_a_match_counts_where_that_matches(home: Path) -> None:
    (home / ".ssh" / "more").write_text("User ada\nHost cluster\n  Port 99\nHost other\n  Port 98\n")
    matching = "Match originalhost cluster user carol\n  Include more\n  Compression yes\nHost *\n  User everybody\n"
    host = meant(home, matching, user="carol")
    assert (host.user, host.port, host.compression) == ("carol", 99, True)
    host = meant(home, matching)
    assert (host.user, host.port, host.compression) == ("everybody", 22, False)


def test_a_match_sees_the_name_that_was_found_before(home: Path) -> None:
    (home / ".ssh" / "more").write_text("User ada\n")
    text = "Host cluster\n  HostName login.example.com\nMatch host *.example.com\n  Include more\n"
    assert meant(home, text).user == "ada"


def test_a_file_that_includes_itself_is_an_error(home: Path) -> None:
    with pytest.raises(ConfigError, match="included by itself"):
        meant(home, "Include config\n")


def test_jumps_are_looked_up_themselves(home: Path) -> None:
    text = (
        "Host bastion\n  HostName gate.example.com\n  User gate\nHost cluster\n  ProxyJump first@outer:2200,bastion\n"
    )
    host = meant(home, text)
    assert host.jump is not None
    assert (host.jump.address, host.jump.user) == ("gate.example.com", "gate")
    assert host.jump.jump is not None
    assert (host.jump.jump.address, host.jump.jump.user, host.jump.jump.port) == ("outer", "first", 2200)


def test_a_jump_in_a_circle_is_an_error(home: Path) -> None:
    with pytest.raises(ConfigError, match="circle"):
        meant(home, "Host *\n  ProxyJump cluster\n")


def test_a_proxy_command_knows_where_to(home: Path) -> None:
    host = meant(home, "Host cluster\n  ProxyCommand connect %h %p %r\n  User ada\n  Port 24\n")
    assert host.proxy_command == ("/bin/sh", "-c", "exec connect cluster 24 ada")


def test_a_line_that_makes_no_sense_is_an_error(home: Path) -> None:
    with pytest.raises(ConfigError, match="config"):
        meant(home, "nonsense\n")


def test_everything_from_a_file_leads_there(home: Path) -> None:
    with Sshd() as sshd:
        (home / ".ssh" / "config").write_text(
            f"Host short\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}\n  IdentityFile {sshd.key}\n"
            f"  UserKnownHostsFile {sshd.folder}/known_hosts\n"
        )
        profile = SshProfile(host="short", agent=False)
        assert said(profile, "echo $USER") == f"{sshd.user}\n"


def test_a_proxy_command_carries_the_connection() -> None:
    with Sshd() as sshd:
        relay = (
            "import os, select, socket; s = socket.create_connection(('127.0.0.1', PORT))\n"
            "while True:\n"
            "    for fd in select.select([0, s], [], [])[0]:\n"
            "        data = os.read(0, 65536) if fd == 0 else s.recv(65536)\n"
            "        if not data: os._exit(0)\n"
            "        s.sendall(data) if fd == 0 else os.write(1, data)\n"
        )
        import sys

        command = [sys.executable, "-c", relay.replace("PORT", "%p")]
        assert said(sshd.profile(proxy_command=command), "seq 30000 | tail -n 1") == "30000\n"


def test_a_jump_carries_the_connection() -> None:
    with Sshd() as inner, Sshd() as outer:
        (outer.folder / "authorized_keys").write_text((inner.folder / "key.pub").read_text())
        hosts = inner.folder / "both"
        hosts.write_text((inner.folder / "known_hosts").read_text() + (outer.folder / "known_hosts").read_text())
        jump = f"{outer.user}@127.0.0.1:{outer.port}"
        profile = inner.profile(proxy_jump=jump, known_hosts_path=str(hosts))
        assert said(profile, "seq 300000 | sha256sum") == said(inner.profile(), "seq 300000 | sha256sum")
        assert outer.log().count("Accepted publickey") == 1
