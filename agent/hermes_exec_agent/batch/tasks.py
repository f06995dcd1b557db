"""Tasks: their schema, and their reading from files and entry points with every fault at once.

Files come from other people, so the reader bounds lines, accepts UTF-8 alone, and refuses paths that lead out of the
folder of the file. A fault names the file, the line and the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import BaseModel, Field, field_validator, model_validator

from hermes_exec.config.check import nearest_name, validate_table
from hermes_exec.config.paths import to_printable
from hermes_exec.config.plugins import find_plugins, load_entry_point
from hermes_exec.errors import ConfigError, HermesError, UsageError
from hermes_exec_agent.batch.canonical_json import digest_of, refuse_constant
from hermes_exec_agent.batch.formats.harbor_spec import HarborSpec
from hermes_exec_agent.batch.formats.swebench import SweBenchSpec, is_row, to_task

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "hermes_exec.tasks"
"""Entry points of this group name a function without parameters that returns tasks, as mappings."""
MAX_LINE = 1 << 20
"""Bytes of the longest line of a file of tasks."""
MAX_FILES = 256 << 20
"""Bytes that the folder ``files`` of one task may have in all."""
_SHOWN = 50
"""Faults that are shown."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class WeightedCheck(BaseModel, frozen=True, extra="forbid", strict=True):
    """One of several checks of a task."""

    command: Annotated[str, Field(min_length=1)]
    """A shell command that runs in the target after the agent ended; exit code 0 counts as 1, another one as 0."""
    weight: Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)] = 1.0
    """The share of the reward, in relation to the other weights."""
    timeout_s: Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)] = 60.0


