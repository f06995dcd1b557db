"""What a guest on a host leaves when it is killed together with its keeper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec_backends.ssh import SshBackend
from tests.rigs.orphans import check_next_guest_ends_orphans

if TYPE_CHECKING:
    from tests.rigs.sshd import Sshd


def test_the_next_guest_of_that_user_ends_what_a_killed_one_left(sshd: Sshd) -> None:
    asyncio.run(check_next_guest_ends_orphans(lambda: SshBackend(sshd.profile())))
