"""Rows of SWE-bench: their reading, and the freezing of a repository's commit.

A row names a repository, a commit and a patch of tests, and the person has a clone of the repository. A trial gets the
files of the commit as a repository with one commit of its own: a later one may have the solution.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError, HermesError, UsageError
from hermes_exec_agent.batch.formats.log_parsers import PARSERS, LogParser, choose_command, choose_parser

if TYPE_CHECKING:
    from collections.abc import Mapping


SOLUTION = "git apply .git/solution.patch"
_KEYS = frozenset({"instance_id", "repo", "base_commit", "problem_statement", "test_patch"})
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_REPO = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?")
_FILE = re.compile(r"^\+\+\+ b/(.+?)\t?$|^--- a/(.+?)\t?$", re.MULTILINE)
_TESTS_S = 1800.0


class SweBenchSpec(BaseModel, frozen=True, extra="forbid", strict=True):
    """What a trial of a row needs, as it is frozen in the folder of a run."""

    repo: str
    base_commit: str
    test_patch: Annotated[str, Field(min_length=1)]
    patch: str = ""
    """The solution; only the agent ``oracle`` gets it."""
    fail_to_pass: tuple[str, ...] = Field(strict=False)
    pass_to_pass: tuple[str, ...] = Field(default=(), strict=False)
    command: str
    parser: LogParser = "pytest"
    """The program whose output ``command`` prints."""

    @property
    def test_files(self) -> list[str]:
        """The files that the patch of tests changes."""
        names = (found[1] or found[2] for found in _FILE.finditer(self.test_patch))
        return sorted({name for name in names if name and name != "/dev/null"})


def is_row(entry: Mapping[str, object]) -> bool:
    """Whether a mapping is a row of SWE-bench."""
    return entry.keys() >= _KEYS and "id" not in entry


def to_task(entry: Mapping[str, object], where: str, repos: Path | None) -> dict[str, Any]:
    """Return the fields of a row's task; keys of the dataset that no trial needs become metadata.

    Raises:
        ConfigError: a key has a wrong value, or there is no clone of the repository.
    """
    texts = {name: _read_text(entry, name, where) for name in _KEYS}
    if not _COMMIT.fullmatch(texts["base_commit"]):
        raise ConfigError(f"{where}: 'base_commit' should be the hexadecimal id of a commit")
    find_clone(repos, texts["repo"], where)
    tests = {name: _read_tests(entry, name, where) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    parser = _read_parser(entry, [*tests["FAIL_TO_PASS"], *tests["PASS_TO_PASS"]], where)
    spec = {
        "repo": texts["repo"],
        "base_commit": texts["base_commit"],
        "test_patch": texts["test_patch"],
        "patch": str(entry.get("patch") or ""),
        "fail_to_pass": tests["FAIL_TO_PASS"],
        "pass_to_pass": tests["PASS_TO_PASS"],
        "command": str(entry.get("test_cmd") or choose_command(parser, texts["repo"])),
        "parser": parser,
    }
    used = {*_KEYS, "patch", "FAIL_TO_PASS", "PASS_TO_PASS", "test_cmd", "log_parser"}
    return {
        "id": texts["instance_id"],
        "instruction": texts["problem_statement"],
        "check": spec["command"],
        "check_timeout_s": _TESTS_S,
        "solution": SOLUTION if spec["patch"] else None,
        "metadata": {key: value for key, value in entry.items() if key not in used},
        "swebench": spec,
    }


def _read_text(entry: Mapping[str, object], name: str, where: str) -> str:
    value = entry[name]
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: '{name}' should be a text")
    return value


def _read_tests(entry: Mapping[str, object], name: str, where: str) -> tuple[str, ...]:
    """Return the names of tests, which the dataset has as JSON in a text."""
    value = entry.get(name, [])
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):  # pyright: ignore[reportUnknownVariableType]  it is JSON
        raise ConfigError(f"{where}: '{name}' should be a list of names of tests, such as tests/test_a.py::test_b")
    if name == "FAIL_TO_PASS" and not found:
        raise ConfigError(f"{where}: '{name}' is empty")
    return tuple(map(str, found))  # pyright: ignore[reportUnknownArgumentType]  checked


def _read_parser(entry: Mapping[str, object], names: list[str], where: str) -> LogParser:
    """Return the program that runs the tests: ``log_parser``, or the one whose names they have."""
    word = entry.get("log_parser")
    if word is None:
        if (found := choose_parser(names)) is None:
            raise ConfigError(
                f"{where}: 'FAIL_TO_PASS' and 'PASS_TO_PASS' have test names of no known test program, such as "
                f"{to_printable(names[0])!r}; name it by 'log_parser' ({', '.join(PARSERS)}) with a 'test_cmd'"
            )
        return found
    parser: LogParser | None = next((each for each in PARSERS if each == str(word)), None)
    if parser is None:
        raise ConfigError(f"{where}: 'log_parser' {to_printable(str(word))!r} should be {', '.join(PARSERS)}")
    return parser


def find_clone(repos: Path | None, repo: str, where: str) -> Path:
    """Return the clone of a repository: ``OWNER/NAME``, ``OWNER__NAME`` or ``NAME`` in the folder of clones.

    Raises:
        ConfigError: there is none.
    """
    if repos is None:
        raise ConfigError(f"{where}: rows of SWE-bench need clones of their repositories: --repos FOLDER")
    if not _REPO.fullmatch(repo) or ".." in repo:
        raise ConfigError(f"{where}: 'repo' {to_printable(repo)!r} is not a name of a repository")
    for name in (repo, repo.replace("/", "__"), repo.rpartition("/")[2]):
        if (repos / name).is_dir():
            return repos / name
    raise ConfigError(f"{where}: {to_printable(str(repos))} has no clone of {repo}")


def export_commit(repos: Path, spec: SweBenchSpec, folder: Path) -> None:
    """Write the files of a row's commit into a new folder.

    Raises:
        UsageError: the clone has no such commit.
        HermesError: the files cannot be written.
    """
    clone = find_clone(repos, spec.repo, spec.repo)
    folder.mkdir(mode=0o700)
    git = ["git", "-C", str(clone), "-c", "core.fsmonitor=false", "archive", "--format=tar", spec.base_commit]
    try:
        with subprocess.Popen(git, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as archive:
            unpack = ["tar", "-x", "--no-same-owner", "-C", str(folder)]
            done = subprocess.run(unpack, stdin=archive.stdout, capture_output=True, check=False)
            errors = archive.communicate()[1].decode("utf-8", "replace").strip()
    except OSError as error:
        raise HermesError(f"{error.filename}: {error.strerror}", remedy="install git and tar") from error
    if archive.returncode:
        raise UsageError(f"{clone}: {to_printable(errors) or 'git archive failed'}", remedy="git fetch in that clone")
    if done.returncode:
        raise HermesError(f"{folder}: {to_printable(done.stderr.decode('utf-8', 'replace').strip())}")
