"""Completions that several commands have."""

from __future__ import annotations


def complete_policies(incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a policy."""
    from hermes_exec.errors import HermesError
    from hermes_exec_policies.load import list_policies, load_policy

    found: list[tuple[str, str]] = []
    for name in list_policies():
        if name.startswith(incomplete):
            try:
                found.append((name, load_policy(name).summary))
            except HermesError:
                found.append((name, "invalid"))
    return found
