"""The folder of a run, which is its only state.

======================  ==================================================================================
``run.json``            settings, digests and version; written once
``tasks.jsonl``         the frozen tasks, one a line
``keys``                the keys of the trials, one a line
``files/TASK/``         copies of the tasks' folders
``scripts/DIGEST``      copies of scripted replies
``epochs/N.json``       each command that ran trials: its process and settings; ``N.todo`` has the keys to do
``control/N``           ``drain``, ``end`` or ``cap``: how the shards of epoch N stop
``shards/ID/``          of each shard: ``owner.json``, ``heartbeat``, its log, its conversations, its output
``claims/K/KEY.N``      the claim of attempt N of a trial
``results/K/KEY.N``     the result of that attempt, complete from the moment that it exists
``ledger/N``            the grants of the caps
======================  ==================================================================================

Claims, results, epochs and grants are made by a hard link of a complete file, which exactly one of several processes
can make, also on network file systems. None is ever changed or removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import signal
import time
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import ValidationError

from hermes_exec.config.check import validate_table
from hermes_exec.config.paths import make_private_folder, to_printable, write_private
from hermes_exec.errno_hints import errno_remedy
from hermes_exec.errors import ConfigError, HermesError, UsageError
from hermes_exec.pool.owner import Liveness, Owner
from hermes_exec_agent.batch.canonical_json import digest_of, refuse_constant
from hermes_exec_agent.batch.file_digests import digest_folder
from hermes_exec_agent.batch.settings import RunSettings
from hermes_exec_agent.batch.trials import Trial, list_trials

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_exec_agent.batch.tasks import Task

Control = Literal["drain", "end", "cap"]
CONTROLS: tuple[Control, ...] = ("drain", "end", "cap")
_FORMAT = 1
_KEYS = frozenset({"version", "created", "source", "tasks", "files", "settings", "digest"})
"""Of ``run.json``, besides ``format``."""
_FREE = 64 << 20
"""Free bytes of the run's file system below which no attempt begins; less on a small file system."""
_FREE_SHARE = 0.05
BEGUN = "begun"
"""The file of a shard that has begun, or may have."""
PREPAID = "prepaid"
"""The file of a shard that has a ledger of its own, with all that it was granted."""
LOST = "lost"
"""The file of a shard whose machine has ended, as its engine has proven."""
UNBEGUN = "unbegun"
"""The key of a result that says that the attempt never began, so that it does not count as a try."""
HEARTBEAT_S = 5.0
HANGS_S = 60.0
"""Seconds without a heartbeat after which a shard of this machine is killed."""
UNATTENDED_S = 120.0
"""Seconds after which a shard without a connection to its coordinator takes it for dead."""
FENCE_S = 30.0
"""Seconds without a heartbeat after which a shard ends itself, before others take it for dead."""
_SKEW_S = 30.0
"""Seconds in addition to a lease until the processes of a silent shard count as ended."""


class RunChanged(UsageError):
    """The frozen tasks, the settings or the version differ from those of the run."""


