"""Compile a filter to a BPF program with libseccomp, for launchers that load it themselves.

The filters of shipped policies are compiled beforehand, because loading libseccomp takes longer than starting a
sandbox; the filter of a custom policy is compiled when it is used.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import PlaceUnavailable
from hermes_exec.extras import missing_extra
from hermes_exec_policies.render.oci import architecture

if TYPE_CHECKING:
    from hermes_exec_policies.render.filter import Compare, Filter

_KILL_PROCESS = 0x80000000
_BINARY_TREE = 2
NEW_SYSCALLS = {
    "cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453, "futex_wake": 454, "futex_wait": 455,
    "futex_requeue": 456, "statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460,
    "lsm_list_modules": 461, "mseal": 462, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465,
    "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469,
}  # fmt: skip
"""System calls that an older libseccomp does not know, with their numbers, which all architectures share."""


def filter_key(wanted: Filter) -> str:
    """The identity of a filter: the beginning of its SHA-256, in hexadecimal."""
    return hashlib.sha256(json.dumps(asdict(wanted), separators=(",", ":")).encode()).hexdigest()[:16]


@cache
def load_program(wanted: Filter) -> bytes:
    """The instructions (``struct sock_filter``) for this machine.

    Raises:
        Unsupported: filters for this architecture are not supported.
        MissingExtra: the filter is not shipped, and the Python binding of libseccomp is not installed.
        PlaceUnavailable: the filter is not shipped, and libseccomp is not installed.
    """
    machine = platform.machine()
    architecture(machine)
    return read_shipped_program(wanted, machine) or compile_filter(wanted)


def read_shipped_program(wanted: Filter, machine: str) -> bytes | None:
    """The shipped program of a filter; None if there is none."""
    file = files("hermes_exec_policies") / "rendered" / "bpf" / f"{filter_key(wanted)}.{machine}"
    return file.read_bytes() if file.is_file() else None


def compile_filter(wanted: Filter, machine: str = "") -> bytes:
    """Like ``load_program``, but always compile. For another ``machine``, calls that libseccomp lacks are left out.

    Such a call can be named by its number only for this machine; on another one it is refused.

    Raises:
        Unsupported: filters for this architecture are not supported.
        MissingExtra: the binding of libseccomp is not installed.
        PlaceUnavailable: libseccomp is missing.
    """
    foreign = architecture(machine or platform.machine()).removeprefix("SCMP_ARCH_")
    library = _library()
    filter_ = library.SyscallFilter(library.ERRNO(1))
    here = machine in {"", platform.machine()}
    if not here:  # rules use this machine's numbers and are translated
        filter_.add_arch(getattr(library.Arch, foreign))
        filter_.remove_arch(library.Arch.NATIVE)
    filter_.set_attr(library.Attr.ACT_BADARCH, _KILL_PROCESS)
    filter_.set_attr(library.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    for rule in wanted.rules:
        action = library.ERRNO(rule.errno) if rule.errno else library.ALLOW
        for name in rule.names:
            number = library.resolve_syscall(library.Arch.NATIVE, name)
            number = NEW_SYSCALLS.get(name, number) if number == -1 and here else number
            if number == -1:
                continue  # this architecture lacks the call
            filter_.add_rule(action, number, *(_argument(library, each) for each in rule.when))
    with tempfile.TemporaryFile() as file:
        filter_.export_bpf(file)
        file.seek(0)
        return file.read()


def _argument(library: Any, compare: Compare) -> Any:
    if compare.mask is None:
        return library.Arg(compare.index, library.EQ, compare.value)
    return library.Arg(compare.index, library.MASKED_EQ, compare.mask, compare.value)


@cache
def _library() -> Any:
    try:
        import pyseccomp
    except ModuleNotFoundError as error:
        raise missing_extra("bubblewrap", "pyseccomp", "the system call filter of a custom policy") from error
    except (OSError, RuntimeError) as error:  # it is installed, but does not find libseccomp
        raise PlaceUnavailable(
            f"the system call filter of a custom policy needs libseccomp: {error}", remedy="apt-get install libseccomp2"
        ) from error
    return pyseccomp
