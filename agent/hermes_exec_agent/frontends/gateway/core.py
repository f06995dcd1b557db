"""The gateway: receives from all platforms, works on messages in their order, and sends the answers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import math
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.file_lock import hold_alone
from hermes_exec_agent.frontends.gateway.adapter import HistoryReader, PlatformDown
from hermes_exec_agent.frontends.gateway.attachments import FileIntake
from hermes_exec_agent.frontends.gateway.commands import Commands, classify
from hermes_exec_agent.frontends.gateway.delivery import Delivery, connect_reports
from hermes_exec_agent.frontends.gateway.records import Measures
from hermes_exec_agent.frontends.gateway.turns import describe_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from hermes_exec_agent.frontends.gateway.adapter import Adapter, Incoming
    from hermes_exec_agent.frontends.gateway.listener import Listener
    from hermes_exec_agent.frontends.gateway.records import Message, PersonRecord
    from hermes_exec_agent.frontends.gateway.store import Store
    from hermes_exec_agent.frontends.gateway.turns import Turns
    from hermes_exec_agent.runtime.events import EventLog

_log = logging.getLogger("hermes_exec.gateway")
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 300.0
_WATCH_S = 1.0
_THREADS = 128
"""More than all accounts use for sending; each is created when it is needed."""
_PRUNE_S = 3600.0
FLUSH_S = 5.0
"""How long the last answers are sent when the gateway ends."""
ACCEPT_S = 5.0
"""How long messages that are being read are waited for then."""
CLOSE_S = 5.0


class Gateway:
    """Connects platforms with conversations until cancelled."""

    def __init__(
        self,
        store: Store,
        adapters: Sequence[Adapter],
        turns: Turns,
        log: EventLog,
        *,
        check_target: Callable[[str], object] = lambda _: None,
        grace_s: float = 30.0,
        listener: Listener | None = None,
    ) -> None:
        """Create a gateway.

        Args:
            store: the durable state.
            adapters: the accounts to serve; their platforms and accounts differ.
            turns: runs the turns.
            log: the record of conversations.
            check_target: raises a `ConfigError` for a word that is not a target.
            grace_s: the time for turns to end when the gateway ends.
            listener: takes the requests of platforms; None if none sends any.
        """
        self._store = store
        self._adapters = adapters
        self._turns = turns
        self._commands = Commands(store, log, turns, check_target)
        self._deliveries = [Delivery(store, adapter) for adapter in adapters]
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._dirty: set[str] = set()
        """The persons with messages that their worker may not have seen."""
        self._is_ending = False
        """Whether no further message is worked on."""
        self._grace_s = grace_s
        self._listener = listener
        self._intake = FileIntake(store, turns.largest_file)
        self._accepting: set[asyncio.Task[None]] = set()
        self._traits = {(each.platform, each.account): each.traits for each in adapters}
        self.received: Counter[tuple[str, str]] = Counter()
        """Messages that were accepted since the start, by platform and account."""
        turns.notify = self._wake_deliveries
        turns.find_traits = lambda address: self._traits.get((address.platform, address.account))
        for each in adapters:
            if isinstance(each, HistoryReader):
                each.set_positions(partial(self._find_positions, each))
            connect_reports(store, each, self._wake_deliveries)

    async def _find_positions(self, adapter: Adapter) -> Mapping[str, str]:
        return await asyncio.to_thread(self._store.find_positions, adapter.platform, adapter.account)

    async def run(self, ready: Callable[[Adapter], None] = lambda _: None) -> None:
        """Serve until cancelled; ``ready`` is called for each account that is connected.

        Raises:
            HermesError: the store cannot be used.
        """
        # Names of hosts are looked up in these threads, too, which takes long while a network is down.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "hermes-exec-gateway"))
        repeatable = {key for key, traits in self._traits.items() if traits.repeat != "never"}
        await asyncio.to_thread(self._store.recover, repeatable)
        await asyncio.to_thread(self._turns.board.reset)
        async with contextlib.AsyncExitStack() as stack:
            if self._listener is not None:
                await stack.enter_async_context(self._listener.serve(self._adapters, self.measure))
            await self._serve(ready)

    async def _serve(self, ready: Callable[[Adapter], None]) -> None:
        for message in await asyncio.to_thread(self._store.list_immediate):
            await self._handle(message)
        for name in await asyncio.to_thread(self._store.list_waiting):
            self._start_worker(name)
        sending = [asyncio.create_task(each.run()) for each in self._deliveries]
        watching = asyncio.create_task(self._watch())
        receiving = [asyncio.create_task(self._receive(each, ready)) for each in self._adapters]
        try:
            done, _ = await asyncio.wait([*receiving, *sending], return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:  # messages are recorded until the end, because not every platform delivers them again
            self._is_ending = True
            await self._end_turns()
            await self._flush()
            await _cancel([*receiving, watching])
            if self._accepting:
                await asyncio.wait(self._accepting, timeout=ACCEPT_S)
                await _cancel([*self._accepting])  # the platform delivers these again
            await _cancel(sending)
            await self._turns.close()
            await asyncio.gather(*(self._close(each) for each in self._adapters))

    async def _close(self, adapter: Adapter) -> None:
        """Close an adapter; that it fails, or takes long, hinders no other."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await adapter.close()
        except Exception as error:  # noqa: BLE001  an adapter of another distribution may raise anything
            _log.warning("%s was not closed: %s", adapter.platform, type(error).__name__)
        with contextlib.suppress(HermesError):
            await asyncio.to_thread(self._store.set_platform, adapter.platform, adapter.account, "stopped")

    async def _watch(self) -> None:
        """Stop turns of removed persons, take the web view's answers, and work on what was left; forget what is old."""
        pruned = -math.inf
        while True:
            try:
                if time.monotonic() - pruned >= _PRUNE_S:
                    pruned = time.monotonic()
                    await asyncio.to_thread(self._store.prune)
                await self._turns.stop_withdrawn()
                await self._turns.take_answers()
                for name in await asyncio.to_thread(self._store.list_waiting):
                    if name not in self._workers:  # the store was not usable, or its message was not passed on
                        self._start_worker(name)
            except HermesError as error:
                _log.error("the store cannot be used: %s", error)
            await asyncio.sleep(_WATCH_S)

    async def _receive(self, adapter: Adapter, ready: Callable[[Adapter], None]) -> None:
        """Receive from a platform, again and again; one that is down hinders no other."""
        wait_s = _FIRST_WAIT_S

        def report_connection() -> None:
            nonlocal wait_s
            wait_s = _FIRST_WAIT_S
            self._store.set_platform(adapter.platform, adapter.account, "connected")
            ready(adapter)

        async def accept(incoming: Incoming) -> None:
            # It is completed also if the platform's request ends meanwhile, so that a repeated one finds it recorded.
            task = asyncio.create_task(self.accept(adapter, incoming))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)
            await asyncio.shield(task)

        while True:
            reason = "the connection ended"
            try:
                await asyncio.to_thread(self._store.set_platform, adapter.platform, adapter.account, "connecting")
                await adapter.receive(accept, report_connection)
            except (PlatformDown, HermesError) as error:
                reason = str(error)
            except Exception as error:  # noqa: BLE001  an adapter of another distribution may raise anything
                _log.exception("%s failed", adapter.platform)
                reason = type(error).__name__
            _log.warning("%s is down, and is tried again in %g s: %s", adapter.platform, wait_s, reason)
            with contextlib.suppress(HermesError):
                await asyncio.to_thread(self._store.set_platform, adapter.platform, adapter.account, "down", reason)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def accept(self, adapter: Adapter, incoming: Incoming) -> None:
        """Record a message with its files, which are on the disk when this returns, and start to work on it.

        Raises:
            PlatformDown: a file of it could not be read.
            HermesError: it could not be recorded; the adapter must not acknowledge it.
        """
        files = await self._intake.read(adapter, incoming)
        message = await asyncio.to_thread(
            self._store.accept, adapter.platform, adapter.account, incoming, classify, self._turns.is_awaiting, files
        )
        if message is not None:
            self.received[adapter.platform, adapter.account] += 1
        self._wake_deliveries(adapter.platform, adapter.account)  # for a code, or a notice that the message waits
        if message is not None and message.kind == "immediate":
            await self._handle(message)
        elif message is not None and not await self._answer_question(message):
            self._start_worker(message.person)

    async def _answer_question(self, message: Message) -> bool:
        """Give a message to the running turn if that waits for one; return whether it did."""
        if message.files or message.kind != "request" or not self._turns.is_awaiting(message.person):
            return False
        record = await asyncio.to_thread(self._store.person, message.person)
        if record is None or not self._turns.person(record).reply(message.text):
            return False
        await asyncio.to_thread(self._store.finish, message, [])
        return True

    def _start_worker(self, name: str) -> None:
        self._dirty.add(name)
        if name not in self._workers and not self._is_ending:
            self._workers[name] = asyncio.create_task(self._work(name))

    async def _work(self, name: str) -> None:
        """Work on the messages of a person, one after another."""
        try:
            while name in self._dirty:
                self._dirty.discard(name)
                while not self._is_ending:
                    if (message := await asyncio.to_thread(self._store.next_message, name)) is None:
                        break
                    await self._handle(message)
        except HermesError as error:  # the store is not usable; the next message, or the next start, tries again
            _log.error("messages of %s wait: %s", name, error)
        finally:
            del self._workers[name]

    async def _handle(self, message: Message) -> None:
        """Work on a message, and record the answer."""
        record = await asyncio.to_thread(self._store.person, message.person)
        if record is None:  # removed meanwhile
            await asyncio.to_thread(self._store.finish, message, [])
        elif message.kind == "request":
            text = await self._answer(message, record)
            await asyncio.to_thread(self._store.finish, message, [text] if text else [])
            self._wake_deliveries(message.address.platform, message.address.account)
            return
        elif (decided := self._commands.decide(message, record)) is not None:
            await asyncio.to_thread(self._store.finish, message, [decided])
        else:
            await self._commands.handle(message, record)
        self._wake_deliveries()

    async def _answer(self, message: Message, record: PersonRecord) -> str:
        try:
            return await self._turns.answer(message, record)
        except HermesError as error:
            return describe_failure(str(error))
        except Exception as error:  # noqa: BLE001  one request must not end the work on others
            _log.exception("a turn failed")
            return describe_failure(f"an internal error ({type(error).__name__}), which the gateway's log describes")

    def measure(self) -> Measures:
        """Return what the metrics show."""
        sent = {
            (adapter.platform, adapter.account): delivery.sent
            for adapter, delivery in zip(self._adapters, self._deliveries, strict=True)
        }
        own = [each for each in self._store.platforms() if (each["platform"], each["account"]) in sent]
        return Measures(own, self._store.count_states(), dict(self.received), sent)

    def _wake_deliveries(self, platform: str = "", account: str = "") -> None:
        """Look for new pieces of one account, or of all."""
        for adapter, delivery in zip(self._adapters, self._deliveries, strict=True):
            if not platform or (adapter.platform, adapter.account) == (platform, account):
                delivery.wake()

    async def _end_turns(self) -> None:
        """Let turns end in their time, and then cut them off; their messages are worked on at the next start."""
        if tasks := list(self._workers.values()):
            await asyncio.wait(tasks, timeout=self._grace_s)
            await _cancel(tasks)

    async def _flush(self) -> None:
        """Send for a short time what is left."""
        with contextlib.suppress(TimeoutError, HermesError):
            async with asyncio.timeout(FLUSH_S):
                while await self._has_pieces():  # noqa: ASYNC110  pieces are settled in threads, which set no event
                    await asyncio.sleep(0.05)

    async def _has_pieces(self) -> bool:
        """Whether a piece waits, or is being sent."""
        if any(each.is_busy for each in self._deliveries):
            return True
        waiting = [
            await asyncio.to_thread(self._store.pending_chats, each.platform, each.account) for each in self._adapters
        ]
        return any(waiting)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def hold_gateway(path: Path) -> Generator[None]:
    """Hold the only gateway of a store.

    Raises:
        UsageError: another one runs.
        HermesError: the lock cannot be created.
    """
    busy = UsageError("a gateway runs already", remedy="hermes-exec gateway status")
    with hold_alone(path.with_suffix(".lock"), busy):
        yield


def is_gateway_running(path: Path) -> bool:
    """Whether a gateway of this store runs."""
    try:
        handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
