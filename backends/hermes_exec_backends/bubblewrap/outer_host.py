"""Inspect the outer target with one command before a sandbox is created there.

The result is cached for this machine, so that it takes time for the first sandbox alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec.transport.shell.target import run_helper
from hermes_exec_backends.sandbox.host import NAMESPACE_SYSCTLS, explain_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.backend import Backend

_LOOK = r"""
program=$(command -v "$1") || { echo "hx none"; exit; }
user=$2; shift 2
echo "hx program $program"
for path in /bin /sbin /lib /lib32 /lib64 /libx32 /nix /gnu /etc/localtime /etc/os-release; do
    if [ -L "$path" ]; then echo "hx link $path $(readlink "$path")"
    elif [ -d "$path" ]; then echo "hx folder $path"
    fi
done
become=
[ -z "$user" ] || become="setpriv --reuid=$user --regid=$user --clear-groups"
if ! output=$($become "$program" "$@" 2>&1 </dev/null); then
    echo "hx refused $output"
    for file in SYSCTLS; do
        [ -r "/proc/sys/$file" ] && read -r value <"/proc/sys/$file" && echo "hx sysctl $file $value"
    done
fi
echo "hx environ"
cat /proc/self/environ
""".replace("SYSCTLS", " ".join(NAMESPACE_SYSCTLS))

PROBE = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent",
    "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "/bin/sh", "-c", ":",
)  # fmt: skip
"""The options and the no-op command of a sandbox, to check that one starts."""


@dataclass(frozen=True, slots=True)
class OuterHost:
    """The facts of the outer target that a sandbox needs."""

    program: str
    """The path of bwrap."""
    system: Mapping[str, str]
    """System folders besides /usr, with the target of each that is a link."""
    variables: frozenset[str]
    """The names of the environment variables of a process there."""


_here: dict[tuple[str, int | None, tuple[str, ...]], OuterHost] = {}


async def inspect_outer(outer: Backend, program: str, user: int | None, trial: tuple[str, ...] = PROBE) -> OuterHost:
    """Inspect the outer target; ``trial`` is the argv of a sandbox that must start there.

    Raises:
        PlaceUnavailable: bwrap is missing or cannot create a sandbox; names reason and remedy.
    """
    if outer.type != "local":
        return await _look(outer, program, user, trial)
    if (program, user, trial) not in _here:
        _here[program, user, trial] = await _look(outer, program, user, trial)
    return _here[program, user, trial]


async def _look(outer: Backend, program: str, user: int | None, trial: tuple[str, ...]) -> OuterHost:
    argv = ["/bin/sh", "-c", _LOOK, "sh", program, "" if user is None else str(user), *trial]
    reply = await run_helper(outer, argv)
    text, found, environ = reply.stdout.partition(b"hx environ\n")
    facts: dict[str, list[str]] = {}
    for line in text.decode("utf-8", "replace").splitlines():
        mark, _, rest = line.partition(" ")
        kind, _, value = rest.partition(" ")
        if mark == "hx":
            facts.setdefault(kind, []).append(value)
    if "none" in facts:
        raise PlaceUnavailable(
            f"bubblewrap: no {program} at {outer.target}", remedy="install bubblewrap there: apt-get install bubblewrap"
        )
    if not found or "program" not in facts:
        raise PlaceUnavailable(f"bubblewrap: {outer.target} cannot be inspected: {reply.failure}")
    if "refused" in facts:
        sysctls = dict(value.split(" ", 1) for value in facts.get("sysctl", ()))
        why = explain_refusal(facts["refused"][0], sysctls, root=user is None)
        raise PlaceUnavailable(f"bubblewrap: no sandbox starts at {outer.target}: {why.reason}", remedy=why.remedy)
    links = dict(value.split(" ", 1) for value in facts.get("link", ()))
    names = {entry.partition(b"=")[0].decode("utf-8", "surrogateescape") for entry in environ.split(b"\0")}
    return OuterHost(
        program=facts["program"][0],
        system={**dict.fromkeys(facts.get("folder", ()), ""), **links},
        variables=frozenset(names - {""}),
    )
