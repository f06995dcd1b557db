"""A shard: one process with one event loop that claims trials of its epoch and runs them.

Shards share nothing but the folder of the run. Each starts at another trial, claims each one that has no claim, and
tries those again whose target or model failed. At the end of its list it looks for trials that a dead shard lost, and
ends when other shards hold all that are left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from hermes_exec._async import cancel_and_wait, shield_to_completion, wait_done
from hermes_exec.config.paths import to_printable, write_private
from hermes_exec.config.secrets import Secret
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec.pool.owner import Owner
from hermes_exec.terminal.opening import plan_open
from hermes_exec_agent.batch.attempt import Attempt, AttemptContext, run_attempt
from hermes_exec_agent.batch.claims import find_next, may_retry
from hermes_exec_agent.batch.formats.function_grading import load_check
from hermes_exec_agent.batch.gpu_hours import choose_slice, count_target_gpus, hold_gpus, meter
from hermes_exec_agent.batch.ledger import CapReached, Ledger, ShardAccount, TrialAccount, read_caps
from hermes_exec_agent.batch.model_choice import ModelSource, is_scripted
from hermes_exec_agent.batch.places import PlaceHealth, remove_leftovers
from hermes_exec_agent.batch.run_folder import BEGUN, FENCE_S, HEARTBEAT_S, DiskFull
from hermes_exec_agent.batch.shard_log import ShardLog
from hermes_exec_agent.batch.sub_run import ASSIGNED
from hermes_exec_agent.runtime.events.log import EventLog

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from hermes_exec_agent.batch.reward_function import Function
    from hermes_exec_agent.batch.run_folder import Control, Epoch, RunFolder
    from hermes_exec_agent.batch.trials import Trial
    from hermes_exec_agent.models.catalog import Models

_log = logging.getLogger("hermes_exec.batch")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CONTROL_S = 0.5
_RETRY_S = 1.0
"""Seconds before the second attempt at a trial; doubled before each further one."""


class Shard:
    """One shard of an epoch."""

    def __init__(
        self, run: RunFolder, epoch: Epoch, id: str, position: int, slots: int, *, detached: bool = False
    ) -> None:
        """``position`` is the number of the shard among those of the epoch; ``slots`` trials run at once.

        A ``detached`` shard begins no more trials once its coordinator is silent.
        """
        self._run = run
        self._epoch = epoch
        self._id = id
        self._position = position
        self._slots = asyncio.Semaphore(slots)
        self._folder: Path = run.shard(id)
        self._models = ModelSource(run.path / "scripts", epoch.settings.agent.capture)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()
        self._settled: set[str] = set()
        """Trials of which this shard knows that nothing is left to do in this epoch."""
        self._stop: Control | None = None
        self._terminated = ""
        """Why the shard ends although the run goes on."""
        self._detached = detached
        assigned = self._folder / ASSIGNED
        self._assigned: dict[str, int] | None = json.loads(assigned.read_bytes()) if assigned.exists() else None
        """The attempts that an engine claimed for this shard, which then claims none; each is begun once."""
        self._stopping = asyncio.Event()
        self._redactor = Redactor()

    async def run(self) -> None:
        """Run trials until none is left for this shard, or the epoch is stopped.

        Raises:
            HermesError: the folder of the run cannot be used.
        """
        write_private(self._folder / "owner.json", json.dumps(Owner.current().values).encode())
        self._run.beat(self._folder / "heartbeat")
        self._beaten = time.monotonic()
        settings = self._epoch.settings
        with ShardLog(self._folder) as log:
            ledger = Ledger(self._run.path / "ledger", read_caps(settings.caps))
            self._account = ShardAccount(ledger, self._id, settings.shards, log)
            self._redactor = Redactor(await asyncio.to_thread(self._load_secrets))
            with EventLog(self._folder / "conversations.sqlite", redactor=self._redactor) as events:
                self._context = AttemptContext(
                    settings=settings,
                    files=self._run.path / "files",
                    log=log,
                    events=events,
                    starting=asyncio.Semaphore(_share(settings.caps.starting, settings.shards, self._position)),
                    health=PlaceHealth(),
                    create_models=self._create_models,
                    open_account=self._open_account,
                    hold_gpus=self._hold_gpus,
                    clean=self._redactor.redact,
                    check=self._load_check(),
                )
                watching = [asyncio.create_task(self._watch()), asyncio.create_task(self._watch_heartbeat())]
                try:
                    async with self._meter_own_gpus():
                        await self._work()
                except CapReached as error:
                    await self._cap_all(str(error))
                finally:
                    await cancel_and_wait(watching)
                    await self._end_all()
                    await self._models.close()
                    await self._account.close()
            usage = resource.getrusage(resource.RUSAGE_SELF)
            log.write("ended", cpu_s=round(usage.ru_utime + usage.ru_stime, 3), rss_kib=usage.ru_maxrss)
            await log.sync()
        (self._folder / "ended").touch(mode=0o600)

    def _load_check(self) -> Function | None:
        name = self._epoch.settings.agent.check
        return load_check(name, self._run.path / "scripts") if name else None

    def _load_secrets(self) -> list[Secret]:
        """Return the keys of the models and the secrets of the targets, which no record may have."""
        trials = [trial for trial in self._run.trials if trial.key in self._epoch.todo]
        found: list[Secret] = []
        for target in {trial.target for trial in trials}:
            with contextlib.suppress(HermesError):  # each attempt reports it
                found += plan_open(target).secrets
        passed = self._epoch.settings.pass_env
        found += [Secret(name, os.environ[name]) for name in passed if os.environ.get(name)]
        if self._epoch.settings.agent.asks_model and any(not is_scripted(trial.model) for trial in trials):
            found += self._models.load_configured().secrets
        return found

    def _create_models(self, trial: Trial, account: TrialAccount) -> Models | None:
        settings = self._epoch.settings.agent
        return self._models.create(trial.model, account, settings.max_tokens) if settings.asks_model else None

    def _hold_gpus(self, trial: Trial) -> AbstractAsyncContextManager[None]:
        hours = self._epoch.settings.caps.gpu_hours
        gpus = 0.0 if hours is None else count_target_gpus(trial.target)
        return hold_gpus(self._account, gpus, hours) if gpus and hours else contextlib.nullcontext()

    def _meter_own_gpus(self) -> AbstractAsyncContextManager[None]:
        """Count the time of the GPUs that the engine reserved for this shard."""
        settings = self._epoch.settings
        hours, gpus = settings.caps.gpu_hours, settings.shard_gpus
        if not gpus or hours is None:
            return contextlib.nullcontext()
        return meter(self._account, gpus, choose_slice(hours), lambda: self.stop("cap"))

    def _open_account(self) -> TrialAccount:
        return TrialAccount(self._epoch.settings.caps, self._account)

    async def _watch(self) -> None:
        """Renew the heartbeat, and obey the control file."""
        due = 0.0
        loop = asyncio.get_running_loop()
        while True:
            word = await asyncio.to_thread(self._run.read_control, self._epoch.number)
            if word is not None:
                self.stop(word)
            if loop.time() >= due:
                self._check_heartbeat()  # before it is renewed: this process may have been stopped
                if await asyncio.to_thread(self._run.beat, self._folder / "heartbeat"):
                    self._beaten = time.monotonic()
                with contextlib.suppress(OSError):  # other machines see events of a network file system only then
                    await self._context.log.sync()
                if self._detached and await asyncio.to_thread(self._run.is_unattended, self._epoch.number):
                    self.stop("drain")
                due = loop.time() + HEARTBEAT_S
            await asyncio.sleep(_CONTROL_S)

    async def _watch_heartbeat(self) -> None:
        """Notice also a heartbeat whose writing does not return."""
        while True:
            self._check_heartbeat()
            await asyncio.sleep(_CONTROL_S)

    def _check_heartbeat(self) -> None:
        """End everything before another process may take this shard for dead."""
        silent_s = time.monotonic() - self._beaten
        if silent_s > FENCE_S and self._stop != "end":
            self._say(f"its heartbeat is {silent_s:.0f} s old, so that others may soon run its trials: it ends")
            self.terminate("its heartbeat could not be written")

    def drain(self, grace_s: float | None) -> None:
        """Claim nothing more, and end what still runs after so many seconds, so that it ends well."""
        self.stop("drain")
        if grace_s is not None:
            asyncio.get_running_loop().call_later(grace_s, self.terminate, "its time limit is near")

    def terminate(self, why: str) -> None:
        """End everything although the run goes on, unless it was stopped meanwhile; other shards run the trials."""
        word = self._run.read_control(self._epoch.number)
        if word is None and self._stop in (None, "drain"):
            self._terminated = why
        self.stop("end")

    def stop(self, word: Control) -> None:
        """Claim nothing more; unless the word is ``drain``, end what runs, too."""
        if self._stop in (word, "end"):
            return
        self._stop = word
        self._stopping.set()
        if word != "drain":
            for task in self._tasks:
                task.cancel()

    async def _work(self) -> None:
        todo = [trial for trial in self._run.trials if trial.key in self._epoch.todo]
        start = len(todo) * self._position // max(self._epoch.settings.shards, 1) if todo else 0
        ordered = [*todo[start:], *todo[:start]]
        while self._stop is None:
            begun = 0
            for trial in ordered:
                if trial.key in self._settled or self._stop is not None:
                    continue
                try:
                    begun += await self._begin(trial)
                except OSError as error:
                    self._say(f"no more trials are begun: {error}")
                    self.stop("drain")
            if self._tasks:
                await self._wait_for_one()
            elif not begun:
                break
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _wait_for_one(self) -> None:
        await asyncio.wait(list(self._tasks), return_when=asyncio.FIRST_COMPLETED)

    async def _begin(self, trial: Trial) -> bool:
        """Claim the next attempt at a trial and start it; return False if there is nothing to claim."""
        if trial.key in self._running:
            return False
        if self._assigned is None:
            number = await asyncio.to_thread(self._find_next, trial.key)
        else:
            number = self._assigned.pop(trial.key, None)
        if number is None:
            return False
        await self._acquire_slot()
        word = await asyncio.to_thread(self._run.read_control, self._epoch.number)
        if word is not None:
            self.stop(word)
        if self._stop is not None:
            self._slots.release()
            return False
        claimed = False
        try:
            content = {"shard": self._id, "epoch": self._epoch.number}
            claimed = await asyncio.to_thread(self._claim, trial.key, number, content)
        except HermesError as error:
            self._say(f"no more trials are begun: {error}")
            if isinstance(error, DiskFull):
                with contextlib.suppress(OSError):
                    self._context.log.write("full", reason=str(error))
            self.stop("drain")
        finally:
            if not claimed:
                self._slots.release()
        if claimed:
            with contextlib.suppress(OSError):  # the claim itself is the record
                self._context.log.write("claimed", key=trial.key, attempt=number)
            task = asyncio.create_task(self._attempt(Attempt(trial, number)))
            task.add_done_callback(lambda _: self._running.discard(trial.key))
            self._tasks.add(task)
            self._running.add(trial.key)
            task.add_done_callback(self._tasks.discard)
        return claimed

    def _claim(self, key: str, number: int, content: dict[str, Any]) -> bool:
        if self._assigned is None:
            return self._run.claim(key, number, content)
        self._run.check_space()
        return True

    async def _cap_all(self, why: str) -> None:
        """Record the next trial as stopped by a cap, which allows nothing to begin: the coordinator then stops."""
        for trial in self._run.trials:
            if trial.key in self._epoch.todo:
                number = await asyncio.to_thread(self._find_next, trial.key)
                if number is not None and await asyncio.to_thread(
                    self._run.claim, trial.key, number, {"shard": self._id, "epoch": self._epoch.number}
                ):
                    attempt = Attempt(trial, number)
                    attempt.fail(None, why, "capped")
                    await self._record(attempt)
                    return

    async def _acquire_slot(self) -> None:
        """Wait for a free slot, or until the shard stops."""
        acquiring = asyncio.ensure_future(self._slots.acquire())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([acquiring, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not acquiring.done():
                acquiring.cancel()
                await wait_done(acquiring)
                if acquiring.cancelled():
                    self._slots.release()  # balances the release of the caller

    def _find_next(self, key: str) -> int | None:
        """Return the number of the attempt to claim; None if the trial is over, or held by another shard."""
        number, is_over = find_next(self._run, self._epoch, key)
        if is_over:
            self._settled.add(key)
        return number

    async def _attempt(self, attempt: Attempt) -> None:
        key, context = attempt.trial.key, self._context
        tries = attempt.number - self._epoch.todo[key]
        try:
            if tries > 1:
                await asyncio.sleep(min(_RETRY_S * 2 ** (tries - 2), 30.0))
            await run_attempt(attempt, context)
        except asyncio.CancelledError:
            if not attempt.is_graded:  # else only its target was being closed
                self._record_stop(attempt)
        except (HermesError, OSError) as error:
            self._say(f"{key}.{attempt.number}: {error}")
            self._settled.add(key)  # its end is not proven: the next process settles it
            return
        except Exception as error:  # noqa: BLE001  one trial may not end the others
            self._say("".join(traceback.format_exception(error)))
            attempt.fail("infrastructure", f"internal error: {type(error).__name__}: {error}")
        finally:
            self._slots.release()
        await shield_to_completion(self._record(attempt), limit_s=None)

    def _record_stop(self, attempt: Attempt) -> None:
        """Record that an attempt was stopped: by a cap, by a person, or by an end of the shard alone."""
        if self._terminated:
            attempt.fail("infrastructure", f"its shard ended: {self._terminated}")
        else:
            attempt.fail(None, "the run was stopped", "capped" if self._stop == "cap" else "interrupted")

    async def _record(self, attempt: Attempt) -> None:
        key = attempt.trial.key
        tries = attempt.number - self._epoch.todo[key]
        again = may_retry(attempt.state, attempt.failure) and tries < self._epoch.settings.attempts
        final = not again and attempt.state not in ("interrupted", "capped")
        record = attempt.to_record() | {"shard": self._id, "epoch": self._epoch.number, "final": final}
        if policy := self._epoch.settings.policy:
            record["policy"] = policy
        if self._redactor:
            record = json.loads(self._redactor.redact(json.dumps(record)))
        try:
            accepted = await asyncio.to_thread(self._run.write_result, key, attempt.number, record)
            if accepted:
                self._context.log.write("ended_attempt", **record)
        except (HermesError, OSError) as error:
            self._say(f"{key}.{attempt.number}: {error}")
            self.stop("drain")
        if not again:
            self._settled.add(key)
        if attempt.state == "capped" and self._stop is None:
            self.stop("drain")  # those that still run ask for more themselves, or end without

    async def _end_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{self._id}: {text}\n")
        sys.stderr.flush()


def _share(total: int, shards: int, position: int) -> int:
    """Return the part of ``total`` that the shard at ``position`` has, at least 1."""
    return max(total // shards + (position < total % shards), 1)


async def run_shard(
    run: RunFolder,
    epoch: int,
    id: str,
    position: int,
    slots: int,
    *,
    detached: bool = False,
    grace_s: float | None = None,
) -> None:
    """Run a shard.

    SIGUSR1, as before a time limit, lets its trials end, and ends those that still run after ``grace_s``; SIGTERM ends
    all that it runs. So does the end of its standard input, as its engine has gone then; a ``detached`` shard goes on
    without one.
    """
    if not _ID.fullmatch(id):
        raise UsageError(f"--shard {to_printable(id)}: it should be letters, digits, '.', '_' and '-', up to 64")
    found = await asyncio.to_thread(run.read_epoch, epoch)
    await asyncio.to_thread(_begin_shard, run.shard(id))
    shard = Shard(run, found, id, position, slots, detached=detached)
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():  # else another program's, such as Ray's
        loop.add_signal_handler(signal.SIGUSR1, shard.drain, grace_s)
        loop.add_signal_handler(signal.SIGTERM, shard.terminate, "SIGTERM")
    if not detached:
        with contextlib.suppress(PermissionError):  # a file or /dev/null has no end that can be awaited
            loop.add_reader(0, _watch_input, shard)
    try:
        await asyncio.to_thread(remove_leftovers, run)
        await shard.run()
    finally:
        loop.remove_reader(0)


def _begin_shard(folder: Path) -> None:
    """Begin a shard once: its log has one writer, and an engine that runs it again would repeat it.

    Raises:
        UsageError: it was begun before.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        (folder / BEGUN).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise UsageError(f"the shard {folder.name} was begun before", remedy="another --shard") from None


def _watch_input(shard: Shard) -> None:
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        shard.stop("end")
