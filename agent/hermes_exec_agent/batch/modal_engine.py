"""Shards as sandboxes of Modal: each gets a part of the run, and what it finds is copied back while it runs.

The image of the sandboxes has this package. Nothing is started again by itself: the trials of a sandbox that is lost
are settled once it is proven to have ended, by Modal's word or by its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hermes_exec import extras
from hermes_exec._async import cancel_and_wait, create_or_rollback, shield_to_completion
from hermes_exec.backend import get_resource_id
from hermes_exec.config.load import load_settings, resolve
from hermes_exec.config.paths import to_printable, write_private
from hermes_exec.errors import ConfigError, HermesError, PlaceUnavailable, UsageError
from hermes_exec.pool.options import Pool
from hermes_exec.pool.pooled_terminal import plan_terminal
from hermes_exec.terminal.opening import create_terminal, open_transport, plan_open
from hermes_exec_agent.batch.gpu_hours import count_target_gpus
from hermes_exec_agent.batch.run_folder import BEGUN, HEARTBEAT_S, LOST, PREPAID, DiskFull
from hermes_exec_agent.batch.sandbox_results import LARGEST, unpack
from hermes_exec_agent.batch.settlement import create_end
from hermes_exec_agent.batch.shard_log import ShardLog
from hermes_exec_agent.batch.sub_run import SubRun, claim_part, count_claimable, find_unprotected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from hermes_exec import Terminal
    from hermes_exec.transport import Transport
    from hermes_exec_agent.batch.engine import ShardOrder
    from hermes_exec_agent.batch.run_folder import Control, Epoch, RunFolder

_log = logging.getLogger("hermes_exec.batch")
_OPTIONS = ("config", "python", "target")
_THERE = "/tmp/hermes-batch"  # noqa: S108  the sandbox has no other user
_CONFIG = "/tmp/hermes-batch.toml"  # noqa: S108  likewise
_TRIALS = 8
"""Trials of a sandbox for each that runs at once; a lost one loses no more."""
_POLL_S = 2.0
_SHARE = 4
"""A copy is made at most once in so many times what the last one took."""
_FULL_S = 10.0
"""Seconds until a copy is tried again after the disk was full."""
_OPEN_S = 1800.0
_STEP_S = 600.0
_GRACE_S = 60.0
_DRAIN_S = 180.0
"""Seconds before the end of a sandbox's life at which it begins no more trials."""
_END_S = 60.0
_PROBE = """cd "$1" && touch "epochs/$2.heartbeat" || exit 1
[ -z "$4" ] || printf %s "$4" > "control/$2"
find results -type f -name '[!.]*' | wc -l
beaten=$(stat -c %Y "shards/$3/heartbeat" 2>/dev/null) && [ $(($(date +%s) - beaten)) -lt 30 ] && echo fresh
exit 0"""
"""Both times of the heartbeat's age are of the sandbox's own clock."""
PACK = """
import os, sqlite3, sys, tarfile
os.chdir(sys.argv[1])
own = f"shards/{sys.argv[2]}"
def names(*tops):
    for top in tops:
        for folder, _, files in os.walk(top):
            yield from (os.path.join(folder, each) for each in files if not each.startswith("."))
with tarfile.open(".out.tar", "w") as out:
    for name in (f"{own}/log.jsonl", f"{own}/output.txt"):
        if os.path.exists(name):
            out.add(name)
    have = set(sys.stdin.read().split())
    new = [name for name in sorted(names("results")) if os.path.basename(name) not in have]
    for name in new:
        out.add(name)
    if os.path.exists(f"{own}/conversations.sqlite"):
        os.makedirs(f".pack/{own}", exist_ok=True)
        copy = f".pack/{own}/conversations.sqlite"
        source, target = sqlite3.connect(f"{own}/conversations.sqlite"), sqlite3.connect(copy)
        source.backup(target)
        target.close()
        out.add(copy, f"{own}/conversations.sqlite")
    fresh = {os.path.basename(name) for name in new}
    for name in names("patches", "artifacts"):
        if name.split("/")[1].removesuffix(".diff") in fresh:
            out.add(name)
"""
"""Packs the results that are not copied yet, each with its files; standard input has the names of the others."""


