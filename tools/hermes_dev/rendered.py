"""Write what the shipped policies are rendered to, and their compiled filters, below ``policies/``."""

from __future__ import annotations

import json
import platform
import shutil

from hermes_dev.place import ROOT
from hermes_exec_policies.load import list_shipped_policies, load_policy
from hermes_exec_policies.render import oci
from hermes_exec_policies.render.bpf import compile_filter
from hermes_exec_policies.render.filter import build_filter
from hermes_exec_policies.render.forms import build_shipped_filters, render_all

FOLDER = ROOT / "policies" / "hermes_exec_policies" / "rendered"
CONTAINER = ROOT / "deploy" / "hermes-agent-core.toml"
CONTAINER_FILTER = ROOT / "deploy" / "seccomp.json"


def write() -> None:
    """Replace every rendered file; this takes a machine of x86_64, whose libseccomp compiles for the others as well."""
    if platform.machine() != "x86_64":
        raise ValueError("policies are rendered on a machine of x86_64")
    policies = [load_policy(name) for name in list_shipped_policies()]
    for policy in policies:
        folder = FOLDER / policy.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in render_all(policy).items():
            (folder / name).write_text(text, encoding="utf-8")
    folder = FOLDER / "bpf"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    fitting = {key: wanted for policy in policies for key, wanted in build_shipped_filters(policy).items()}
    for key, wanted in fitting.items():
        for machine in oci.ARCHITECTURES:
            (folder / f"{key}.{machine}").write_bytes(compile_filter(wanted, machine))
    CONTAINER_FILTER.write_text(container_filter(), encoding="utf-8")


def container_filter() -> str:
    """The filter of the agent's container: one document for every machine, since people have one compose file."""
    wanted = build_filter(load_policy(str(CONTAINER)))
    if wanted is None:
        raise ValueError(f"{CONTAINER.name} filters nothing")
    document = json.loads(oci.render(wanted, "x86_64"))
    document["architectures"] = [*oci.ARCHITECTURES.values()]
    return json.dumps(document, indent=1) + "\n"
