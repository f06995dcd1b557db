"""Files that give orders to later programs: instructions of agents, hooks, settings of editors and of shells.

A change of one acts outside of the conversation and after it, so the tools that write files ask a person for it
whatever is allowed. The shell is not covered: a command under ``allow`` can write every file that the target lets it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_exec_agent.tools.tool import check_approval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_agent.tools.envelope import Failure
    from hermes_exec_agent.tools.tool import Context

_NAMES = (
    "agents.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", ".cursorrules", ".windsurfrules",
    ".clinerules", ".mcp.json", "mcp.json", "copilot-instructions.md", ".envrc", ".gitconfig",
    ".pre-commit-config.yaml", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc",
    ".vimrc", ".exrc",
)  # fmt: skip
_FOLDERS = (
    ".git", ".husky", ".claude", ".codex", ".gemini", ".cursor", ".vscode", ".idea", ".devcontainer", ".config/fish",
    ".config/git", ".config/autostart", ".config/systemd", ".config/environment.d",
)  # fmt: skip
_INSTRUCTING = re.compile(
    rf"(?:^|/)(?:(?:{'|'.join(map(re.escape, _NAMES))})$|(?:{'|'.join(map(re.escape, _FOLDERS))})(?:/|$))",
    re.IGNORECASE,
)


def is_instruction_file(path: str) -> bool:
    """Whether the file at this path gives orders to later programs, by its name."""
    return _INSTRUCTING.search(path) is not None


async def check_instruction_files(tool: str, summary: str, paths: Iterable[str], context: Context) -> Failure | None:
    """Return why a call may not write these paths, or None; a person is asked if one gives orders to later programs.

    Args:
        tool: its name.
        summary: describes the call.
        paths: as the call has them, and as they are in the target.
        context: of the conversation.
    """
    found = next(filter(is_instruction_file, paths), None)
    if found is None:
        return None
    what = f"change {found}, which gives orders to later programs: {summary}"
    return await check_approval(tool, what, context, scope=what, always=True)
