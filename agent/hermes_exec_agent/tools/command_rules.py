"""Rules that allow and deny commands of ``terminal``, and the pattern that a lasting approval covers.

A pattern is the words of a command. ``*`` and ``?`` stand for characters of one word; a ``*`` at the end of the pattern
stands for any further words. A rule reads words and knows nothing of what a program does with them, so it decides when
a person is asked, and is not a sandbox.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hermes_exec.errors import ConfigError
from hermes_exec_agent.tools.inside.sensitive import secret_of
from hermes_exec_agent.tools.shell_commands import parse_all, parse_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WITH_SUBCOMMANDS = frozenset({
    "apt", "apt-get", "bundle", "cargo", "conda", "dnf", "docker", "gh", "git", "go", "helm", "hermes-exec", "kubectl",
    "make", "npm", "pip", "pip3", "pnpm", "podman", "poetry", "scontrol", "systemctl", "terraform", "uv", "yarn",
})  # fmt: skip
_ONLY_AS_IS = frozenset({
    "awk", "bash", "builtin", "chmod", "chown", "command", "curl", "dash", "dd", "docker", "doas", "env", "eval",
    "exec", "find", "kill", "ksh", "mv", "nice", "node", "nohup", "perl", "pkill", "podman", "python", "python3", "rm",
    "ruby", "scp", "sed", "setsid", "sh", "shred", "source", "ssh", "sudo", "tar", "tee", "time", "timeout", "wget",
    "xargs", "zsh", ".",
})  # fmt: skip
"""Programs that run others, or destroy, whatever their first words are."""


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """The pattern of a command."""

    text: str
    words: tuple[str, ...]
    open: bool
    """Whether further words may follow."""

    @classmethod
    def parse(cls, text: str) -> CommandPattern:
        """Return the pattern in a text.

        Raises:
            ConfigError: it would match every command.
        """
        words = text.split()
        is_open = bool(words) and words[-1].endswith("*")
        if is_open:
            words[-1] = words[-1][:-1]
        words = [word for word in words if word]
        if not words or not words[0].strip("*?[]"):
            raise ConfigError(
                f"the pattern {text!r} of [agent.commands] names no command",
                remedy='"git status *", for example',
            )
        return cls(" ".join(text.split()), tuple(words), is_open)

    def matches(self, words: Sequence[str | None]) -> bool:
        """Return whether the pattern covers a command; a word that is not known matches each part of a pattern."""
        if len(words) < len(self.words) or (len(words) > len(self.words) and not self.open):
            return False
        pairs = zip(self.words, words, strict=False)
        return all(word is None or fnmatchcase(word, pattern) for pattern, word in pairs)


@dataclass(frozen=True, slots=True)
class CommandRules:
    """Patterns of commands that run without a question, and of those that never run."""

    allow: tuple[CommandPattern, ...] = ()
    deny: tuple[CommandPattern, ...] = ()

    @classmethod
    def parse(cls, allow: Iterable[str], deny: Iterable[str]) -> CommandRules:
        """Return the rules with these patterns.

        Raises:
            ConfigError: a pattern would match every command.
        """
        return cls(tuple(map(CommandPattern.parse, allow)), tuple(map(CommandPattern.parse, deny)))

    def find_denial(self, text: str) -> str:
        """Return the pattern that denies a command of shell text; ``?`` if that cannot be decided; empty for none."""
        commands = parse_all(text)
        if commands is None:
            return "?" if self.deny else ""
        found = (each.text for each in self.deny if any(each.matches(command.words) for command in commands))
        return next(found, "")

    def find_permission(self, text: str) -> str:
        """Return the patterns that together allow all commands of shell text; empty if one is not allowed."""
        if not self.allow:
            return ""
        used: dict[str, None] = {}
        for words in parse_plain(text) or ():
            pattern = next((each.text for each in self.allow if each.matches(words)), "")
            if not pattern or _names_secret(words):
                return ""
            used[pattern] = None
        return ", ".join(used)


def _names_secret(words: Sequence[str]) -> bool:
    """Whether an argument looks like the path of a well-known secret."""
    texts = (part for word in words for part in (word, word.rpartition("=")[2]))
    return any(secret_of(posixpath.normpath("/" + text.removeprefix("~"))) for text in texts)


def describe_scope(text: str) -> str:
    """Return the patterns that a lasting approval of shell text covers; empty if it covers this text alone."""
    commands = parse_plain(text)
    scopes = [_find_scope(words) for words in commands or ()]
    return ", ".join(dict.fromkeys(scopes)) if all(scopes) else ""


def _find_scope(words: Sequence[str]) -> str:
    """Return the pattern of a command; empty if nothing short of the whole command is narrow."""
    name = words[0]
    if name in _ONLY_AS_IS or "/" in name or _names_secret(words):
        return ""
    if name not in _WITH_SUBCOMMANDS:
        return f"{name} *"
    if len(words) < 2 or not words[1].replace("-", "").isalnum() or words[1].startswith("-"):
        return ""
    return f"{name} {words[1]} *"
