"""One-line targets: the texts that name a target on a command line.

    local                                   a type that needs no more
    docker:python:3.11                      TYPE:WHAT
    docker:@web                             TYPE:@NAME, a target that exists already
    ssh://me@host:2222                      as everywhere
    sandbox                                 a profile of the configuration
    docker:python:3.11+ssh://me@host        the first target is inside of the second

A ``+`` or ``%`` that belongs to a name is written ``%2B`` or ``%25``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from hermes_exec.config import registry
from hermes_exec.config.check import prefix_error, validate_table
from hermes_exec.config.type_names import GROUP
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.config.profile import Profile

PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
"""What a profile can be called, so that its name is never mistaken for another kind of target."""

MAX_DEPTH = 8
"""Targets inside of each other at most."""
MAX_LENGTH = 4096
"""Characters of a target at most."""

_NONE: Mapping[str, Profile] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Target:
    """A target, and the targets that it is inside of."""

    text: str
    """The target in its shortest spelling, without secrets."""
    chain: tuple[Profile, ...]
    """The profiles, innermost first; never empty."""

    @property
    def profile(self) -> Profile:
        """The profile of the target in which commands run."""
        return self.chain[0]

    def __str__(self) -> str:
        return self.text


def parse_target(text: str, profiles: Mapping[str, Profile] = _NONE) -> Target:
    """Parse a target; words without a colon are first looked up in ``profiles``.

    Raises:
        ConfigError: it is not a valid target, names an unknown profile or type, or is inside of itself.
        Unsupported: its type is known, but not part of this version.
    """
    return _parse(text, profiles, ())


def format_target(profile: Profile) -> str:
    """Return the one-line target of a profile, quoted so that it can be a part of a chain."""
    return _quote(profile.target_text())


def parse_profile(profile: Profile, profiles: Mapping[str, Profile] = _NONE) -> Target:
    """Return the target of a profile object, inside of the target that its ``via`` names.

    Raises:
        ConfigError: ``via`` is not a valid target, or names an unknown profile or type.
        Unsupported: the type of ``via`` is known, but not part of this version.
    """
    label = format_target(profile)
    if profile.via is None:
        return Target(label, (profile,))
    outside = _parse_via(profile.via, label, profiles, ())
    return Target(f"{label}+{outside}", (profile, *outside.chain))


def _parse_via(via: str, label: str, profiles: Mapping[str, Profile], inner: tuple[str, ...]) -> Target:
    try:
        return _parse(via, profiles, (*inner, label))
    except ConfigError as error:
        raise prefix_error(f"{label!r} is inside of {via!r}", error) from error


def _parse(text: str, profiles: Mapping[str, Profile], inner: tuple[str, ...]) -> Target:
    text = text.strip()
    if not text:
        raise ConfigError("the target is empty", remedy="local, ssh://USER@HOST, docker:IMAGE or a profile's name")
    if len(text) > MAX_LENGTH or not text.isprintable():
        raise ConfigError(f"a target is one printable line of at most {MAX_LENGTH} characters")
    chain: list[Profile] = []
    labels: list[str] = []
    parts = text.split("+")
    if len(parts) + len(inner) > MAX_DEPTH:
        raise ConfigError(f"more than {MAX_DEPTH} targets inside of each other")
    for position, part in enumerate(parts, 1):
        label, profile = _part(part, text, profiles)
        labels.append(label)
        chain.append(profile)
        if profile.via is None:
            continue
        if position < len(parts):
            raise ConfigError(f"{label!r} is already inside of {profile.via!r}, so nothing can follow it after a '+'")
        if label in inner:
            raise ConfigError(f"{label!r} is inside of itself: {' in '.join([*inner, label])}")
        chain += _parse_via(profile.via, label, profiles, inner).chain
    return Target("+".join(labels), tuple(chain))


def _part(part: str, text: str, profiles: Mapping[str, Profile]) -> tuple[str, Profile]:
    where = f"target {_mask_password(text)!r}"
    try:
        word = unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: a '%' is followed by something that is not UTF-8; '%' itself is %25") from None
    if not word or not word.isprintable():
        raise ConfigError(f"{where}: a part of it is empty or not printable")
    kind, colon, rest = word.partition(":")
    if kind == GROUP:
        raise ConfigError(f"{where}: a group is several targets, and one is needed here", remedy="run --on group:NAME")
    if not colon:
        if word in profiles:
            return word, profiles[word]
        if not registry.is_built_in(word) and word not in registry.list_types():
            raise _unknown(word, where, profiles)
    elif not rest:
        raise ConfigError(f"{where}: nothing follows {kind!r} after its colon")
    profile = _spelt(kind, rest, where)
    return format_target(profile), profile


def _spelt(kind: str, rest: str, where: str) -> Profile:
    try:
        model = registry.find_profile_model(kind)
    except ConfigError as error:
        raise prefix_error(where, error) from error
    try:
        fields: Mapping[str, object] = model.fields_of_target(rest) if rest else {}
    except ValueError as error:
        raise ConfigError(f"{where}: {kind}: {error}") from None
    return validate_table(model, {"type": kind, **fields}, where)


def _unknown(word: str, where: str, profiles: Mapping[str, Profile]) -> ConfigError:
    if not PROFILE_NAME.match(word):
        # It may be part of a text that was cut at a '+', such as a password, so the error does not repeat it.
        return ConfigError(f"{where}: a part of it is neither a profile's name nor TYPE:…; a '+' inside a name is %2B")
    known = [*profiles, *registry.list_types()]
    return ConfigError(
        f"no profile and no kind of target is called {word!r}" + registry.suggest_name(word, known, "; the nearest is"),
        remedy=", ".join(sorted({*known})),
    )


def _quote(text: str) -> str:
    return text.replace("%", "%25").replace("+", "%2B")


def _mask_password(text: str) -> str:
    # A password may precede the '@': all between the second colon and the last '@' is replaced.
    return re.sub(r"^([^:]*:[^:@]*:).*@", r"\1…@", text)
