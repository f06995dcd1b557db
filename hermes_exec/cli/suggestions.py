"""Commands to suggest for a wrong name: by meaning first, then by spelling."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from hermes_exec.cli.commands import list_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 3
_MEANINGS = tuple(
    frozenset(line.split())
    for line in (
        "list ls ll ps all index outcomes",
        "show cat view get info inspect describe display print status read open",
        "add new create make install register init import put",
        "remove rm delete del archive forget uninstall drop gc revert cancel close",
        "run exec execute start call invoke launch script",
        "check validate verify lint test prove doctor measure try",
        "edit change set update modify vim",
        "search find grep query ask",
        "undo rollback restore revert back reset resume",
        "history log changes versions",
        "export save dump download backup",
        "accept approve allow grant trust yes",
        "reject deny refuse distrust no",
    )
)
"""Sets of words that people use for the same thing, for the commands below a group."""


def suggest_commands(word: str, names: Sequence[str], *, root: bool) -> list[str]:
    """Return up to three of ``names`` that a person who typed ``word`` may have meant, the most likely first.

    ``root`` is whether these are the commands of ``hermes-exec`` itself, which have synonyms of their own.
    """
    word = word.lower()
    if root:
        table = list_commands().commands
        meant = [name for name in names if name in table and word in table[name].synonyms]
    else:
        meant = [name for name in names if any(word in words and name in words for words in _MEANINGS)]
    return list(dict.fromkeys([*meant, *difflib.get_close_matches(word, names)]))[:_MOST]