class Task(BaseModel, frozen=True, extra="forbid", strict=True):
    """One task, as a line of a file of tasks has it."""

    id: str
    """Letters, digits, ``.``, ``_`` and ``-``, up to 128; unique in the file."""
    instruction: Annotated[str, Field(min_length=1)]
    """The request to the agent."""
    check: Annotated[str, Field(min_length=1)] | None = None
    """A shell command that runs in the target after the agent ended; exit code 0 is the reward 1, another one 0. A run
    whose tasks have none needs ``--check``."""
    check_timeout_s: Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)] = 60.0
    checks: dict[str, WeightedCheck] = Field(default_factory=dict[str, WeightedCheck])
    """Several checks in place of ``check``, by name; the reward is the weighted mean, and each part is recorded."""
    on: str | None = None
    """The target, unless the command line has ``--on``."""
    cwd: str | None = None
    """The folder of the target to work in; by default a new one on machines, and the container's own in containers."""
    setup: str | None = None
    """A shell command that runs before the agent; the attempt fails if it fails."""
    solution: str | None = None
    """A shell command that solves the task; the agent ``oracle`` runs it."""
    files: str | None = None
    """A folder next to the file of tasks, whose content is copied into the working folder."""
    env: dict[str, str] = Field(default_factory=dict[str, str])
    """Variables of the commands."""
    time_limit_s: Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)] | None = None
    """Of the agent, in seconds."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Replies of the model."""
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Values that reports repeat."""
    harbor: HarborSpec | None = None
    """The container and the tests of a task in Harbor's format, which a file of tasks cannot have."""
    swebench: SweBenchSpec | None = None
    """The repository and the tests of a row of SWE-bench, which a line of another form cannot have."""

    @field_validator("id")
    @classmethod
    def _check_id(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise ValueError("should be letters, digits, '.', '_' and '-', up to 128, and begin with a letter or digit")
        return value

    @field_validator("files")
    @classmethod
    def _check_files(cls, value: str | None) -> str | None:
        if value is not None:
            path = PurePosixPath(value)
            if path.is_absolute() or not value or ".." in path.parts or "\0" in value:
                raise ValueError("should be a relative path without '..'")
        return value

    @field_validator("env")
    @classmethod
    def _check_env(cls, value: dict[str, str]) -> dict[str, str]:
        if any(not name or "=" in name or "\0" in name + text for name, text in value.items()):
            raise ValueError("holds a name or a value that no environment can have")
        return value

    @model_validator(mode="after")
    def _check_checks(self) -> Self:
        if self.check is not None and self.checks:
            raise ValueError("has both 'check' and 'checks'")
        return self

    @property
    def has_check(self) -> bool:
        """Whether it has a check of its own."""
        return self.check is not None or bool(self.checks)

    @property
    def digest(self) -> str:
        """The digest of the whole task, its id included."""
        return digest_of(self.model_dump(mode="json"))


class TaskFaults(UsageError):
    """The tasks have faults, one line each; nothing was started."""


def load_tasks(source: str, passed: Collection[str] = (), repos: Path | None = None) -> tuple[list[Task], Path | None]:
    """Return the tasks of a file, a folder or an entry point, and the folder that ``files`` starts at.

    Args:
        source: the file, the folder or the name of the entry point.
        passed: the variables of the person's environment that tasks may read.
        repos: the folder with clones of the repositories that rows of SWE-bench name.

    Raises:
        TaskFaults: every fault, with file, line and field.
        UsageError: there is neither such a file or folder nor such an entry point.
    """
    path = Path(source)
    if path.is_file():
        return _Reader(source, path.parent, repos).read(_read_lines(path)), path.parent
    if path.is_dir():
        return _load_folder(path, passed)
    points = find_plugins(GROUP, is_reserved=lambda _: False)
    if source not in points:
        known = f"; the entry points of {GROUP} are {', '.join(sorted(points))}" if points else ""
        near = nearest_name(source, points)
        raise UsageError(
            f"{to_printable(source)}: there is no such file{known}", remedy=near or "a file with one task on each line"
        )
    return _Reader(source, None).read(_call_entry_point(source, load_entry_point(points[source]))), None


def _load_folder(path: Path, passed: Collection[str]) -> tuple[list[Task], Path]:
    """Return the tasks of a Harbor task, or of a folder of them."""
    from hermes_exec_agent.batch.formats.harbor import find_tasks, read_tasks

    base, folders = find_tasks(path)
    if not folders:
        raise UsageError(
            f"{to_printable(path)}: neither it nor a folder in it has a task.toml",
            remedy="a Harbor task or a folder of them, or a file with one task on each line (JSONL)",
        )
    tasks: list[Task] = []
    faults: list[str] = []
    for _, found in read_tasks(path, passed):
        if isinstance(found, Task):
            tasks.append(found)
        else:
            faults += found
    if faults:
        more = [f"{len(faults) - _SHOWN} more faults"] if len(faults) > _SHOWN else []
        raise TaskFaults("\n".join([*faults[:_SHOWN], *more]))
    return tasks, base


def _call_entry_point(name: str, function: object) -> Iterator[tuple[int, object]]:
    if not callable(function):
        raise TaskFaults(f"{name}: the entry point is not a function")
    try:
        found = function()
        for number, each in enumerate(cast("Iterable[object]", found), 1):
            yield number, each.model_dump() if isinstance(each, Task) else each
    except HermesError:
        raise
    except (Exception, SystemExit) as error:  # it is another distribution's code
        raise TaskFaults(f"{name}: the entry point failed: {type(error).__name__}: {to_printable(error)}") from error


class _LineFault(Exception):
    """A line that holds no JSON object."""


def _read_lines(path: Path) -> Iterator[tuple[int, object]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE and not line.endswith(b"\n"):
                    _skip_line(file)
                    yield number, _LineFault(f"the line is longer than {MAX_LINE} bytes")
                elif line.strip():
                    yield number, _parse_line(line)
    except OSError as error:
        raise UsageError(f"{to_printable(path)}: {error.strerror}") from error


def _skip_line(file: IO[bytes]) -> None:
    while (piece := file.readline(MAX_LINE)) and not piece.endswith(b"\n"):
        pass


def _parse_line(line: bytes) -> object:
    try:
        text = line.rstrip().decode("utf-8")  # without its end, from which columns of errors would be counted
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        return _LineFault(f"byte {error.start + 1} of the line is not valid UTF-8")
    except json.JSONDecodeError as error:
        return _LineFault(f"not JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return _LineFault(f"not JSON: {str(error) if isinstance(error, ValueError) else 'nested too deeply'}")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {to_printable(twice)!r} occurs twice")
    return table


class _Reader:
    """Collects the tasks of one source, and its faults."""

    def __init__(self, source: str, folder: Path | None, repos: Path | None = None) -> None:
        self._source = to_printable(source)
        self._folder = folder
        self._repos = repos
        self._faults: list[str] = []
        self._count = 0
        self._lines: dict[str, int] = {}

    def read(self, entries: Iterable[tuple[int, object]]) -> list[Task]:
        tasks = [task for number, entry in entries if (task := self._read_entry(number, entry)) is not None]
        if not tasks and not self._count:
            self._fault(f"{self._source}: it holds no tasks")
        if self._count:
            left = self._count - len(self._faults)
            raise TaskFaults("\n".join([*self._faults, *([f"{self._source}: {left} more faults"] if left else [])]))
        return tasks

    def _fault(self, text: str) -> None:
        self._count += 1
        if len(self._faults) < _SHOWN:
            self._faults.append(text)

    def _read_entry(self, number: int, entry: object) -> Task | None:
        where = f"{self._source}:{number}"
        if isinstance(entry, _LineFault) or not isinstance(entry, Mapping):
            self._fault(f"{where}: {entry if isinstance(entry, _LineFault) else 'it should be a JSON object'}")
            return None
        try:
            fields = cast("Mapping[str, object]", entry)
            has_own = fields.get("harbor") is None and fields.get("swebench") is None
            if is_row(fields):
                fields = to_task(fields, where, self._repos)
            task = validate_table(Task, fields, where)
            digest = task.digest
        except ConfigError as error:
            for line in error.what.splitlines():
                self._fault(line)
            return None
        except (ValueError, TypeError, RecursionError):
            self._fault(f"{where}: 'metadata' holds a value that JSON cannot have")
            return None
        if (first := self._lines.setdefault(task.id, number)) != number:
            self._fault(f"{where}: 'id' {task.id!r} is also that of line {first}")
        elif not has_own:
            self._fault(f"{where}: 'harbor' and 'swebench' are not keys of a file of tasks")
        elif task.files is not None and (problem := self._check_folder(task.files)):
            self._fault(f"{where}: 'files' {problem}")
        return task if digest else None

    def _check_folder(self, files: str) -> str:
        if self._folder is None:
            return "needs a file of tasks, whose folder it starts at"
        return check_folder(self._folder, files)


def check_folder(base: Path, files: str) -> str:
    """Return why the folder ``files`` of ``base`` cannot be a task's, or an empty text."""
    try:
        root = base.resolve(strict=True)
        folder = (root / files).resolve(strict=True)
        if not folder.is_relative_to(root):
            return "leads out of the folder of the file"
        if not folder.is_dir():
            return "is not a folder"
        size = 0
        for path in folder.rglob("*"):
            where = to_printable(path.relative_to(folder))
            if path.is_symlink():
                if path.readlink().is_absolute() or not path.resolve().is_relative_to(folder):
                    return f"has a link that leads out of it: {where}"
            elif not (path.is_file() or path.is_dir()):
                return f"has an entry that is neither a file nor a folder: {where}"
            else:
                size += path.stat().st_size if path.is_file() else 0
        return f"has more than {MAX_FILES >> 20} MiB" if size > MAX_FILES else ""
    except (OSError, RuntimeError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or 'its links form a loop'}"
