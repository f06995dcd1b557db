"""A skill's policy with what it was granted, and the proxy beside its sandbox where that has hosts among it."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_backends.sandbox import Bind
from hermes_exec_policies.egress.proxy import Egress
from hermes_exec_policies.load import load, overridden

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable

    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_policies.model import Policy

NET = "/app/net"
"""Where the proxy's socket is seen."""
_HOSTS = "skill-hosts"
"""The policy that says what a sandbox with hosts is like."""

_VARIABLES = ("HTTPS_PROXY", "https_proxy")
"""By which programs find a proxy."""


def granted(policy: Policy, hosts: Iterable[str]) -> Policy:
    """What a policy says for a skill that was granted these hosts; itself where there are none.

    Raises:
        ConfigError: one of them is none.
    """
    if not (named := sorted(hosts)):
        return policy
    like = load(_HOSTS)
    above: dict[str, Any] = {
        "network": {"access": "hosts", "hosts": named, "sockets": list(like.network.sockets)},
        "files": {"read": [*policy.files.read, NET]},
        "environment": {"set": {name: like.environment.set[name] for name in _VARIABLES}},
    }
    # AppArmor's profile is found by this name, and that of a policy without hosts knows no such sockets.
    return overridden(policy, above).model_copy(update={"name": like.name})


@contextlib.asynccontextmanager
async def egress(hosts: Iterable[str]) -> AsyncGenerator[Egress]:
    """A proxy for one sandbox, at a socket in a folder that nobody finds who is not told its name."""
    with _folder() as folder:
        async with Egress(hosts, folder) as proxy:
            yield proxy


@contextlib.contextmanager
def _folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="hx-net-", dir="/tmp") as made:
        above = Path(made)
        above.chmod(0o711 if os.geteuid() == 0 else 0o700)
        folder = above / secrets.token_hex(16)
        folder.mkdir()
        folder.chmod(0o755)
        yield folder


def with_net(specification: Confinement, proxy: Egress) -> Confinement:
    """The specification of a sandbox that sees the proxy's socket, in a folder that it cannot write to."""
    seen = Bind(source=str(proxy.path.parent), target=NET, executable=False)
    return replace(specification, binds=(*specification.binds, seen))
