"""Secrets by name: their sources, and values that cannot be printed by accident.

A configuration holds only *sources*: ``env:NAME``, ``file:/path`` or ``{command = [argv]}``. Values are looked up when
a target is opened, and are sent over the channel, never in an argv.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, cast

from hermes_exec.config.paths import expand_home, read_regular
from hermes_exec.errors import ConfigError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
"""The names of variables that a shell accepts."""

COMMAND_LIMIT_S = 60.0
"""Seconds that a secret's command may take; it may ask the user for a passphrase."""

FORMS = 'env:NAME, file:/path or {command = ["program", "argument"]}'


@dataclass(frozen=True, slots=True)
class SecretSource:
    """The source of a secret. Holds no secret, so it may be shown."""

    kind: Literal["env", "file", "command"]
    where: tuple[str, ...]
    """The variable or the path, or the argv of the command."""

    @classmethod
    def parse(cls, spec: object) -> SecretSource:
        """Parse a source from a configuration file.

        Raises:
            ValueError: it has none of the known forms. The message never repeats ``spec``, since users
                write the secret itself there.
        """
        if isinstance(spec, SecretSource):
            return spec
        if isinstance(spec, str):
            kind, _, word = spec.partition(":")
            return cls._of(kind, word)
        if isinstance(spec, Mapping):
            table = cast("Mapping[object, object]", spec)
            if len(table) == 1:
                return cls._of(*next(iter(table.items())))
        raise ValueError(f"a secret's source is {FORMS}; the secret itself is never written down")

    @classmethod
    def _of(cls, kind: object, where: object) -> SecretSource:
        if kind == "env" and isinstance(where, str) and NAME.match(where):
            return cls("env", (where,))
        if kind == "file" and isinstance(where, str) and where.startswith(("/", "~")):
            return cls("file", (where,))
        if kind == "command" and isinstance(where, list | tuple):
            words = tuple(word for word in cast("list[object]", where) if isinstance(word, str))
            if words and words[0] and len(words) == len(cast("list[object]", where)):
                return cls("command", words)
        raise ValueError(f"a secret's source is {FORMS}; the secret itself is never written down")

    def __str__(self) -> str:
        """Return the source as text; a command is shown without its arguments, which may be secret."""
        names = {"env": "environment variable", "file": "file", "command": "command"}
        return f"{names[self.kind]} {self.where[0]}"


class Secret:
    """A value that shows only its name.

    ``reveal`` is the only access to the value. A secret can be neither pickled nor copied.
    """

    __slots__ = ("_value", "name")

    name: Final[str]

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self._value = value

    def reveal(self) -> str:
        """Return the value itself; keep it out of everything that is printed or stored."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"secret {self.name} cannot be pickled or copied")


def parse_secrets(spec: object) -> dict[str, SecretSource]:
    """Parse the ``secrets`` of a profile: a list of environment variables, or a table of name and source.

    Raises:
        ValueError: it is neither; the message repeats nothing that may be a secret.
    """
    if isinstance(spec, list | tuple):
        names = cast("list[object] | tuple[object, ...]", spec)
        for position, name in enumerate(names, 1):
            if not (isinstance(name, str) and NAME.match(name)):
                raise ValueError(f"entry {position} is not the name of an environment variable")
        return {str(name): SecretSource("env", (str(name),)) for name in names}
    if isinstance(spec, Mapping):
        sources: dict[str, SecretSource] = {}
        for position, (name, source) in enumerate(cast("Mapping[object, object]", spec).items(), 1):
            if not (isinstance(name, str) and NAME.match(name)):
                raise ValueError(f"entry {position} is not named like an environment variable")
            try:
                sources[name] = SecretSource.parse(source)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return sources
    raise ValueError(f"should be a list of names or a table of name = source, where {FORMS}")


def resolve_secrets(spec: Mapping[str, SecretSource], environ: Mapping[str, str]) -> dict[str, Secret]:
    """Look up every secret. Blocks: a file may be slow, a command may ask the user for input.

    Raises:
        ConfigError: a secret is missing, empty, not text or holds a NUL; the message names the secret and
            its source.
    """
    return {name: Secret(name, _value(name, source, environ)) for name, source in spec.items()}


def _value(name: str, source: SecretSource, environ: Mapping[str, str]) -> str:
    if source.kind == "env":
        value = environ.get(source.where[0])
        if value is None:
            raise ConfigError(
                f"secret {name}: {source} is not set",
                remedy=f"export {source.where[0]}, or give the secret a file or a command as its source",
            )
    else:
        data = _from_file(name, source, environ) if source.kind == "file" else _from_command(name, source, environ)
        try:
            # Files and programs end their text with a newline that is not part of the secret.
            value = data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ConfigError(f"secret {name}: {source} gave something that is not UTF-8 text") from None
    if not value:
        raise ConfigError(f"secret {name}: {source} is empty")
    if "\0" in value:
        raise ConfigError(f"secret {name}: {source} holds a NUL, which no variable can carry")
    return value


def _from_file(name: str, source: SecretSource, environ: Mapping[str, str]) -> bytes:
    path = source.where[0]
    home = environ.get("HOME")
    if path.startswith("~/") and home:
        path = home + path[1:]
    try:
        return read_regular(expand_home(path))
    except (ConfigError, RuntimeError) as error:
        raise ConfigError(f"secret {name}: {error}") from error


def _from_command(name: str, source: SecretSource, environ: Mapping[str, str]) -> bytes:
    import subprocess

    try:
        # Its standard error is the user's own, so prompts and error messages are shown and never kept.
        done = subprocess.run(
            source.where,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=dict(environ),
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"secret {name}: {source} did not end within {COMMAND_LIMIT_S:g} s") from None
    except OSError as error:
        raise ConfigError(f"secret {name}: {source}: {os.strerror(error.errno or 0)}") from None
    if done.returncode != 0:
        raise ConfigError(
            f"secret {name}: {source} failed with exit code {done.returncode}",
            remedy="run the command by hand to see why",
        )
    return done.stdout
