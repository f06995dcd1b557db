"""Answer a shell that asks for completions: parse its line, let typer find the parameter, and format the values.

The script of each shell (`scripts`) starts this program with ``_HERMES_EXEC_COMPLETE=SHELL`` and the line up to the
cursor in ``COMP_LINE``. The answer has one completion a line. The exit code 1 has the shell complete files.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VARIABLE = "_HERMES_EXEC_COMPLETE"
LINE = "COMP_LINE"
BREAKS = "_HERMES_EXEC_BREAKS"
"""The characters at which bash splits words for completion, ``COMP_WORDBREAKS``."""
_DEFAULT_BREAKS = " \t\n\"'@><=;|&(:"
_KEPT = "$@"
"""The breaks that bash leaves at the beginning of the text that it replaces (``rl_special_prefixes``)."""
_PLAIN = re.compile(r"[\w@%+=:,./~-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Completion:
    """A value that the current word may become, and a description."""

    value: str
    help: str = ""


@dataclass(slots=True)
class Word:
    """A word of a command line, without its quotes."""

    text: str = ""
    quoted: set[int] = field(default_factory=set[int])
    """The indices of characters that a quote or a backslash protects."""
    quote: str = ""
    """The quote that is open at the end of the line."""


def split_line(line: str) -> list[Word]:
    """Split a line as a shell does; the last word is the one at the cursor, empty after a blank.

    A quote need not be closed.
    """
    words = [Word()]
    begun = False
    characters = iter(line)
    for character in characters:
        word = words[-1]
        if character == "\\" and word.quote != "'":
            character = next(characters, "")  # noqa: PLW2901  the one that it protects
            word.quoted.add(len(word.text))
            word.text += character
        elif word.quote:
            if character == word.quote:
                word.quote = ""
                continue
            word.quoted.add(len(word.text))
            word.text += character
        elif character in "'\"":
            word.quote = character
        elif character.isspace():
            if begun:
                words.append(Word())
            begun = False
            continue
        else:
            word.text += character
        begun = True
    return words


def find_completions(argv: Sequence[str], incomplete: str) -> list[Completion] | None:
    """Return the completions of the word ``incomplete`` after the arguments ``argv``; None for any file."""
    from typer.core import TyperArgument, TyperOption

    from hermes_exec.cli.app import NAME, build

    root: Any = build(argv, completing=True)
    typers: Any = import_module("typer.completion").shell_completion
    context = typers._resolve_context(root, {}, NAME, list(argv))  # noqa: SLF001  the public method hides the parameter
    asked, rest = typers._resolve_incomplete(context, list(argv), incomplete)  # noqa: SLF001  the same
    option, equals, _ = incomplete.partition("=")
    prefix = option + equals if incomplete.startswith("-") and equals else ""
    if isinstance(asked, TyperOption | TyperArgument):
        choices = (asked.metavar or "").split("|")
        if len(choices) > 1 and all(each.isidentifier() for each in choices):
            return [Completion(prefix + each) for each in choices if each.startswith(rest)]
        custom: object = getattr(asked, "_custom_shell_complete", None)
        if custom is None and not asked.type_descriptor.is_choice:
            return None
    found = [
        Completion(prefix + item.value, " ".join((item.help or "").split()))
        for item in asked.shell_complete(context, rest)
        if item.value
    ]
    return [each for each in found if each.value.isprintable()]  # names of files are untrusted


def print_completions(command: str = "") -> int:
    """Print the completions that a shell asks for. ``command`` is the one command of the program, if it has one."""
    shell = os.environ.pop(VARIABLE)
    words = split_line(os.environ.get(LINE, ""))
    argv = [word.text for word in words[1:-1]]
    if command:
        from hermes_exec.cli import insert_command

        argv = insert_command(argv, command)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            found = find_completions(argv, words[-1].text)
        except (Exception, SystemExit):  # noqa: BLE001  a half-typed line may be wrong in any way
            found = None
        if found is None and shell == "fish":  # which completes files or ours, not both
            found = _list_files(words[-1].text)
    for line in _FORMATTERS[shell](found or [], words[-1]) if shell in _FORMATTERS else ():
        print(line)
    return 0 if found is not None else 1


def _format_for_bash(found: Sequence[Completion], word: Word) -> list[str]:
    """Return the texts by which bash replaces the one behind the last break of the word."""
    if word.quote:
        return [each.value for each in found]
    breaks = os.environ.get(BREAKS, _DEFAULT_BREAKS)
    ends = [at for at, each in enumerate(word.text) if each in breaks and at not in word.quoted]
    cut = max((at + (word.text[at] not in _KEPT) for at in ends), default=0)
    return [_escape(each.value[cut:]) for each in found]


def _escape(text: str) -> str:
    escaped = "".join(each if _PLAIN.match(each) or not each.isascii() else f"\\{each}" for each in text)
    return escaped.replace("\\~", "~", 1) if text.startswith("~") else escaped


def _format_with_help(found: Sequence[Completion], word: Word) -> list[str]:  # noqa: ARG001  one signature for all
    return [f"{each.value}\t{each.help}" for each in found]


def _list_files(text: str) -> list[Completion]:
    from hermes_exec.cli.completion.paths import list_local

    return [Completion(path) for path in list_local(text) if path.isprintable()]


_FORMATTERS: dict[str, Callable[[Sequence[Completion], Word], list[str]]] = {
    "bash": _format_for_bash,
    "zsh": _format_with_help,
    "fish": _format_with_help,
}
