"""All forms of a policy by file name; the committed files are generated and checked with this module.

These forms are the same on each machine. Machine-dependent parts (user, paths, loaded profiles) are set when a sandbox
is started.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_exec.config.check import nearest_name
from hermes_exec.errors import UsageError
from hermes_exec_policies.render import apparmor, apptainer, bpf, clouds, docker, landlock, oci, rlimits
from hermes_exec_policies.render.bubblewrap import layout
from hermes_exec_policies.render.filter import build_filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.render.filter import Filter

SECCOMP_FILE = "seccomp.{machine}.json"
APPTAINER_FILE = "seccomp-apptainer.{machine}.json"


def _seccomp(render: Callable[[Filter, str], str], machine: str) -> Callable[[Policy], str]:
    def render_policy(policy: Policy) -> str:
        wanted = build_filter(policy)
        return render(wanted, machine) if wanted else ""

    return render_policy


def _landlock(policy: Policy) -> str:
    rules = landlock.ruleset(policy)
    if rules is None:
        return ""
    plain = asdict(rules)
    return _json(plain if rules.ports else {name: value for name, value in plain.items() if name != "ports"})


def _limits(policy: Policy) -> str:
    return _json(
        {
            "rlimits": {name: [soft, hard] for name, soft, hard in rlimits.rlimits(policy)},
            "cgroup v2": dict(rlimits.cgroup(policy, 2)),
            "cgroup v1": dict(rlimits.cgroup(policy, 1)),
        }
    )


def _docker(policy: Policy) -> str:
    # The filter is a separate file, which is file here.
    file = SECCOMP_FILE.format(machine="MACHINE") if policy.syscalls.filtered else ""
    return _json(docker.render(policy, seccomp=file, apparmor=True))


def _apptainer(policy: Policy) -> str:
    file = APPTAINER_FILE.format(machine="MACHINE") if policy.syscalls.filtered else ""
    return "".join(f"{word}\n" for word in apptainer.render(policy, seccomp=file, apparmor=True))


def _apparmor(policy: Policy) -> str:
    return apparmor.render(policy) if policy.files.root == "read-only" else ""


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


FORMS: dict[str, Callable[[Policy], str]] = {
    **{SECCOMP_FILE.format(machine=each): _seccomp(oci.render, each) for each in oci.ARCHITECTURES},
    **{APPTAINER_FILE.format(machine=each): _seccomp(oci.render_for_apptainer, each) for each in oci.ARCHITECTURES},
    "apparmor": _apparmor,
    "landlock.json": _landlock,
    "limits.json": _limits,
    "bubblewrap.json": lambda policy: _json(asdict(layout(policy))),
    "docker.json": _docker,
    "apptainer.txt": _apptainer,
    "modal.json": lambda policy: _json(clouds.modal(policy)),
    "daytona.json": lambda policy: _json(clouds.daytona(policy)),
}
"""The file name and the renderer of each form. A form that does not apply to a policy is an empty text."""


def render_form(policy: Policy, form: str) -> str:
    """Render one form of a policy.

    Raises:
        UsageError: there is no such form; names the nearest one.
    """
    if form not in FORMS:
        raise UsageError(
            f"no form is called {form!r}; the nearest known one is {nearest_name(form, FORMS)!r}",
            remedy=", ".join(FORMS),
        )
    return FORMS[form](policy)


def render_all(policy: Policy) -> dict[str, str]:
    """Render all forms that apply to a policy, by file name."""
    texts = {name: render(policy) for name, render in FORMS.items()}
    return {name: text for name, text in texts.items() if text}


def build_shipped_filters(policy: Policy) -> dict[str, Filter]:
    """The filters that are shipped compiled, by key: with and without a control group that counts memory."""
    found = (build_filter(policy, counted=counted) for counted in (True, False))
    return {bpf.filter_key(wanted): wanted for wanted in found if wanted}
