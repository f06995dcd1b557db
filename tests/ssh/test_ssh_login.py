"""Ways to log in, and what is said when none of them works."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import ConfigError, PlaceError, PlaceUnavailable
from tests.rigs.sshd import Sshd, User, program
from tests.ssh.conftest import said

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_PAM = "auth required pam_unix.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
_WORD = "not a real passw0rd"


@pytest.fixture(scope="module")
def asking() -> Generator[Sshd]:
    """A server that takes passwords, alone or as a second factor."""
    users = (User("worker", password=_WORD), User("second", password=_WORD))
    settings = (
        "KbdInteractiveAuthentication yes\nMatch User second\n"
        "AuthenticationMethods publickey,keyboard-interactive\nMatch all"
    )
    with Sshd(*users, settings=settings, pam=_PAM) as sshd:
        yield sshd


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """An agent with no keys yet."""
    socket = str(tmp_path / "agent")
    process = subprocess.Popen([program("ssh-agent", "keeps keys"), "-D", "-a", socket], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", socket)
    while not os.path.exists(socket):
        assert process.poll() is None
    yield socket
    process.terminate()
    process.wait()


def test_a_key_file_lets_in(sshd: Sshd) -> None:
    assert said(sshd.profile(), "echo $USER") == f"{sshd.user}\n"


def test_a_key_with_a_passphrase_opens_by_the_name_of_its_secret(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    key = _allowed(sshd, "locked", "-N", "open sesame")
    monkeypatch.setenv("KEY_PASSPHRASE", "open sesame")
    assert said(sshd.profile(key_path=str(key), passphrase="env:KEY_PASSPHRASE")) == "in\n"


def test_a_wrong_passphrase_is_said(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    key = _allowed(sshd, "shut", "-N", "open sesame")
    monkeypatch.setenv("KEY_PASSPHRASE", "open barley")
    with pytest.raises(PlaceUnavailable, match="the passphrase is wrong") as caught:
        said(sshd.profile(key_path=str(key), passphrase="env:KEY_PASSPHRASE"))
    assert "barley" not in str(caught.value)


def test_a_key_that_needs_a_passphrase_says_so(sshd: Sshd) -> None:
    key = _allowed(sshd, "mute", "-N", "open sesame")
    with pytest.raises(PlaceUnavailable, match="mute: it needs a passphrase"):
        said(sshd.profile(key_path=str(key)))


def test_a_key_after_one_that_is_refused_lets_in(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"IdentityFile {sshd.new_key('refused')}\nIdentityFile {sshd.key}\n")
    assert said(sshd.profile(key_path=None, config_path=str(config))) == "in\n"


def test_a_missing_secret_is_named(sshd: Sshd) -> None:
    key = _allowed(sshd, "lone", "-N", "open sesame")
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        said(sshd.profile(key_path=str(key), passphrase="env:NO_SUCH_VARIABLE"))


def test_a_key_of_the_agent_lets_in(sshd: Sshd, agent: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.copy(sshd.key, kept)
    kept.chmod(0o600)
    subprocess.run(["ssh-add", "-q", str(kept)], check=True, stdin=subprocess.DEVNULL)
    kept.unlink()
    nothing = tmp_path / "config"
    nothing.write_text(f"IdentityFile {tmp_path}/none\n")
    assert said(sshd.profile(key_path=None, agent=True, config_path=str(nothing))) == "in\n"


def test_the_agent_is_left_alone_when_the_profile_says_so(sshd: Sshd, agent: str, tmp_path: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(sshd.key)], check=True, stdin=subprocess.DEVNULL)
    nothing = tmp_path / "config"
    nothing.write_text(f"IdentityFile {tmp_path}/none\n")
    with pytest.raises(PlaceUnavailable, match="refused the login"):
        said(sshd.profile(key_path=None, agent=False, config_path=str(nothing)))


def test_a_certificate_lets_in_where_the_key_alone_would_not() -> None:
    with Sshd(settings="TrustedUserCAKeys {folder}/authority.pub") as sshd:
        authority, key = sshd.new_key("authority"), sshd.new_key("signed")
        with pytest.raises(PlaceUnavailable):
            said(sshd.profile(key_path=str(key)))
        names = ["-I", "test", "-n", sshd.user]
        subprocess.run(["ssh-keygen", "-q", "-s", str(authority), *names, f"{key}.pub"], check=True)
        signed = (key.parent / "signed-cert.pub").rename(key.parent / "elsewhere")
        assert said(sshd.profile(key_path=str(key), certificate_path=str(signed))) == "in\n"


def test_a_password_lets_in_by_the_name_of_its_secret(asking: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_PASSWORD", _WORD)
    assert said(asking.profile(key_path=str(asking.new_key("stranger")), password="env:HOST_PASSWORD")) == "in\n"


def test_questions_after_the_key_are_answered_with_the_password(asking: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_PASSWORD", _WORD)
    assert said(asking.profile(user="second", password="env:HOST_PASSWORD"), "echo $USER") == "second\n"


def test_a_question_that_only_a_person_could_answer_is_told(asking: Sshd) -> None:
    with pytest.raises(PlaceError, match="no person was there to answer 'Password:'"):
        said(asking.profile(user="second"))


def test_a_wrong_password_is_told_but_not_shown(asking: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_PASSWORD", "mistaken")
    with pytest.raises(PlaceUnavailable, match="tried .*password") as caught:
        said(asking.profile(key_path=str(asking.new_key("unknown")), password="env:HOST_PASSWORD"))
    assert "mistaken" not in str(caught.value)


def test_what_was_tried_is_told(sshd: Sshd) -> None:
    key = sshd.new_key("nobodys")
    with pytest.raises(PlaceUnavailable, match=rf"tried publickey \({key}\)"):
        said(sshd.profile(key_path=str(key)))


def _allowed(sshd: Sshd, name: str, *options: str) -> Path:
    key = sshd.new_key(name, *options)
    with (sshd.folder / "authorized_keys").open("a") as file:
        file.write((key.parent / f"{name}.pub").read_text())
    return key
