"""The policy of a skill with granted hosts, and the proxy for its sandbox."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_backends.sandbox import Bind
from hermes_exec_policies.egress.proxy import EgressProxy
from hermes_exec_policies.load import load_policy, override_policy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable

    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_policies.model import Policy

PROXY_FOLDER = "/app/net"
"""The folder of the proxy's socket in the sandbox."""
_HOSTS = "skill-hosts"
"""The shipped policy for sandboxes with hosts."""

_VARIABLES = ("HTTPS_PROXY", "https_proxy")
"""The variables by which programs find a proxy."""


def grant_hosts(policy: Policy, hosts: Iterable[str]) -> Policy:
    """The policy extended by granted hosts; the same object if there are none.

    Raises:
        ConfigError: a host is invalid.
    """
    if not (named := sorted(hosts)):
        return policy
    like = load_policy(_HOSTS)
    above: dict[str, Any] = {
        "network": {"access": "hosts", "hosts": named, "sockets": list(like.network.sockets)},
        "files": {"read": [*policy.files.read, PROXY_FOLDER]},
        "environment": {"set": {name: like.environment.set[name] for name in _VARIABLES}},
    }
    # The AppArmor profile has this name; the profile of a policy without hosts does not allow the sockets.
    return override_policy(policy, above).model_copy(update={"name": like.name})


@contextlib.asynccontextmanager
async def open_egress(hosts: Iterable[str]) -> AsyncGenerator[EgressProxy]:
    """Run a proxy for one sandbox, with its socket in a folder with an unguessable name."""
    with _folder() as folder:
        async with EgressProxy(hosts, folder) as proxy:
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


def bind_proxy(specification: Confinement, proxy: EgressProxy) -> Confinement:
    """The specification with the folder of the proxy's socket mounted read-only."""
    seen = Bind(source=str(proxy.path.parent), target=PROXY_FOLDER, executable=False)
    return replace(specification, binds=(*specification.binds, seen))
