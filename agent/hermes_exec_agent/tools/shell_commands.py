"""The commands of shell text, for rules of approvals.

A grammar of bash parses the text. A rule may allow a small part of it: commands whose words are all literal, joined by
``;``, ``&&``, ``||``, ``|`` and line breaks. Everything else, such as an expansion, a redirection to a file, a glob, a
function or a background command, is not plain, and no rule allows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node, Parser

_LONGEST = 10_000
_WORD = re.compile(r"(?:~(?=/|\Z))?[A-Za-z0-9_./+@=%,:-]*")
_QUIET = re.compile(r"(?:[12]|&)?>>?\s*/dev/null|2>&1|1?>&2")
"""Redirections that write no file."""
_JOINTS = frozenset({";", "&&", "||", "|", "|&", "\n"})
_GROUPS = frozenset({"program", "list", "pipeline", "redirected_statement"})
_WRAPPERS = frozenset({
    "builtin", "command", "coproc", "doas", "env", "exec", "nice", "nohup", "setsid", "stdbuf", "sudo", "time",
    "timeout", "watch", "xargs",
})  # fmt: skip
"""Programs that run another one, with any options of their own before its name."""
_INTERPRETERS = frozenset({".", "ash", "bash", "dash", "eval", "ksh", "sh", "source", "zsh"})


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command anywhere in shell text."""

    words: tuple[str | None, ...]
    """Its name and arguments without quotes; None for a word that the text alone does not determine."""


def parse_plain(text: str) -> list[tuple[str, ...]] | None:
    """Return the words of each command of plain shell text; None if it is not plain, or does not parse."""
    root = _parse(text)
    if root is None:
        return None
    found: list[tuple[str, ...]] = []
    return found if _read_plain(root, found) and found else None


def parse_all(text: str) -> list[ShellCommand] | None:
    """Return all commands of shell text, also those in functions and substitutions; None if it does not parse.

    It is also None if a variable or the text of another interpreter determines what runs.
    """
    root = _parse(text)
    if root is None:
        return None
    found: list[ShellCommand] = []
    for node in _walk(root):
        if node.type == "command":
            words = tuple(_read_word(each) for each in _list_words(node))
            started = list(_list_started(words))
            if not started or any(each[0] is None or each[0] in _INTERPRETERS for each in started):
                return None
            found += map(ShellCommand, started)
        elif node.type in ("declaration_command", "unset_command"):
            name = node.children[0].type
            found.append(ShellCommand((name, *(_decode(each) for each in node.children[1:]))))
    return found


def _list_started(words: Sequence[str | None]) -> Iterator[tuple[str | None, ...]]:
    """Yield a command without the folder of its program; after one that runs another, also each possible other one."""
    runs_another = False
    for start, word in enumerate(words):
        name = None if word is None else word.rpartition("/")[2]
        runs_another = runs_another or (not start and name in _WRAPPERS)
        yield (name, *words[start + 1 :])
        if not runs_another:
            return


def _parse(text: str) -> Node | None:
    """Return the tree of the text; None if it has errors, hidden characters, or parts that are in no token."""
    if len(text) > _LONGEST or not all(each.isprintable() or each in "\n\t" for each in text):
        return None
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return None
    parser = _create_parser()
    root = None if parser is None else parser.parse(data).root_node
    if root is None or root.has_error:
        return None
    end = 0
    for leaf in _list_leaves(root):
        if data[end : leaf.start_byte].strip(b" \t\n") or leaf.is_missing:
            return None
        end = max(end, leaf.end_byte)
    return None if data[end:].strip(b" \t\n") else root


@cache
def _create_parser() -> Parser | None:
    """Return the parser; None without the extra `agent`, where no text parses, so that a person is asked."""
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError:
        return None
    return Parser(Language(tree_sitter_bash.language()))


def _walk(node: Node) -> Iterator[Node]:
    todo = [node]
    while todo:
        each = todo.pop()
        yield each
        todo += reversed(each.children)


def _list_leaves(root: Node) -> Iterator[Node]:
    return (each for each in _walk(root) if not each.children)


def _read_plain(root: Node, found: list[tuple[str, ...]]) -> bool:
    """Add the commands of a node; return whether all of it is plain."""
    todo = [root]
    while todo:
        node = todo.pop(0)
        if node.type == "command":
            words = [_read_word(each) for each in _list_words(node)]
            if len(words) != len(node.children) or not words or not words[0]:
                return False
            known = [word for word in words if word is not None]
            if len(known) != len(words):
                return False
            found.append(tuple(known))
        elif node.type in _GROUPS:
            todo = [*node.children, *todo]
        elif node.type == "file_redirect":
            if not _QUIET.fullmatch(_decode(node)):
                return False
        elif node.type not in _JOINTS or node.is_named:
            return False
    return True


def _list_words(command: Node) -> list[Node]:
    return [each.children[0] if each.type == "command_name" else each for each in command.children if _is_word(each)]


def _is_word(node: Node) -> bool:
    return node.is_named and node.type not in ("variable_assignment", "file_redirect", "herestring_redirect")


def _read_word(node: Node) -> str | None:
    """Return a word without its quotes; None if it has anything but literal text."""
    text = _decode(node)
    match node.type:
        case "word" | "number":
            return text if _WORD.fullmatch(text) else None
        case "raw_string":
            return None if "\n" in text else text[1:-1]
        case "string":
            is_literal = all(each.type in ('"', "string_content") for each in node.children)
            return None if not is_literal or set("\\$`!\n") & set(text) else text[1:-1]
        case "concatenation":
            parts = [_read_word(each) for each in node.children]
            known = [part for part in parts if part is not None]
            return "".join(known) if len(known) == len(parts) and known else None
        case _:
            return None


def _decode(node: Node) -> str:
    return (node.text or b"").decode()
