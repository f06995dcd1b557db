"""Completions of names: targets, jobs, keys of the configuration, commands and models.

typer reads annotations at run time, so this module leaves `annotations` of `__future__` out.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import typer

from hermes_exec.errors import HermesError

_JOBS_FRESH_S = 2.0
_TARGETS_FRESH_S = 10.0
_LONGEST = 60
"""Characters of a command in a description."""


def complete_targets(incomplete: str) -> list[str]:
    """Complete the name of a profile, or the type of a one-line target; more follows a colon at the end."""
    from hermes_exec.config.load import load_settings
    from hermes_exec.config.registry import find_profile_model, list_types

    try:
        known = [*load_settings().profiles]
    except HermesError:
        known = ["local"]
    for kind in list_types():
        try:
            takes_text = find_profile_model(kind).target_field is not None
        except HermesError:
            continue
        known.append("ssh://" if kind == "ssh" else f"{kind}:" if takes_text else kind)
    outer, plus, inner = incomplete.rpartition("+")
    found = select([*known, *_list_listed(inner)], inner)
    return [f"{outer}{plus}{each}" for each in found]


def _list_listed(incomplete: str) -> list[str]:
    """Return the targets of a type that has a list, such as hosts of ~/.ssh/config and running containers."""
    from hermes_exec.cli.completion.lookup import look_up
    from hermes_exec.config.registry import list_types

    kind, colon, text = incomplete.partition(":")
    if not colon or kind not in list_types():
        return []
    end = max(text.rfind("/"), text.rfind("@")) + 1
    pattern = f"{text[:end]}*"
    return [each for each, _ in look_up(f"{kind}:{pattern}", _TARGETS_FRESH_S, lambda: _find_listed(kind, pattern))]


def _find_listed(kind: str, pattern: str) -> list[tuple[str, str]]:
    from hermes_exec.backend import SupportsPatterns
    from hermes_exec.config.registry import find_backend_class

    backend = find_backend_class(kind)
    return [(target, "") for target in backend.find_targets(pattern)] if issubclass(backend, SupportsPatterns) else []


def complete_targets_or_groups(incomplete: str) -> list[str]:
    """Complete the name of a target, or ``group:NAME``."""
    from hermes_exec.config.load import load_settings

    try:
        groups = [f"group:{name}" for name in load_settings().groups]
    except HermesError:
        groups = []
    return complete_targets(incomplete) + select(groups, incomplete)


def complete_jobs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the name or the id of a job, or the name of a kept shell; the id only if there is no single name."""
    from hermes_exec.cli.completion.lookup import look_up

    on: str | None = context.params.get("on")
    given: Any = context.params.get("job")
    before: list[str] = [*given] if isinstance(given, list | tuple) else []
    found = look_up(f"jobs {on or ''}", _JOBS_FRESH_S, lambda: asyncio.run(_find_jobs(on)))
    taken = [name for name, _ in found]
    single = [each for each in found if taken.count(each[0]) == 1 and each[0] not in before]
    chosen = [each for each in single if each[0].startswith(incomplete)]
    return chosen if incomplete else list({text: (name, text) for name, text in reversed(chosen)}.values())[::-1]


async def _find_jobs(on: str | None) -> list[tuple[str, str]]:
    from hermes_exec.cli.find_jobs import guests_with_jobs

    values: list[tuple[str, str]] = []
    async with guests_with_jobs(on) as guests:
        for guest in guests:
            for job in guest.jobs:
                text = f"{job.state.value}: {' '.join(job.command.split())[:_LONGEST]} ({job.id})"
                values += [(name, text) for name in (job.name, job.id) if name]
            values += [(shell.name, f"shell in {guest.record.target}") for shell in guest.ptys]
    return values


def complete_keys(incomplete: str) -> list[str]:
    """Complete a key of the configuration."""
    from hermes_exec.config.effective import find_effective

    keys = [each.key for each in find_effective().settings]
    return select([*keys, *{key.rpartition(".")[0] for key in keys if "." in key}], incomplete)


def complete_commands(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a command, or of a command below the one that was given."""
    from hermes_exec.cli.app import build

    words: list[str] = list(context.params.get("command") or [])
    group: Any = build(words, completing=True)
    for word in words:
        group = getattr(group, "commands", {}).get(word)
    below: dict[str, Any] = getattr(group, "commands", {})
    return [(name, each.get_short_help_str()) for name, each in below.items() if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Complete the name of a model of the configuration."""
    from hermes_exec.config.load import load_settings

    return select({"main": None, **load_settings().models}, incomplete)


def select(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin with ``incomplete``, sorted, each once."""
    return sorted({name for name in names if name.startswith(incomplete)})
