"""Sessions as a login gives them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Literal

import pytest

import hermes_exec
from hermes_exec_backends.ssh import SshBackend
from tests.rigs.sshd import Sshd, User

if TYPE_CHECKING:
    from collections.abc import Generator

_FAKE_MODULE = """
module() { [ "$1" = load ] && PATH="$HOME/modules/$2:$PATH" && export PATH; }
PROFILE_WAS_READ=yes
echo Welcome to the cluster!
"""


@pytest.fixture(scope="module")
def cluster() -> Generator[Sshd]:
    files = {"modules/tool/tool": "#!/bin/sh\necho a tool\n", ".bash_profile": "MINE_TOO=yes\necho Good morning\n"}
    with Sshd(User("worker", "/bin/bash", files), profile_d={"modules.sh": _FAKE_MODULE}) as sshd:
        (sshd.home() / "modules/tool/tool").chmod(0o755)
        yield sshd


@pytest.mark.parametrize(("shell", "read"), [("/bin/bash", b"yes yes\n"), ("/bin/sh", b"yes \n")])
async def test_a_login_session_has_the_profile_and_module(cluster: Sshd, shell: str, read: bytes) -> None:
    async with hermes_exec.open(SshBackend(cluster.profile()), audit=False) as terminal:
        session = await terminal.session(login=True, shell=shell)
        first = await session.run('echo "$PROFILE_WAS_READ $MINE_TOO"; echo oh >&2')
        assert (first.stdout, first.stderr) == (read, b"oh\n")
        assert (await session.run("module load tool; tool")).stdout == b"a tool\n"
        assert (await session.run("tool")).stdout == b"a tool\n"


async def test_another_session_reads_no_profile(cluster: Sshd) -> None:
    async with hermes_exec.open(SshBackend(cluster.profile()), audit=False) as terminal:
        session = await terminal.session()
        assert (await session.run('echo "<$PROFILE_WAS_READ>"; type module')).exit_code == 1


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
@pytest.mark.parametrize("carrier", ["guest", "plain"])
async def test_a_user_without_a_home_folder_starts_in_the_root(
    transport: str, carrier: Literal["guest", "plain"]
) -> None:
    with Sshd(User("service")) as sshd:
        shutil.rmtree(sshd.home())
        backend = SshBackend(sshd.profile(transport=transport))
        async with hermes_exec.open(backend, audit=False, carrier=carrier) as terminal:
            by_words, by_text = await terminal.run(["pwd"]), await terminal.run("pwd")
    assert (by_words.stdout, by_words.stderr, by_text.stdout, by_text.stderr) == (b"/\n", b"", b"/\n", b"")
    assert (str(sshd.home()) in by_words.note) == (carrier == "guest")
