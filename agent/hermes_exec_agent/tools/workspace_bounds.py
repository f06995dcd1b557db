"""Whether an act stays in the workspace: the folder in which a conversation began, or a target that is not a machine.

After a conversation read text from the web or from another server, an act that may leave the workspace needs a person's
approval, whatever is allowed. The words of a command do not determine what its program does, so a command is taken to
stay only if it is plain, if each of its programs only reads or is allowed by a rule, and if no word of it leads out.
The rules decide when a person is asked, and are not a sandbox.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.tools.inside.sensitive import is_below
from hermes_exec_agent.tools.shell_commands import parse_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec_agent.tools.tool import Context

_READERS = frozenset({
    "basename", "cat", "cd", "cmp", "cut", "diff", "dirname", "du", "echo", "false", "file", "grep", "head", "ls", "nl",
    "printf", "pwd", "readlink", "realpath", "stat", "tail", "test", "tr", "true", "wc",
})  # fmt: skip
"""Programs that write no file and start no other program, whatever their arguments are."""
_OUTWARD = frozenset({
    "apt", "apt-get", "aws", "az", "curl", "dnf", "docker", "ftp", "gcloud", "gh", "glab", "helm", "kubectl", "mail",
    "nc", "ncat", "netcat", "npx", "podman", "rsync", "sbatch", "scancel", "scontrol", "scp", "sftp", "socat", "srun",
    "ssh", "systemctl", "telnet", "terraform", "twine", "wget",
})  # fmt: skip
"""Programs that act on other machines, or on all of this one."""
_OUTWARD_GIT = frozenset({
    "clone", "config", "fetch", "ls-remote", "pull", "push", "remote", "send-email", "submodule",
})  # fmt: skip
_LIMIT_S = 30.0


async def paths_stay(paths: Iterable[str], context: Context) -> bool:
    """Return whether all paths lead to files in the workspace, after all links; False if that is not known."""
    workspace = context.workspace
    absolute = [await workspace.path(each) for each in paths]
    if not workspace.root or not absolute:
        return False
    try:
        result = await context.terminal.run(["realpath", "-mz", "--", *absolute], timeout=_LIMIT_S)
    except HermesError:
        return False
    resolved = result.stdout_text.split("\0")[:-1]
    return result.ok and len(resolved) == len(absolute) and all(is_below(each, workspace.root) for each in resolved)


async def command_stays(command: str, folder: str, context: Context) -> bool:
    """Return whether shell text that runs in ``folder``, or in the shell's folder, stays in the workspace."""
    commands = parse_plain(command)
    if commands is None or not all(_is_bounded(words, context) for words in commands):
        return False
    start = await context.workspace.path(folder or ".")
    if any(words[0] == "cd" for words in commands[:-1]):
        return False  # the words that follow are relative to another folder
    found = [path for words in commands for word in words[1:] for path in _find_paths(word)]
    if None in found:
        return False
    return await paths_stay([start, *(posixpath.join(start, each) for each in found if each is not None)], context)


def _is_bounded(words: Sequence[str], context: Context) -> bool:
    """Whether a program reads, or a rule allows it and it is not known to act elsewhere."""
    name = words[0]
    if name in _READERS:
        return True
    if name in _OUTWARD or (name == "git" and not _OUTWARD_GIT.isdisjoint(words[1:])):
        return False
    return any(each.matches(words) for each in context.approvals.commands.allow)


def _find_paths(word: str) -> list[str | None]:
    """Return the paths that an argument may name; None if it names something that is not a path of the workspace."""
    if "://" in word or word.startswith("~") or "=~" in word or ":~" in word:
        return [None]
    if not word.startswith("-"):
        return [word, *(part for part in word.split("=")[1:])]
    found: list[str | None] = [part for part in word.split("=")[1:] if part]
    if "/" in word:
        found.append(word[word.index("/") :])
    if any(part.endswith("..") for part in word.split("/")):
        found.append(None)
    return found