class DiskFull(HermesError):
    """The run's file system has too little space for another attempt."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One command that runs trials of a run."""

    number: int
    todo: dict[str, int]
    """The trials to do, by key, each with the number of its attempts before."""
    settings: RunSettings
    begun: float


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        """``path`` exists; see `create` and `open`.

        Raises:
            RunChanged: its ``run.json`` is damaged, or of another version.
        """
        self.path = path
        self.record: dict[str, Any] = _read_json(path / "run.json")
        if (kind := self.record.get("format")) != _FORMAT:
            raise RunChanged(f"{to_printable(path)}: its format is {kind!r}, and this version reads {_FORMAT}")
        if missing := _KEYS - self.record.keys():
            raise RunChanged(f"run.json: it is damaged: it lacks {min(missing)!r}", remedy="begin another run")

    @classmethod
    def create(
        cls,
        path: Path,
        source: str,
        tasks: Sequence[Task],
        settings: RunSettings,
        *,
        base: Path | None = None,
        scripts: dict[str, bytes] | None = None,
        repos: Path | None = None,
    ) -> RunFolder:
        """Freeze tasks and settings in a new folder.

        Args:
            path: of the folder; it must not exist, or be empty.
            source: the tasks' file or entry point.
            tasks: without faults.
            settings: of the run.
            base: the folder that the tasks' ``files`` start at.
            scripts: contents of scripted replies, by digest.
            repos: the folder of the clones that rows of SWE-bench need.

        Raises:
            UsageError: the folder holds something, or is inside of one that is copied into it; or a clone lacks a
                commit.
            HermesError: it cannot be written.
        """
        folder = path.resolve()
        for task in tasks:
            if task.files is not None and base is not None and folder.is_relative_to((base / task.files).resolve()):
                raise UsageError(
                    f"{to_printable(path)}: it is inside of 'files' of the task {task.id}, which is copied into it",
                    remedy="--into with a folder elsewhere",
                )
        try:
            make_private_folder(path)
            if any(path.iterdir()):
                raise UsageError(
                    f"{to_printable(path)}: it exists already and is not empty",
                    remedy=f"hermes-exec batch resume {path}, or another folder",
                )
            for name in ("epochs", "control", "shards", "claims", "results", "ledger", "files", "scripts", "patches"):
                (path / name).mkdir(mode=0o700)
            for digest, content in (scripts or {}).items():
                write_private(path / "scripts" / digest, content)
            for task in tasks:
                if task.files is not None and base is not None:
                    shutil.copytree(base / task.files, path / "files" / task.id, symlinks=True)
                if task.swebench is not None and repos is not None:
                    from hermes_exec_agent.batch.formats.swebench import export_commit

                    export_commit(repos, task.swebench, path / "files" / task.id)
            lines = [json.dumps(task.model_dump(mode="json"), ensure_ascii=False) for task in tasks]
            content = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
            write_private(path / "tasks.jsonl", content)
            digests = {task.id: task.digest for task in tasks}
            keys = "".join(f"{trial.key}\n" for trial in list_trials(tasks, settings, digests))
            write_private(path / "keys", keys.encode())
            record: dict[str, Any] = {
                "format": _FORMAT,
                "version": find_version(),
                "created": time.time(),
                "source": source,
                "tasks": digests,
                "tasks_file": hashlib.sha256(content).hexdigest(),
                "keys": digest_of(keys),
                "files": {
                    task.id: digest_folder(path / "files" / task.id)
                    for task in tasks
                    if task.files is not None or task.swebench is not None
                },
                "settings": settings.model_dump(mode="json"),
            }
            record["digest"] = digest_of(record)
            write_private(path / "run.json", json.dumps(record, indent=1).encode())
        except OSError as error:
            raise _write_error(path, error) from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of a run, and check that nothing of it was changed.

        Raises:
            UsageError: it is not the folder of a run.
            RunChanged: its tasks, its settings or the version of this program changed; the message has the difference.
        """
        if not (path / "run.json").is_file():
            raise UsageError(
                f"{to_printable(path)}: it is not the folder of a run", remedy="the folder that run printed"
            )
        run = cls(path)
        run.check()
        return run

    def check(self) -> None:
        """Check that tasks, settings and version are those of the run.

        Raises:
            RunChanged: one line for each difference.
        """
        record = dict(self.record)
        if record.pop("digest") != digest_of(record):
            raise RunChanged("run.json: the settings were changed", remedy="undo the changes, or begin another run")
        lines: list[str] = []
        if record["version"] != find_version():
            lines.append(f"version: the run was begun by {record['version']}, and this is {find_version()}")
        frozen: dict[str, str] = record["tasks"]
        found = self._digests
        lines += [f"tasks.jsonl: the task {id} was removed" for id in frozen if id not in found]
        lines += [f"tasks.jsonl: the task {id} was added" for id in found if id not in frozen]
        lines += [f"tasks.jsonl: the task {id} was changed" for id in found if frozen.get(id, found[id]) != found[id]]
        if lines:
            raise RunChanged("\n".join(lines), remedy="undo the changes, or begin another run")

    def check_files(self) -> None:
        """Check that the copied folders of the tasks are those of the run; reads all of them.

        Raises:
            RunChanged: one line for each difference.
        """
        frozen: dict[str, str] = self.record["files"]
        try:
            changed = [id for id, digest in frozen.items() if digest_folder(self.path / "files" / id) != digest]
        except OSError as error:
            raise HermesError(f"{to_printable(error.filename or self.path)}: {error.strerror}") from error
        if changed:
            lines = "\n".join(f"files/{id}: it was changed" for id in changed)
            raise RunChanged(lines, remedy="undo the changes, or begin another run")

    @cached_property
    def tasks(self) -> list[Task]:
        """The frozen tasks."""
        path = self.path / "tasks.jsonl"
        tasks: list[Task] = []
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    tasks.append(_parse_task(line, number))
        except OSError as error:
            raise HermesError(f"{to_printable(path)}: {error.strerror}") from error
        except (ValueError, TypeError, RecursionError, ConfigError) as error:
            raise RunChanged(f"tasks.jsonl: it was changed: {error}", remedy="another run") from None
        return tasks

    @cached_property
    def keys(self) -> list[str]:
        """The keys of all trials, in their order; those of the file need no tasks to be read."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            keys = (self.path / "keys").read_text("ascii")
            if digest_of(keys) == self.record.get("keys"):
                return keys.split()
        return [trial.key for trial in self.trials]

    @cached_property
    def settings(self) -> RunSettings:
        """The frozen settings."""
        return validate_table(RunSettings, self.record["settings"], "run.json")

    @cached_property
    def trials(self) -> list[Trial]:
        """All trials, in a fixed order."""
        return list_trials(self.tasks, self.settings, self._digests)

    @cached_property
    def _digests(self) -> dict[str, str]:
        """The digests of the tasks by id; the frozen ones if not a byte of their file has changed."""
        with contextlib.suppress(OSError), (self.path / "tasks.jsonl").open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == self.record.get("tasks_file"):
                return dict(self.record["tasks"])
        return {task.id: task.digest for task in self.tasks}

    @cached_property
    def _by_key(self) -> dict[str, Trial]:
        return {trial.key: trial for trial in self.trials}

    @cached_property
    def _key_set(self) -> frozenset[str]:
        return frozenset(self.keys)

    def patch_path(self, key: str, attempt: int) -> Path:
        """Return the path of the patch that an attempt at a row of SWE-bench left."""
        return self.path / "patches" / f"{key}.{attempt}.diff"

    def has_trial(self, key: str) -> bool:
        """Whether a key is that of a trial of this run."""
        return key in self._key_set

    def find_trial(self, key: str) -> Trial:
        """Return a trial by its key."""
        return self._by_key[key]

    def begin_epoch(self, settings: RunSettings) -> Epoch:
        """Record that this process runs trials; `plan_epoch` follows.

        Raises:
            UsageError: another process runs trials of this run.
        """
        while True:
            last = self.last_epoch()
            if last and (holder := self.find_holder(last)):
                raise UsageError(
                    f"{to_printable(self.path)}: {holder} runs this batch", remedy="wait for it, or cancel"
                )
            epoch = Epoch(last + 1, {}, settings, time.time())
            content = {
                "owner": Owner.current().values,
                "begun": epoch.begun,
                "settings": settings.model_dump(mode="json"),
            }
            if link_exclusive(self.path / "epochs" / f"{epoch.number}.json", content):
                self.beat(self.path / "epochs" / f"{epoch.number}.heartbeat")
                return epoch

    def plan_epoch(self, epoch: Epoch, todo: dict[str, int]) -> Epoch:
        """Record the trials that an epoch has to do."""
        write_private(self.path / "epochs" / f"{epoch.number}.todo", json.dumps(todo).encode())
        return Epoch(epoch.number, todo, epoch.settings, epoch.begun)

    def last_epoch(self) -> int:
        """Return the number of the latest epoch; 0 if there is none."""
        return max((int(path.stem) for path in (self.path / "epochs").glob("*.json")), default=0)

    def read_epoch(self, number: int) -> Epoch:
        """Return an epoch.

        Raises:
            UsageError: there is none of that number.
        """
        if not (self.path / "epochs" / f"{number}.todo").exists():
            raise UsageError(f"the run has no epoch {number}", remedy=f"--epoch {self.last_epoch()}")
        found = _read_json(self.path / "epochs" / f"{number}.json")
        todo = _read_json(self.path / "epochs" / f"{number}.todo")
        return Epoch(number, todo, validate_table(RunSettings, found["settings"], "epoch"), found["begun"])

    def find_holder(self, number: int) -> str:
        """Return a description of the process of an epoch if it may still run; else an empty text."""
        if exists_now(self.path / "epochs" / f"{number}.ended"):
            return ""
        owner = Owner.from_values(_read_json(self.path / "epochs" / f"{number}.json")["owner"])
        life = owner.liveness
        silent = self.silence(self.path / "epochs" / f"{number}.heartbeat")
        if life is Liveness.DEAD or (life is Liveness.ELSEWHERE and silent > self.settings.lease_s + _SKEW_S):
            return ""
        return f"process {owner.pid} on {to_printable(owner.host)}"

    def end_epoch(self, number: int) -> None:
        """Record the end of an epoch."""
        with contextlib.suppress(OSError):
            (self.path / "epochs" / f"{number}.ended").touch(mode=0o600)

    def seconds_used(self) -> float:
        """Return the seconds that all epochs have been running."""
        used = 0.0
        for path in (self.path / "epochs").glob("*.heartbeat"):
            with contextlib.suppress(OSError):
                begun = _read_json(path.with_suffix(".json"))["begun"]
                used += max(path.stat().st_mtime - float(begun), 0.0)
        return used

    def beat(self, path: Path) -> bool:
        """Renew a heartbeat, by the clock of the file system, which all machines share; return False if that failed."""
        try:
            path.touch(mode=0o600)
        except OSError:
            return False
        return True

    def silence(self, path: Path) -> float:
        """Return the seconds since a heartbeat, by the clock of the file system."""
        probe = self.path / "control" / f".clock-{os.getpid()}"
        try:
            probe.touch(mode=0o600)
            # A network file system may remember an older time of a file until it is opened.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return max(probe.stat().st_mtime - os.fstat(handle).st_mtime, 0.0)
            finally:
                os.close(handle)
        except OSError:
            return 0.0

    def is_unattended(self, epoch: int) -> bool:
        """Whether the coordinator of an epoch has been silent for long, so that it may be dead."""
        return self.silence(self.path / "epochs" / f"{epoch}.heartbeat") > UNATTENDED_S

    def control(self, epoch: int, word: Control) -> None:
        """Let the shards of an epoch stop; a later word replaces an earlier one."""
        write_private(self.path / "control" / str(epoch), word.encode())

    def read_control(self, epoch: int) -> Control | None:
        """Return how the shards of an epoch stop; None while they go on."""
        path = self.path / "control" / str(epoch)
        try:
            if not exists_now(path):
                return None
            word = path.read_text()
        except OSError:
            return None
        return next((each for each in CONTROLS if each == word), None)

    def claim(self, key: str, attempt: int, content: dict[str, Any]) -> bool:
        """Claim an attempt; return whether this call made the claim.

        Raises:
            DiskFull: there is too little space for another attempt.
            HermesError: it cannot be written.
        """
        self.check_space()
        return self._link("claims", key, attempt, content)

    def write_result(self, key: str, attempt: int, content: dict[str, Any]) -> bool:
        """Write the result of an attempt; return False if it has one already.

        Raises:
            HermesError: it cannot be written.
        """
        return self._link("results", key, attempt, content)

    def _link(self, kind: str, key: str, attempt: int, content: dict[str, Any]) -> bool:
        path = self.path / kind / key[:2] / f"{key}.{attempt}"
        try:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(mode=0o700)
            return link_exclusive(path, content)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{to_printable(path)}: {error.strerror}", remedy=errno_remedy(error.errno)) from error
            raise _write_error(path, error) from error

    def check_space(self) -> None:
        """Check that the file system has space for another attempt.

        Raises:
            DiskFull: it has not.
        """
        found = os.statvfs(self.path)
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        if free < min(_FREE, total * _FREE_SHARE):
            raise DiskFull(f"{to_printable(self.path)}: {free >> 10} KiB are free, too little for another attempt",
                           remedy=errno_remedy(errno.ENOSPC))  # fmt: skip

    def is_claimed(self, key: str, attempt: int) -> bool:
        """Whether an attempt is claimed."""
        return (self.path / "claims" / key[:2] / f"{key}.{attempt}").exists()

    def read_result(self, key: str, attempt: int) -> dict[str, Any] | None:
        """Return the result of an attempt; None if it has none yet."""
        path = self.path / "results" / key[:2] / f"{key}.{attempt}"
        if exists_now(path.parent) and exists_now(path):
            return _read_json(path)
        return None

    def read_claim(self, key: str, attempt: int) -> dict[str, Any]:
        """Return the claim of an attempt."""
        return _read_json(self.path / "claims" / key[:2] / f"{key}.{attempt}")

    def scan(self, kind: Literal["claims", "results"]) -> Iterator[tuple[str, int]]:
        """Return the keys and the attempts that have a claim, or a result."""
        for folder in os.scandir(self.path / kind):
            for entry in os.scandir(folder.path):
                key, _, number = entry.name.partition(".")
                if key and number.isdigit():
                    yield key, int(number)

    def shard(self, id: str) -> Path:
        """Return the folder of a shard."""
        return self.path / "shards" / id

    def is_shard_over(self, id: str) -> bool | None:
        """Whether a shard's process has ended; None if that is not known, as it ran on another machine."""
        folder = self.shard(id)
        if exists_now(folder / "ended") or (folder / LOST).exists():
            return True
        try:
            owner = Owner.from_values(_read_json(folder / "owner.json"))
        except FileNotFoundError:
            return None
        match owner.liveness:
            case Liveness.LIVING:
                return False
            case Liveness.DEAD:
                return True
            case _:
                return None

    def kill_hung_shard(self, id: str) -> None:
        """Kill the process of a shard of this machine whose heartbeat is old, such as a stopped one."""
        if self.silence(self.shard(id) / "heartbeat") < HANGS_S:
            return
        owner = Owner.from_values(_read_json(self.shard(id) / "owner.json"))
        if owner.liveness is Liveness.LIVING:
            with contextlib.suppress(OSError):
                os.kill(owner.pid, signal.SIGKILL)

    def is_lease_over(self, id: str, lease_s: float) -> bool:
        """Whether the leases of a silent shard's targets have ended."""
        return self.silence(self.shard(id) / "heartbeat") > lease_s + _SKEW_S