class ModalEngine:
    """Shards are sandboxes, one each, which end when this process ends."""

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Check the options; see `Engine.check`."""
        for name in options:
            if name not in _OPTIONS:
                raise UsageError(
                    f"--engine-option {to_printable(name)}: modal has no such option", remedy=", ".join(_OPTIONS)
                )
        target = options.get("target", "modal")
        try:
            kind = resolve(target, load_settings()).profile.type
        except ConfigError as error:
            raise UsageError(f"--engine-option target: {error.what}", remedy=error.remedy) from error
        if kind != "modal":
            raise UsageError(f"--engine-option target={to_printable(target)}: it is a target of {kind}",
                             remedy="modal, modal:IMAGE, or a profile of that type")  # fmt: skip
        if "config" in options and not Path(options["config"]).is_file():
            raise UsageError(f"--engine-option config={to_printable(options['config'])}: there is no such file")
        extras.require("modal", "--engine modal")

    @classmethod
    def count_gpus(cls, options: Mapping[str, str]) -> float | None:
        """Return the GPUs of a shard; see `gpu_hours.count_shard_gpus`."""
        return count_target_gpus(options.get("target", "modal"))

    def __init__(self, run: RunFolder, options: Mapping[str, str]) -> None:
        self._run = run
        self._options = options
        self._log: ShardLog | None = None
        self._unprotected: frozenset[str] = frozenset()
        """The targets whose agents can write the results of their sandbox."""
        self._shards: dict[str, asyncio.Task[None]] = {}

    async def end_earlier(self) -> None:
        """End the sandboxes that earlier commands left, and remove their copies; see `EndsEarlier`."""
        for path in self._run.path.glob(f"shards/*/{PREPAID}"):
            await asyncio.to_thread(shutil.rmtree, self._run.path / "engine" / path.parent.name, ignore_errors=True)
        records = list(self._run.path.glob("shards/*/sandbox"))
        ended = await asyncio.gather(*(_end_sandbox(record) for record in records))
        if any(ended):
            _log.info("%d sandboxes of earlier commands have ended", sum(ended))

    async def open(self) -> None:
        """Do nothing; see `Engine.open`."""

    async def submit(self, orders: Sequence[ShardOrder]) -> None:
        """Claim attempts for sandboxes, and start them; see `Engine.submit`."""
        epoch = await asyncio.to_thread(self._run.read_epoch, orders[0].epoch)
        if self._log is None:
            config = self._options.get("config")
            self._unprotected = await asyncio.to_thread(find_unprotected, self._run, epoch, config)
            if self._unprotected:
                _log.warning(
                    "agents in %s work in the sandboxes themselves, where they can write the results of their"
                    " sandbox, which are marked as unprotected: give untrusted work targets of its own",
                    ", ".join(sorted(self._unprotected)),
                )
            folder = self._run.shard(f"m{epoch.number}")
            folder.mkdir(mode=0o700)
            self._log = ShardLog(folder)
        left = await asyncio.to_thread(count_claimable, self._run, epoch)
        failures: list[Exception] = []
        for place, order in enumerate(orders):
            share = min(-(-left // (len(orders) - place)), order.slots * _TRIALS)
            try:
                left -= await self._start(epoch, order, share)
            except (HermesError, OSError) as error:
                failures.append(error)
                # What it has claimed did not begin, and is settled at once.
                with contextlib.suppress(OSError):
                    (self._run.shard(order.id) / LOST).touch(mode=0o600)
        if len(failures) == len(orders):
            raise HermesError(f"no sandbox can be started: {failures[0]}") from failures[0]
        for failure in failures:
            _log.warning("a sandbox was not started: %s", failure)

    async def _start(self, epoch: Epoch, order: ShardOrder, share: int) -> int:
        """Claim attempts for a shard, and begin it; return how many were claimed."""
        folder = self._run.shard(order.id)
        folder.mkdir(mode=0o700)
        self._run.beat(folder / "heartbeat")
        write_private(folder / PREPAID, b"")
        attempts = await asyncio.to_thread(claim_part, self._run, epoch, order.id, share)
        assert self._log is not None  # noqa: S101  it was opened by submit
        for key, number in attempts.items():
            self._log.write("claimed", key=key, attempt=number)
        unprotected = any(self._run.find_trial(key).target in self._unprotected for key in attempts)
        part = SubRun(self._run, epoch, order, attempts, unprotected=unprotected)
        caps = await asyncio.to_thread(part.draw_caps) if attempts else None
        if caps is None:
            await asyncio.to_thread(self._end_unbegun, part)
            return len(attempts)
        staging = self._run.path / "engine" / order.id
        await asyncio.to_thread(part.write, staging / "run", caps)
        shard = _Sandbox(part, staging, self._options)
        self._shards[order.id] = asyncio.create_task(shard.run())
        return len(attempts)

    def _end_unbegun(self, part: SubRun) -> None:
        """Record attempts that no sandbox begins, as nothing is left of a cap."""
        for key, number in part.attempts.items():
            record = create_end(
                self._run, key, number, "capped", None, "a cap of the run is reached", epoch=part.epoch.number, shard=""
            )
            if self._run.write_result(key, number, record) and self._log is not None:
                self._log.write("ended_attempt", **record)
        (self._run.shard(part.order.id) / "ended").touch(mode=0o600)

    async def poll(self) -> Sequence[str]:
        """Return the shards whose sandboxes have not ended; see `Engine.poll`."""
        return [id for id, task in self._shards.items() if not task.done()]

    async def cancel(self, ids: Sequence[str]) -> None:
        """End sandboxes; see `Engine.cancel`."""
        await cancel_and_wait([self._shards[id] for id in ids if id in self._shards])

    async def close(self) -> None:
        """Wait for the sandboxes to end what they run, then end those that do not; see `Engine.close`."""
        running = [task for task in self._shards.values() if not task.done()]
        if running:
            await asyncio.wait(running, timeout=_GRACE_S)
        await self.cancel(list(self._shards))
        if self._log is not None:
            self._log.close()


class _Sandbox:
    """One sandbox, from its creation to the proof of its end."""

    def __init__(self, part: SubRun, staging: Path, options: Mapping[str, str]) -> None:
        self._part = part
        self._run = part.run
        self._id = part.order.id
        self._own = part.run.shard(part.order.id)
        self._staging = staging
        self._options = options
        self._python = options.get("python", "python3")
        self._heard = time.monotonic()
        self._found = self._copied = 0
        """Results that are in the sandbox, as it said last, and those of them that were copied."""
        self._copy_after = 0.0
        self._drain_at = 0.0

    async def run(self) -> None:
        """Run the shard; its folder then says how it ended, as far as that is proven."""
        is_gone = False
        try:
            is_gone = await self._use_sandbox()
        except (HermesError, OSError) as error:
            uncopied = max(self._found - self._copied, 0)
            gone = f" ({uncopied} results were not copied yet: their trials are tried again)" if uncopied else ""
            _log.warning("%s: its sandbox was lost: %s%s", self._id, error, gone)
            await asyncio.to_thread(self._say, str(error))
        finally:
            await shield_to_completion(self._settle(is_gone=is_gone), limit_s=_END_S)

    async def _settle(self, *, is_gone: bool) -> None:
        """Record that the sandbox has ended, if that is so, or that no attempt has begun in it."""
        record = self._own / "sandbox"
        if is_gone:
            await asyncio.to_thread(_record_end, record)
        else:
            await _end_sandbox(record)
        await asyncio.to_thread(shutil.rmtree, self._staging, ignore_errors=True)
        if not (self._own / BEGUN).exists() and not (self._own / "ended").exists():
            (self._own / LOST).touch(mode=0o600)

    async def _use_sandbox(self) -> bool:
        """Open the sandbox and work in it; return True once it is closed."""
        target = self._options.get("target", "modal")
        async with (
            self._beating() as stop_beating,
            _open(target, self._run.settings.lease_s) as (terminal, resource, life_s),
        ):
            self._drain_at = time.monotonic() + max(life_s - _DRAIN_S, life_s / 2)
            record = {"target": target, "sandbox": resource, "others": self._part.has_other_targets}
            write_private(self._own / "sandbox", json.dumps(record).encode())
            await self._upload(terminal)
            await stop_beating()
            await self._work(terminal)
        return True

    @contextlib.asynccontextmanager
    async def _beating(self) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
        """Renew the heartbeat while the sandbox starts, as its image may take minutes; the shard's own replaces it."""
        beating = asyncio.create_task(self._beat())
        try:
            yield lambda: cancel_and_wait([beating])
        finally:
            await cancel_and_wait([beating])

    async def _beat(self) -> None:
        give_up = time.monotonic() + _OPEN_S
        while time.monotonic() < give_up:
            await asyncio.to_thread(self._run.beat, self._own / "heartbeat")
            await asyncio.sleep(HEARTBEAT_S)

    async def _upload(self, terminal: Terminal) -> None:
        await self._check_version(terminal)
        await terminal.upload(self._staging / "run", _THERE)
        if (config := self._options.get("config")) is not None:
            await terminal.upload(config, _CONFIG)

    async def _check_version(self, terminal: Terminal) -> None:
        script = "import importlib.metadata as each; print(each.version('hermes-exec'))"
        done = await terminal.run([self._python, "-c", script], cwd="/", timeout=_STEP_S)
        found, ours = to_printable(done.stdout_text.strip()[:40]) if done.ok else "", version("hermes-exec")
        if found != ours:
            why = (
                f"hermes_exec {found}"
                if done.ok
                else f"no hermes_exec ({to_printable(_get_last_line(done.stderr_text))})"
            )
            raise PlaceUnavailable(
                f"{self._python} of the sandboxes has {why}, and this is {ours}",
                remedy="another image in --engine-option target, or --engine-option python",
            )

    async def _work(self, terminal: Terminal) -> None:
        """Run the shard, and copy back what it finds."""
        env = {"HERMES_EXEC_CONFIG": _CONFIG} if "config" in self._options else {}
        shard = [self._python, "-m", "hermes_exec", *self._part.order.to_argv(_THERE), "--detached"]
        argv = ["/bin/sh", "-c", 'output=$1; shift; exec "$@" </dev/null >"$output" 2>&1', "sh",
                f"{_THERE}/shards/{self._id}/output.txt", *shard]  # fmt: skip
        await asyncio.to_thread(self._part.begin)
        running = asyncio.ensure_future(terminal.run(argv, cwd="/", env=env))
        try:
            while not running.done():
                await asyncio.wait([running], timeout=_POLL_S)
                await self._exchange(terminal)
            done = await running
        finally:
            await cancel_and_wait([running])
        await self._copy(terminal)
        if done.ok:
            (self._own / "ended").touch(mode=0o600)
        else:
            raise PlaceUnavailable(f"its shard ended: {done.reason}; see output.txt")

    async def _exchange(self, terminal: Terminal) -> None:
        """Pass on how the shard stops, and copy new results."""
        epoch = self._part.epoch.number
        word: Control | None = await asyncio.to_thread(self._run.read_control, epoch)
        if word is None and time.monotonic() > self._drain_at:
            word = "drain"
        argv = ["/bin/sh", "-c", _PROBE, "sh", _THERE, str(epoch), self._id, word or ""]
        done = await terminal.run(argv, cwd="/", timeout=_STEP_S)
        count, _, state = done.stdout_text.partition("\n")
        if not done.ok or not count.strip().isdigit():
            raise PlaceUnavailable(f"the folder of the shard cannot be read: {done.reason}")
        if "fresh" in state:
            await asyncio.to_thread(self._run.beat, self._own / "heartbeat")
        self._found = int(count)
        if self._found > self._copied and time.monotonic() >= self._copy_after and await self._has_space():
            began, found = time.monotonic(), self._found
            await self._copy(terminal)
            self._copied = found
            took = time.monotonic() - began
            self._copy_after = time.monotonic() + took * _SHARE

    async def _has_space(self) -> bool:
        """Whether the disk of the run has space for a copy; else the sandbox begins no more trials."""
        try:
            await asyncio.to_thread(self._run.check_space)
        except DiskFull as error:
            self._drain_at = 0.0
            self._copy_after = time.monotonic() + _FULL_S
            _log.warning("%s: %s", self._id, error)
            return False
        return True

    async def _copy(self, terminal: Terminal) -> None:
        """Copy what the shard found so far into the folder of the run."""
        have = await asyncio.to_thread(self._part.list_taken)
        argv = [self._python, "-c", PACK, _THERE, self._id]
        done = await terminal.run(argv, cwd="/", timeout=_STEP_S, stdin="\n".join(have).encode())
        if not done.ok:
            raise PlaceUnavailable(f"its results cannot be packed: {done.stderr_text.strip()[-200:] or done.reason}")
        archive, folder = self._staging / "out.tar", self._staging / "out"
        await asyncio.to_thread(archive.unlink, missing_ok=True)
        await terminal.download(f"{_THERE}/.out.tar", archive, progress=_check_size)
        await asyncio.to_thread(unpack, archive, folder, self._part.is_wanted)
        # Results have to be whole when this is cancelled meanwhile.
        await shield_to_completion(asyncio.to_thread(self._part.take, folder), limit_s=None)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError), (self._own / "output.txt").open("a", encoding="utf-8") as output:
            output.write(f"{to_printable(text)}\n")


