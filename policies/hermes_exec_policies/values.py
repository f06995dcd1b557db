"""The types of the values in a policy, each with one clear error message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from hermes_exec.config.check import nearest_name
from hermes_exec.config.values import Size
from hermes_exec_policies.syscalls import check_syscall

UNLIMITED = "unlimited"
_PATH = re.compile(r"/(?:[A-Za-z0-9._+~@-]+(?:/[A-Za-z0-9._+~@-]+)*)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?", re.ASCII)
FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16}
"""Socket families that a policy can allow, with their numbers."""
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
"""In the order of their numbers; see capabilities(7)."""
EVERY = "ALL"
"""All capabilities."""


def _check_path(value: str) -> str:
    parts = value.split("/")
    plain = "/" + "/".join(part for part in parts if part not in {"", ".", ".."})
    if not value.startswith("/"):
        raise ValueError(f"should be an absolute path, not {value!r}; the nearest one is {plain!r}")
    if {".", ".."} & {*parts}:
        raise ValueError(f"holds '.' or '..': {value!r}; the nearest plain one is {plain!r}")
    if not _PATH.fullmatch(value):
        raise ValueError(f"names {value!r}; a path has letters, digits and ._+~@- between single slashes")
    return value


def _check_one_of(kind: str, known: Sequence[str], value: str) -> str:
    if value not in known:
        raise ValueError(f"names no {kind}: {value!r}; the nearest known one is {nearest_name(value, known)!r}")
    return value


def _check_family(value: str) -> str:
    return _check_one_of("family of sockets", tuple(FAMILIES), value)


def _check_capability(value: str) -> str:
    return _check_one_of("capability", (*CAPABILITIES, EVERY), value)


def _check_variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError(f"names no variable: {value!r}")
    return value


def _check_value(value: str) -> str:
    wrong = next((each for each in value if each < " " or each == "\x7f"), None)
    if wrong is not None:
        raise ValueError(f"contains {wrong!r}; a value is one line of text")
    return value


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"names {value!r}; the name of a policy has letters, digits and ._-")
    return value


def _check_host(value: str) -> str:
    if not _HOST.fullmatch(value) or ".." in value:
        raise ValueError(f"names no host: {value!r}; use a name such as pypi.org, or pypi.org:443")
    return value


def _check_unique(values: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"contains {twice[0]!r} twice")
    return values


def _parse_unlimited(value: object) -> object:
    return None if value == UNLIMITED else value


def _check_positive(value: int) -> int:
    if value == 0:
        raise ValueError('kernels and engines take 0 for no limit; the minimum is 1, and "unlimited" sets no limit')
    return value


PlacePath = Annotated[str, AfterValidator(_check_path)]
"""An absolute, normalised path in the target."""
Paths = Annotated[tuple[PlacePath, ...], Field(strict=False), AfterValidator(_check_unique)]
"""Distinct paths."""
Calls = Annotated[
    tuple[Annotated[str, AfterValidator(check_syscall)], ...], Field(strict=False), AfterValidator(_check_unique)
]
"""System calls, and ``@groups`` of them."""
Families = Annotated[
    tuple[Annotated[str, AfterValidator(_check_family)], ...], Field(strict=False), AfterValidator(_check_unique)
]
"""Families of sockets."""
Capabilities = Annotated[
    tuple[Annotated[str, AfterValidator(_check_capability)], ...], Field(strict=False), AfterValidator(_check_unique)
]
"""Capabilities without the prefix ``CAP_``, or ``ALL``."""
Variable = Annotated[str, AfterValidator(_check_variable)]
"""The name of an environment variable."""
Value = Annotated[str, AfterValidator(_check_value)]
"""The value of an environment variable: one line of text."""
Name = Annotated[str, AfterValidator(_check_name)]
"""The name of a policy, from which AppArmor profiles are named."""
Variables = Annotated[tuple[Variable, ...], Field(strict=False), AfterValidator(_check_unique)]
"""Names of environment variables."""
Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_check_host)], ...], Field(strict=False), AfterValidator(_check_unique)
]
"""Hosts, each with a port or without."""
MaybeSize = Annotated[Size | None, BeforeValidator(_parse_unlimited)]
"""Bytes, or ``"unlimited"``."""
SomeSize = Annotated[Annotated[Size, AfterValidator(_check_positive)] | None, BeforeValidator(_parse_unlimited)]
"""Bytes, at least one, or ``"unlimited"``."""
MaybeCount = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_parse_unlimited)]
"""A whole number, or ``"unlimited"``."""
SomeCount = Annotated[
    Annotated[int, Field(ge=0), AfterValidator(_check_positive)] | None, BeforeValidator(_parse_unlimited)
]
"""A whole number above 0, or ``"unlimited"``."""
MaybeAmount = Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, BeforeValidator(_parse_unlimited)]
"""A positive number, or ``"unlimited"``."""
