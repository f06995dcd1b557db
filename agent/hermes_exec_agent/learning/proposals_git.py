"""The private git repository of the user's configuration: each accepted change is one commit.

Its folder is in the state folder, and its work tree is the folder of the configuration, so that a repository of the
user's own there is not touched. Commits are built without an index or a checkout, and no hook or setting of the user's
git takes effect. ``git --git-dir=FOLDER log`` and ``revert`` work as usual.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BRANCH = "refs/heads/main"
_NONE = "0" * 40
_LIMIT_S = 60.0
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsync=all", "commit.gpgSign=false", "core.attributesFile=/dev/null",
    "gc.auto=0", "core.autocrlf=false",
)  # fmt: skip


class ConfigRepository:
    """Commits of the texts of configuration files."""

    def __init__(self, folder: Path, tree: Path) -> None:
        """``folder`` is the repository, which `prepare` creates; ``tree`` is the folder of the configuration."""
        self.folder = folder
        self._tree = tree

    def prepare(self) -> None:
        """Create the repository if it is missing, or was created in part.

        Raises:
            UsageError: there is no git.
            HermesError: git failed.
        """
        self._git("init", "--quiet", "--bare", "--template=", str(self.folder), inside=False)
        self._git("symbolic-ref", "HEAD", _BRANCH)
        self._git("config", "core.bare", "false")
        self._git("config", "core.worktree", str(self._tree))
        self.folder.chmod(0o700)

    def find_head(self) -> str:
        """Return the latest commit; empty if there is none."""
        return self._git("for-each-ref", "--format=%(objectname)", _BRANCH).strip()

    def read_texts(self, commit: str) -> dict[str, str]:
        """Return the texts of a commit, by path."""
        names = self._git("ls-tree", "-r", "-z", "--name-only", commit).split("\0")
        return {name: self._git("cat-file", "blob", f"{commit}:{name}") for name in names if name}

    def create_commit(self, texts: Mapping[str, str], message: str, parent: str) -> str:
        """Create a commit, which nothing refers to yet, and return its id; ``parent`` may be empty."""
        tree = self._create_tree(texts)
        parents = ("-p", parent) if parent else ()
        return self._git("commit-tree", tree, *parents, "-F", "-", stdin=message).strip()

    def _create_tree(self, texts: Mapping[str, str]) -> str:
        folders: dict[str, list[str]] = {"": []}
        for path, text in texts.items():
            folder, _, name = path.rpartition("/")
            blob = self._git("hash-object", "-w", "--stdin", stdin=text).strip()
            folders.setdefault(folder, []).append(f"100644 blob {blob}\t{name}\0")
        for folder, lines in folders.items():
            if folder:
                tree = self._git("mktree", "-z", stdin="".join(lines)).strip()
                folders[""].append(f"040000 tree {tree}\t{folder}\0")
        return self._git("mktree", "-z", stdin="".join(folders[""])).strip()

    def move_head(self, commit: str, parent: str) -> None:
        """Make a commit the latest one, after ``parent``; nothing is done if it is already.

        Raises:
            HermesError: another one is the latest.
        """
        if self.find_head() != commit:
            self._git("update-ref", _BRANCH, commit, parent or _NONE)
        self._git("read-tree", "HEAD")

    def _git(self, *argv: str, stdin: str = "", inside: bool = True) -> str:
        where = ["--git-dir", str(self.folder)] if inside else []
        settings = [word for each in _SETTINGS for word in ("-c", each)]
        try:
            done = subprocess.run(
                ["git", *settings, *where, *argv], input=stdin.encode(), capture_output=True, check=False,
                env=_make_environment(), cwd="/", timeout=_LIMIT_S,
            )  # fmt: skip
        except FileNotFoundError:
            raise UsageError("there is no git program here, which keeps each change", remedy="install git") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HermesError(f"git did not run: {error}", remedy="try again") from error
        if done.returncode:
            complaint = flatten(done.stderr.decode(errors="replace") or f"exit code {done.returncode}")
            raise HermesError(f"git {argv[0]}: {complaint}", remedy=f"check {self.folder}")
        return done.stdout.decode()


def _make_environment() -> dict[str, str]:
    names = {name: f"hermes-exec{at}" for name, at in (("NAME", ""), ("EMAIL", "@localhost"))}
    who = {f"GIT_{role}_{name}": text for role in ("AUTHOR", "COMMITTER") for name, text in names.items()}
    alone = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C", "HOME": "/nonexistent"}
    return {"PATH": os.environ.get("PATH", os.defpath), **who, **alone}
