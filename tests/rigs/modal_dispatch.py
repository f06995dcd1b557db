"""The methods of a service, served from the descriptors in the SDK's wheel: modelled ones, and those that fail loudly.

Whatever the client asks that is not modelled (a method, or a field that it set) is refused with UNIMPLEMENTED and
noted, and a run of the tests fails at its end for it.
"""

from __future__ import annotations

import asyncio
import fnmatch
import socket
import struct
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError

from tests.rigs.modal_wheel import api, message_class

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])
_CARDINALITIES = {
    (False, False): Cardinality.UNARY_UNARY,
    (False, True): Cardinality.UNARY_STREAM,
    (True, False): Cardinality.STREAM_UNARY,
    (True, True): Cardinality.STREAM_STREAM,
}
_RESET = struct.pack("ii", 1, 0)
"""Linger for no time at all: closing then sends a reset."""
_under_way: set[asyncio.Task[Any]] = set()


def serves(*names: str, fields: str = "") -> Callable[[Method], Method]:
    """Mark what serves the methods ``names``, and which ``fields`` it models; ``a.*`` is all that is below ``a``."""

    def mark(method: Method) -> Method:
        marked: Any = method
        marked.serves, marked.fields = names, frozenset(fields.split())
        return method

    return mark


@dataclass
class Fault:
    """What goes wrong with the next calls of a method, before or after the work is done."""

    method: str
    """Its name, or a pattern of names."""
    how: str = "status"
    """``status``, ``lost`` (the stream is reset), ``fin`` or ``rst`` (the connection ends), ``hang``."""
    when: str = "before"
    status: str = "UNAVAILABLE"
    message: str = "injected"
    times: int = 1
    skip: int = 0
    """So many calls are let through first."""
    delay_s: float = 0.0
    retry_after_s: float = -1.0
    """Not below zero: tell the client to try again after that long."""


@dataclass
class Book:
    """What was asked, and what should not have been."""

    calls: list[str] = field(default_factory=list[str])
    faults: list[Fault] = field(default_factory=list[Fault])
    unmodelled: list[str] = field(default_factory=list[str])
    bugs: list[str] = field(default_factory=list[str])

    def fault(self, method: str, when: str) -> Fault | None:
        """The fault that this call has, if any."""
        for fault in self.faults:
            if fault.times > 0 and fault.when == when and fnmatch.fnmatchcase(method, fault.method):
                if fault.skip > 0:
                    fault.skip -= 1
                    return None
                fault.times -= 1
                return fault
        return None


class Dispatch:
    """One service for a grpclib server; ``admit`` checks who asks."""

    def __init__(
        self,
        service: Any,
        models: list[Any],
        book: Book,
        admit: Callable[[str, Any, Any], None],
    ) -> None:
        self._service = service
        self._book = book
        self._admit = admit
        self._modelled: dict[str, Any] = {}
        for model in models:
            for name in dir(model):
                method = getattr(model, name)
                names: tuple[str, ...] = getattr(method, "serves", ())
                self._modelled.update((served, method) for served in names if served in service.methods_by_name)

    def __mapping__(self) -> dict[str, Handler]:
        """What grpclib asks a service for."""
        return {
            f"/{self._service.full_name}/{each.name}": Handler(
                partial(self._serve, each),
                _CARDINALITIES[each.client_streaming, each.server_streaming],
                message_class(each.input_type),
                message_class(each.output_type),
            )
            for each in self._service.methods
        }

    async def _serve(self, method: Any, stream: Any) -> None:
        name = method.name
        self._book.calls.append(name)
        work = self._modelled.get(name)
        if work is None:
            self._book.unmodelled.append(name)
            raise GRPCError(Status.UNIMPLEMENTED, f"{name} is not modelled")
        try:
            await self._go_wrong(name, "before", stream)
            if method.client_streaming:
                reply = await work(self._checked_stream(name, work, stream), stream.metadata)
            else:
                request = await stream.recv_message()
                self._check(name, work, request)
                self._admit(name, request, stream.metadata)
                if method.server_streaming:
                    await self._stream(name, work(request), stream)
                    return
                reply = await to_its_end(work(request))
            await self._go_wrong(name, "after", stream)
            await stream.send_message(reply)
        except (GRPCError, asyncio.CancelledError):
            raise
        except ConnectionError:
            return
        except Exception as error:
            if type(error).__name__ not in {"StreamTerminatedError", "ProtocolError"}:
                self._book.bugs.append(f"{name}: {traceback.format_exc()}")
            raise

    async def _stream(self, name: str, items: AsyncIterator[Any], stream: Any) -> None:
        await stream.send_initial_metadata()
        async for item in items:
            await self._go_wrong(name, "during", stream)
            await stream.send_message(item)
        await self._go_wrong(name, "after", stream)

    async def _checked_stream(self, name: str, work: Any, stream: Any) -> AsyncIterator[Any]:
        while (request := await stream.recv_message()) is not None:
            self._check(name, work, request)
            self._admit(name, request, stream.metadata)
            yield request

    def _check(self, name: str, work: Any, request: Any) -> None:
        strange = [path for path in paths(request) if not known(path, work.fields)]
        if strange:
            self._book.unmodelled += [f"{name}: {path}" for path in strange]
            raise GRPCError(Status.UNIMPLEMENTED, f"{name}: not modelled: {', '.join(strange)}")

    async def _go_wrong(self, name: str, when: str, stream: Any) -> None:
        fault = self._book.fault(name, when)
        if fault is None:
            return
        await asyncio.sleep(fault.delay_s)
        if fault.how == "hang":
            await asyncio.Event().wait()
        if fault.how == "status":
            details: list[Any] = []
            if fault.retry_after_s >= 0:
                details.append(api.RPCRetryPolicy(retry_after_secs=fault.retry_after_s))
            raise GRPCError(Status[fault.status], fault.message, details or None)
        if fault.how in {"fin", "rst"}:
            hang_up(stream._stream._transport, reset=fault.how == "rst")
            raise ConnectionError
        if fault.how == "lost":
            await stream.cancel()
            raise ConnectionError


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What it gives. It is carried out also when nobody waits any more, because the connection broke meanwhile.

    assumed: what a request has begun is not left half done (source: none).
    """
    task = asyncio.ensure_future(work)
    _under_way.add(task)
    task.add_done_callback(_ended)
    return await asyncio.shield(task)


def _ended(task: asyncio.Task[Any]) -> None:
    _under_way.discard(task)
    if not task.cancelled():
        task.exception()  # told to whoever still waits


def hang_up(transport: Any, *, reset: bool) -> None:
    """End a connection, with a farewell or with a reset."""
    if transport.is_closing():
        return
    if reset:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()
    else:
        transport.close()


def paths(message: Any, prefix: str = "") -> list[str]:
    """The fields that are set, by their dotted names; those of messages in messages each by itself."""
    found: list[str] = []
    for descriptor, value in message.ListFields():
        path = f"{prefix}{descriptor.name}"
        entries: Any = [value]
        if descriptor.is_repeated:
            entries = value
        inner = descriptor.message_type
        if inner is None or inner.GetOptions().map_entry:
            found.append(path)
            continue
        below = [each for entry in entries for each in paths(entry, f"{path}.")]
        found += below or [path]
    return list(dict.fromkeys(found))


def known(path: str, fields: frozenset[str]) -> bool:
    """Whether a field is one that is modelled."""
    return path in fields or any(each.endswith(".*") and f"{path}.".startswith(each[:-1]) for each in fields)
