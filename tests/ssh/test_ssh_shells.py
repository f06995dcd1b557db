"""Hosts whose login shell, login files and Python are anything but plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceUnavailable
from tests.conftest import require_part
from tests.rigs.sshd import Sshd, User
from tests.ssh.conftest import said

if TYPE_CHECKING:
    from collections.abc import Generator

SHELLS = ("bash", "dash", "fish", "tcsh", "zsh")
NASTY = [
    "", " ", "a b", "it's", '"', "\\", "\\\\'", "!!", "!x", "$HOME", "`id`", "$(id)", "a\nb", "\n",
    "*", "~", "#", ";&|<>",
    "(", "{a,b}", "%", "é", "\t", "^a^b", "-n", "\x7f", "'\\''", "end\\",
]  # fmt: skip
_NOISE = "Welcome!\n" + "=" * 200 + "\n"
_FAKE_MODULE = """
module() { [ "$1" = load ] && PATH="$HOME/modules/$2:$PATH" && export PATH; }
PROFILE_WAS_READ=yes
"""
_WRAPPER = '#!/bin/sh\nexport FOUND="$0"\nexec /usr/bin/python3 "$@"\n'


@pytest.fixture(scope="module")
def hosts() -> Generator[Sshd]:
    """One server, one user for each kind of trouble."""
    users = [User("worker")]
    users += [User(f"likes-{shell}", _path(shell)) for shell in SHELLS]
    loud = f"echo '{_NOISE}'\necho oh >&2\n"
    users += [
        User("loud-bash", "/bin/bash", {".bashrc": loud}),
        User("loud-tcsh", _path("tcsh"), {".cshrc": f"echo {'=' * 300}\n"}),
        User("loud-fish", _path("fish"), {".config/fish/config.fish": f"echo {'=' * 300}\n"}),
        User("loud-zsh", _path("zsh"), {".zshenv": loud}),
        User("endless", "/bin/bash", {".bashrc": "yes\n"}),
        User("ending", "/bin/bash", {".bashrc": "echo go away; exit 3\n"}),
        User("refused", "/usr/sbin/nologin"),
        User("forced"),
        User("modules", "/bin/bash", {"modules/python/python3": _WRAPPER}),
    ]
    settings = "Match User forced\nForceCommand echo only this\nMatch all"
    with Sshd(*users, settings=settings, profile_d={"modules.sh": _FAKE_MODULE}) as sshd:
        (sshd.home("modules") / "modules/python/python3").chmod(0o755)
        yield sshd


def _path(shell: str) -> str:
    return require_part(shell, "a login shell before SSH")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_guest_starts_below_any_login_shell(hosts: Sshd, shell: str) -> None:
    profile = hosts.profile(user=f"likes-{shell}")
    assert said(profile, 'echo "$SHELL"', carrier="guest") == f"{_path(shell)}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_words_pass_any_login_shell_unchanged(hosts: Sshd, shell: str) -> None:
    profile = hosts.profile(user=f"likes-{shell}")
    shown = said(profile, ["printf", "%s\\0", *NASTY], carrier="plain")
    assert shown.split("\0")[:-1] == NASTY


@pytest.mark.parametrize("shell", SHELLS)
def test_variables_pass_any_login_shell_unchanged(hosts: Sshd, shell: str) -> None:
    value = "".join(NASTY)
    env = {"NASTY": value}
    assert said(hosts.profile(user=f"likes-{shell}"), ["printenv", "NASTY"], carrier="plain", env=env) == value + "\n"


@pytest.mark.parametrize("carrier", ["guest", "plain"])
@pytest.mark.parametrize("shell", ["bash", "tcsh", "fish", "zsh"])
def test_what_login_files_print_is_in_no_output(hosts: Sshd, shell: str, carrier: str) -> None:
    assert said(hosts.profile(user=f"loud-{shell}"), "echo quiet", carrier=carrier) == "quiet\n"


def test_login_files_that_print_without_end_are_told(hosts: Sshd) -> None:
    with pytest.raises(PlaceUnavailable, match="login scripts printed more than 64 KiB"):
        said(hosts.profile(user="endless"))


@pytest.mark.parametrize(
    ("user", "hint"), [("ending", "go away"), ("refused", "not available"), ("forced", "only this")]
)
def test_a_host_that_runs_something_else_is_told_with_what_it_printed(hosts: Sshd, user: str, hint: str) -> None:
    with pytest.raises(PlaceUnavailable, match="the host did not run what it was asked to: a forced command") as caught:
        said(hosts.profile(user=user))
    assert hint in str(caught.value)


def test_python_is_found_through_a_module(hosts: Sshd) -> None:
    profile = hosts.profile(user="modules", setup=["module load python"])
    found = said(profile, ["printenv", "FOUND"], carrier="guest")
    assert found == f"{hosts.home('modules')}/modules/python/python3\n"
