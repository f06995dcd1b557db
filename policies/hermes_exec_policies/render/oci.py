"""Render a filter as the JSON of Docker, Podman, runc, crun and Apptainer (OCI runtime specification, Seccomp).

It lists only the native architecture, so a 32-bit or x32 call kills its process.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from hermes_exec_policies.render.filter import Compare, Filter, FilterRule

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
"""The supported machines with their names in libseccomp."""
_TRACING = "ptrace"


def architecture(machine: str) -> str:
    """The libseccomp name of a machine.

    Raises:
        Unsupported: filters for this architecture are not supported.
    """
    if machine not in ARCHITECTURES:
        raise Unsupported(
            f"system call filters are not supported on {machine}",
            remedy=f"use a machine with {' or '.join(ARCHITECTURES)}",
        )
    return ARCHITECTURES[machine]


def render(wanted: Filter, machine: str) -> str:
    """Render the JSON document, with a final newline.

    Raises:
        Unsupported: filters for this architecture are not supported.
    """
    return _document(
        [_rule(rule, {"action": "SCMP_ACT_ERRNO", "errnoRet": rule.errno}) for rule in wanted.rules], machine
    )


def render_for_apptainer(wanted: Filter, machine: str) -> str:
    """Render the document for Apptainer, which supports only one error number and rejects documents with more.

    Calls that have to fail with ENOSYS use the action TRACE instead: without a tracer they fail so. To rule out a
    tracer, ptrace is refused whatever the policy allows.

    Raises:
        Unsupported: filters for this architecture are not supported.
    """
    rules = [replace(rule, names=tuple(name for name in rule.names if name != _TRACING)) for rule in wanted.rules]
    return _document([_rule(rule, {"action": "SCMP_ACT_TRACE"}) for rule in rules], machine)


def _document(rules: list[dict[str, object]], machine: str) -> str:
    document = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "architectures": [architecture(machine)],
        "syscalls": rules,
    }
    return json.dumps(document, indent=1) + "\n"


def _rule(rule: FilterRule, refusal: dict[str, object]) -> dict[str, object]:
    action: dict[str, object] = refusal if rule.errno else {"action": "SCMP_ACT_ALLOW"}
    conditions = {"args": [_condition(each) for each in rule.when]} if rule.when else {}
    return {"names": list(rule.names), **action, **conditions}


def _condition(compare: Compare) -> dict[str, object]:
    if compare.mask is None:
        return {"index": compare.index, "value": compare.value, "op": "SCMP_CMP_EQ"}
    # In a masked comparison `value` is the mask and `valueTwo` the expected bits.
    return {"index": compare.index, "value": compare.mask, "valueTwo": compare.value, "op": "SCMP_CMP_MASKED_EQ"}
