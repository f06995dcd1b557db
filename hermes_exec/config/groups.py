"""Groups: names of several targets, as in ``--on group:web``.

[groups]
web = ["web1", "web2"]              profiles and one-line targets
far = ["ssh://me@gpu*"]             the hosts of ~/.ssh/config that match
near = ["docker:@web-*"]            the running containers that match
all = ["group:web", "group:far"]    other groups
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.backend import SupportsPatterns
from hermes_exec.config import registry
from hermes_exec.config.type_names import GROUP
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def expand_groups(texts: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the targets that ``texts`` name, each once, with groups and patterns replaced by their targets.

    Raises:
        ConfigError: there is no such group, it contains itself, or a pattern selects nothing.
    """
    return list(dict.fromkeys(_expand(texts, groups, ())))


def _expand(texts: Sequence[str], groups: Mapping[str, Sequence[str]], inside: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for text in texts:
        kind, colon, rest = text.strip().partition(":")
        if kind == GROUP and colon:
            found += _expand(_get_members(rest, groups, inside), groups, (*inside, rest))
        elif colon and inside and "+" not in rest and set(rest) & set("*?["):
            found += _find_targets(kind, rest)
        else:
            found.append(text)
    return found


def _get_members(name: str, groups: Mapping[str, Sequence[str]], inside: tuple[str, ...]) -> Sequence[str]:
    if name in inside:
        raise ConfigError(f"the group {name!r} contains itself: {' contains '.join([*inside, name])}")
    if name not in groups:
        near = registry.suggest_name(name, groups, "; the nearest is")
        known = ", ".join(sorted(groups)) or "a table [groups] in hermes.toml"
        raise ConfigError(f"there is no group {name!r}{near}", remedy=known)
    return groups[name]


def _find_targets(kind: str, pattern: str) -> list[str]:
    backend = registry.find_backend_class(kind)
    if not issubclass(backend, SupportsPatterns):
        raise ConfigError(f"{kind}:{pattern}: targets of this type have no list, so no pattern selects any")
    found = backend.find_targets(pattern)
    if not found:
        raise ConfigError(
            f"{kind}:{pattern} matches no target", remedy="a Host of ~/.ssh/config, or the name of a container"
        )
    return found
