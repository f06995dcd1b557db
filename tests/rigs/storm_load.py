"""Commands and transfers whose every byte is known beforehand, and a count of what came of them.

Each command appends a line of its own to a file of the target that this machine can read, so that a command that ran
twice, or that was reported and did not run, is seen from outside.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import hermes_exec
from hermes_exec.errors import Closed, HermesError, OutcomeUnknown, PlaceUnavailable, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_exec.backend import Backend
    from hermes_exec.result import Result
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

TIMEOUT_S = 15.0
"""The time limit of every command."""
LATE_S = 5.0
"""How much later than its limit and the documented detection of a silent peer a command may return."""
HANG_S = 240.0
"""After this long a call without a time limit counts as hanging."""
_WORKERS = 4
_REOPEN_S = 0.2


@dataclass
class Report:
    """What came of all calls; each list but ``unknown`` and ``unavailable`` has to be empty."""

    completed: Counter[str] = field(default_factory=Counter[str])
    unknown: Counter[str] = field(default_factory=Counter[str])
    unavailable: Counter[str] = field(default_factory=Counter[str])
    killed: int = 0
    """Commands that ended with SIGKILL, as those do whose parent the storm kills."""
    opened: int = 0
    wrong: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    late: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])

    @property
    def defects(self) -> list[str]:
        """Every broken promise, as a line."""
        kinds = {"wrong": self.wrong, "lost": self.lost, "doubled": self.doubled, "late": self.late}
        return [f"{kind}: {line}" for kind, lines in {**kinds, "failed": self.failed}.items() for line in lines]

    def __str__(self) -> str:
        """One line of counts."""
        return (
            f"{self.completed.total()} completed ({', '.join(f'{n} {k}' for k, n in sorted(self.completed.items()))}), "
            f"{self.unknown.total()} of unknown outcome, {self.unavailable.total()} did not run, "
            f"{self.killed} killed, {self.opened} terminals; "
            f"{len(self.wrong)} wrong, {len(self.doubled)} doubled, {len(self.lost)} lost, "
            f"{len(self.late)} late, {len(self.failed)} failed"
        )


class Load:
    """Workers that call one terminal of one target at once, and open another when it is lost."""

    def __init__(
        self, name: str, backend: Callable[[], Backend], folders: tuple[Path, str], seed: int, detection_s: float
    ) -> None:
        """``folders`` is one folder, as this machine and as the target names it.

        ``detection_s`` is how long it takes, as documented, to give up a silent peer.
        """
        self.name = name
        self.report = Report()
        self.outage_s: Callable[[float, float], float] = lambda _begin, _end: 0.0
        """How long the way to the target was disturbed between two readings of ``time.monotonic``."""
        self._detection_s = detection_s
        self._backend = backend
        self._here, self._there = folders
        self._seed = seed
        self._terminal: Terminal | None = None
        self._opening = asyncio.Lock()
        self._asked = 0
        self._ran: list[str] = []
        self._never_ran: list[str] = []
        self._log = logging.getLogger("storm")
        (self._here / "ran").touch()
        (self._here / "ran").chmod(0o666)

    async def run(self, until: float) -> None:
        """Call until the clock of ``time.monotonic`` shows ``until``, then close the terminal and check the record."""
        chances = [random.Random(f"{self._seed} {self.name} {number}") for number in range(_WORKERS)]
        try:
            await asyncio.gather(*(self._work(number, chance, until) for number, chance in enumerate(chances)))
        finally:
            await self._close()

    def check_record(self) -> None:
        """Compare the target's own record with what was reported."""
        recorded = Counter((self._here / "ran").read_text().split())
        self.report.doubled += [line for line, count in recorded.items() if count > 1]
        self.report.lost += [line for line in self._ran if line not in recorded]
        self.report.wrong += [f"{line} ran, though reported as not run" for line in self._never_ran if line in recorded]

    async def _work(self, number: int, chance: random.Random, until: float) -> None:
        session: Session | None = None
        of: Terminal | None = None
        calls = [self._program, self._in_session, self._stream, self._input, self._file, self._job, self._exceed_limit]
        while time.monotonic() < until:
            terminal = await self._open(until)
            if terminal is None:
                return
            call = chance.choice(calls)
            kind = call.__name__.strip("_")
            begun = time.monotonic()
            line = ""
            try:
                async with asyncio.timeout(HANG_S):
                    if session is None or of is not terminal:
                        session, of = await terminal.session(), terminal
                    self._asked += 1
                    line = f"{self.name}-{number}-{self._asked}"
                    await call(terminal, session, line, chance)
                self.report.completed[kind] += 1
            except OutcomeUnknown:
                self.report.unknown[kind] += 1
                session = None
                await self._forget_if_lost(terminal)
            except ProtocolError as error:
                self.report.failed.append(f"{line} {kind}: {error!r}")
                await self._forget(terminal)
            except HermesError as error:
                if not isinstance(error, PlaceUnavailable | Closed):
                    self.report.failed.append(f"{line} {kind}: {error!r}")
                elif error.state == "nothing ran" and kind not in {"file", "job"}:
                    self._never_ran.append(line)
                self.report.unavailable[kind] += 1
                session = None
                await self._forget_if_lost(terminal)
            except Exception as error:  # noqa: BLE001  every other exception is a defect
                self.report.failed.append(f"{line} {kind} after {time.monotonic() - begun:.1f} s: {error!r}")
                await self._forget(terminal)
            if kind not in {"file", "job", "exceed_limit"}:
                self._expect_in_time(f"{line} {kind}", begun, TIMEOUT_S)

    async def _open(self, until: float) -> Terminal | None:
        async with self._opening:
            while self._terminal is None:
                if time.monotonic() > until:
                    return None
                try:
                    async with asyncio.timeout(HANG_S):
                        self._terminal = await hermes_exec.open(self._backend(), audit=False)
                    self.report.opened += 1
                except PlaceUnavailable as error:
                    self._log.info("%s cannot be opened: %s", self.name, error)
                    await asyncio.sleep(_REOPEN_S)
                except Exception as error:  # noqa: BLE001  every other exception is a defect
                    self.report.failed.append(f"open {self.name}: {error!r}")
                    await asyncio.sleep(_REOPEN_S)
            return self._terminal

    async def _forget_if_lost(self, terminal: Terminal) -> None:
        """Open another terminal next time, unless this one still answers."""
        if terminal is not self._terminal:
            return
        try:
            async with asyncio.timeout(HANG_S):
                await terminal.run(["true"], timeout=TIMEOUT_S)
        except HermesError:
            await self._forget(terminal)

    async def _forget(self, terminal: Terminal) -> None:
        if terminal is self._terminal:
            await self._close()

    async def _close(self) -> None:
        terminal, self._terminal = self._terminal, None
        if terminal is None:
            return
        try:
            async with asyncio.timeout(HANG_S):
                await terminal.close()
        except HermesError as error:
            self._log.info("%s closed: %s", self.name, error)
        except Exception as error:  # noqa: BLE001  every other exception is a defect
            self.report.failed.append(f"close {self.name}: {error!r}")

    def _expect_in_time(self, what: str, begun: float, limit_s: float) -> None:
        """Note a command that returns later than its limit, the detection of a silent peer and its outages explain."""
        now = time.monotonic()
        if now - begun > limit_s + LATE_S + self._detection_s + self.outage_s(begun, now):
            self.report.late.append(f"{what}: {now - begun:.1f} s, {self.outage_s(begun, now):.1f} s of outages")

    def _expect(self, line: str, seen: bytes | str, wanted: bytes | str) -> None:
        if seen != wanted:
            self.report.wrong.append(
                f"{line}: {len(seen)} bytes {seen[:60]!r}, not {len(wanted)} bytes {wanted[:60]!r}"
            )

    def _expect_success(self, line: str, result: Result) -> bool:
        """Note that a command ran; False when it was ended before its end, and its output need not be whole."""
        if result.timed_out:
            return False
        if result.signal == signal.SIGKILL:
            self.report.killed += 1
            return False
        self._ran.append(line)
        if result.exit_code != 0:
            self.report.wrong.append(f"{line}: {result.reason}")
        return True

    def _text(self, line: str, chance: random.Random) -> tuple[str, bytes]:
        """Shell text that records ``line`` and prints a known text, and that text."""
        first, count = chance.randrange(10**6, 9 * 10**6), chance.choice([1, 100, 20_000, 300_000])
        output = "\n".join(map(str, range(first, first + count))) + "\n"
        return f"echo {line} >> {self._there}/ran; seq {first} {first + count - 1}", output.encode()

    async def _program(self, terminal: Terminal, _: Session, line: str, chance: random.Random) -> None:
        text, output = self._text(line, chance)
        result = await terminal.run(["sh", "-c", text], timeout=TIMEOUT_S, max_output=len(output))
        if self._expect_success(line, result):
            self._expect(line, result.stdout, output)

    async def _in_session(self, _: Terminal, session: Session, line: str, chance: random.Random) -> None:
        text, output = self._text(line, chance)
        result = await session.run(text, timeout=TIMEOUT_S, max_output=len(output))
        if self._expect_success(line, result):
            self._expect(line, result.stdout, output)

    async def _stream(self, terminal: Terminal, _: Session, line: str, chance: random.Random) -> None:
        text, output = self._text(line, chance)
        seen = hashlib.sha256()
        size = 0
        async with terminal.stream(["sh", "-c", text], timeout=TIMEOUT_S) as events:
            async for event in events:
                if event.kind == "stdout":
                    seen.update(event.data)
                    size += len(event.data)
                    if chance.random() < 0.05:
                        await asyncio.sleep(0.005)
            result = await events.result()
        if self._expect_success(line, result):
            self._expect(line, f"{size} {seen.hexdigest()}", f"{len(output)} {hashlib.sha256(output).hexdigest()}")

    async def _input(self, terminal: Terminal, _: Session, line: str, chance: random.Random) -> None:
        data = chance.randbytes(chance.choice([1, 5_000, 2_000_000]))
        argv = ["sh", "-c", f"echo {line} >> {self._there}/ran; exec cat"]
        result = await terminal.run(argv, stdin=data, timeout=TIMEOUT_S, max_output=len(data))
        if self._expect_success(line, result):
            self._expect(line, result.stdout, data)

    async def _file(self, terminal: Terminal, _: Session, line: str, chance: random.Random) -> None:
        path, data = f"{self._there}/{line}", chance.randbytes(chance.choice([1, 100_000, 3_000_000]))
        await terminal.write(path, data)
        self._expect(line, (self._here / line).read_bytes(), data)
        self._expect(line, await terminal.read(path), data)
        (self._here / line).unlink()

    async def _job(self, terminal: Terminal, _: Session, line: str, chance: random.Random) -> None:
        text, output = self._text(line, chance)
        job = await terminal.start(text)
        result = await job.wait()
        if result.exit_code is None:  # the storm killed what ran it, perhaps before it did anything
            self.report.killed += 1
        elif self._expect_success(line, result):
            self._expect(line, b"".join([event.data async for event in job.logs()]), output)
        await job.prune()

    async def _exceed_limit(self, terminal: Terminal, _: Session, line: str, chance: random.Random) -> None:
        """A command that ends at its limit, which is how a stuck connection shows."""
        limit = chance.choice([0.2, 1.0])
        begun = time.monotonic()
        result = await terminal.run(["sh", "-c", f"echo {line} >> {self._there}/ran; exec sleep 600"], timeout=limit)
        self._expect_in_time(f"{line} limited to {limit} s", begun, limit)
        if result.signal == signal.SIGKILL and not result.timed_out:
            self.report.killed += 1
        elif not result.timed_out:
            self.report.wrong.append(f"{line}: {result.reason}")