@contextlib.asynccontextmanager
async def _open(target: str, lease_s: float) -> AsyncGenerator[tuple[Terminal, str, float]]:
    """Create a sandbox; return its terminal, its id and how many seconds it lives."""
    plan = await asyncio.to_thread(plan_open, target, lease_s=lease_s)
    plan.job_lease_s = lease_s

    async def close(opened: Transport) -> None:
        await opened.close()
        await plan.backend.close()

    carrier = await create_or_rollback(open_transport(plan), close)
    async with create_terminal(plan, carrier, plan.create_audit(wanted=None)) as terminal:
        yield terminal, get_resource_id(plan.backend), float(getattr(plan.backend.profile, "timeout", 3600))


def _check_size(done: int, *_: int) -> None:
    if done > LARGEST:
        raise HermesError(f"the files of a sandbox have more than {LARGEST >> 20} MiB")


def _get_last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][:200]


async def _end_sandbox(record: Path) -> bool:
    """End the sandbox of a record; return whether it is proven to have ended."""
    try:
        values = cast("dict[str, str]", json.loads(await asyncio.to_thread(record.read_bytes)))
        target, sandbox = str(values["target"]), str(values["sandbox"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    try:
        async with asyncio.timeout(_END_S):
            plan = await plan_terminal(Pool(target, lease_s=_END_S), sandbox)
            await plan.backend.open()
            await plan.backend.close()
    except PlaceUnavailable as error:
        if not error.guest_is_gone:
            return False
    except (HermesError, OSError):
        return False
    await asyncio.to_thread(_record_end, record)
    return True


def _record_end(record: Path) -> None:
    """Record that a sandbox has ended, and with it its shard, unless that has targets elsewhere, which have leases."""
    with contextlib.suppress(FileNotFoundError):
        has_others = json.loads(record.read_bytes()).get("others", True)
        if not has_others and not record.with_name("ended").exists():
            record.with_name(LOST).touch(mode=0o600)
        record.rename(record.with_name("sandbox-ended"))