def exists_now(path: Path) -> bool:
    """Whether a file exists that another machine may just have made.

    A client of NFS remembers that a name is missing for up to a minute, or until the folder is opened.
    """
    if path.exists():
        return True
    try:
        os.close(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return False
    return path.exists()


def link_exclusive(path: Path, content: dict[str, Any]) -> bool:
    """Create ``path`` with a JSON object, whole or not at all; return False if it exists.

    The reply to a ``link`` may be lost on a network file system although it was made: then ``path`` is our own file,
    whose number of links, as the client remembers it, need not tell.

    Raises:
        OSError: it cannot be written.
    """
    own = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            data = json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode()
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(own, path)
        except OSError as error:
            if exists_now(path) and own.samefile(path):
                return True
            if error.errno == errno.EEXIST:
                return False
            raise
        return True
    finally:
        own.unlink(missing_ok=True)


def find_version() -> str:
    """Return the version of this program."""
    try:
        return version("hermes-exec")
    except PackageNotFoundError:
        return "unknown"


def _parse_task(line: bytes, number: int) -> Task:
    """Return the task of a line, which is parsed at once if it has no faults and no surrogates."""
    from hermes_exec_agent.batch.tasks import Task  # their models take long to build, and many commands need none

    try:
        return Task.model_validate_json(line)
    except ValidationError:
        return validate_table(Task, json.loads(line.decode("utf-8", "surrogatepass")), f"tasks.jsonl:{number}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes(), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RunChanged(f"{to_printable(path)}: it is damaged: {error}", remedy="begin another run") from None
    if not isinstance(found, dict):
        raise RunChanged(f"{to_printable(path)}: it is not a JSON object", remedy="begin another run")
    return cast("dict[str, Any]", found)


def _write_error(path: Path, error: OSError) -> HermesError:
    return HermesError(f"{to_printable(path)}: {error.strerror}", remedy=errno_remedy(error.errno))
