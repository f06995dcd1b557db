"""A filter as the JSON that Docker, Podman, runc, crun and Apptainer read (OCI runtime specification, Seccomp).

Only the native architecture is named, so a call in a 32-bit or x32 form is not filtered but ends its process.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from hermes_exec_policies.render.filter import Compare, Filter, Rule

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
"""Machines that filters are rendered for, and what libseccomp calls them."""
_TRACING = "ptrace"


def architecture(machine: str) -> str:
    """What libseccomp calls a machine.

    Raises:
        Unsupported: no filter has been made for such machines.
    """
    if machine not in ARCHITECTURES:
        raise Unsupported(
            f"no filter of system calls is made for {machine}", remedy=f"a machine of {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[machine]


def render(wanted: Filter, machine: str) -> str:
    """The document, ending with a newline.

    Raises:
        Unsupported: no filter has been made for such machines.
    """
    return _document(
        [_rule(rule, {"action": "SCMP_ACT_ERRNO", "errnoRet": rule.errno}) for rule in wanted.rules], machine
    )


def render_for_apptainer(wanted: Filter, machine: str) -> str:
    """The same for Apptainer, which knows one error number only, and refuses a document that names another.

    What has to look absent (ENOSYS) is handed to a tracer instead: without one that is just how it looks. So that
    there is none, ptrace is refused whatever the policy says.

    Raises:
        Unsupported: no filter has been made for such machines.
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


def _rule(rule: Rule, refusal: dict[str, object]) -> dict[str, object]:
    action: dict[str, object] = refusal if rule.errno else {"action": "SCMP_ACT_ALLOW"}
    conditions = {"args": [_condition(each) for each in rule.when]} if rule.when else {}
    return {"names": list(rule.names), **action, **conditions}


def _condition(compare: Compare) -> dict[str, object]:
    if compare.mask is None:
        return {"index": compare.index, "value": compare.value, "op": "SCMP_CMP_EQ"}
    # In a masked comparison `value` is the mask and `valueTwo` what is to be found under it.
    return {"index": compare.index, "value": compare.mask, "valueTwo": compare.value, "op": "SCMP_CMP_MASKED_EQ"}
