"""A Modal of the tests: both of its services on this machine, for the SDK as it is, with sandboxes that are cells.

Start it with ``Apart("tests.rigs.modal_server:ModalServer")`` and reach its methods by ``call``. It models what the
backend and the tests use; everything else is refused and noted in ``problems``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import grpclib.server

from tests.rigs.modal_control import Control
from tests.rigs.modal_dispatch import Book, Dispatch, Fault, hang_up
from tests.rigs.modal_sandboxes import Sandboxes
from tests.rigs.modal_state import HOUR_S, State
from tests.rigs.modal_wheel import api, details, router
from tests.rigs.modal_worker import Worker
from tests.rigs.slow import Slow

_CONTROL = api.DESCRIPTOR.services_by_name["ModalClient"]
_ROUTER = router.DESCRIPTOR.services_by_name["TaskCommandRouter"]


class Serving(grpclib.server.Server):
    """A server that remembers its connections, to break them."""

    def __init__(self, service: Dispatch) -> None:
        super().__init__([service], status_details_codec=details)
        self.transports: set[Any] = set()

    def _protocol_factory(self) -> Any:
        protocol: Any = super()._protocol_factory()
        made = protocol.connection_made

        def connection_made(transport: Any) -> None:
            self.transports = {each for each in self.transports if not each.is_closing()} | {transport}
            made(transport)

        protocol.connection_made = connection_made
        return protocol

    @property
    def port(self) -> int:
        server: Any = self._server
        port: int = server.sockets[0].getsockname()[1]
        return port

    def break_all(self, *, reset: bool) -> None:
        """End every connection."""
        for transport in self.transports:
            hang_up(transport, reset=reset)


class ModalServer:
    """The whole of it. Each test can have a worker of its own, to lose."""

    async def start(self, *, latency_s: float = 0.0) -> None:
        """Listen; with a latency, replies come that much later than without."""
        self._folder = Path(tempfile.mkdtemp(prefix="hx-modal-"))
        self._latency_s = latency_s
        self._state = State(self._folder)
        self._book = Book()
        self._slow: list[Slow] = []
        self._workers: list[tuple[Worker, Serving]] = []
        control = Control(self._state)
        sandboxes = Sandboxes(self._state, lambda: self._workers[-1][0])
        self._control = Serving(Dispatch(_CONTROL, [control, sandboxes], self._book, control.admit))
        self._url = await self._listen(self._control)
        await self.new_worker()

    async def _listen(self, serving: Serving) -> str:
        await serving.start("127.0.0.1", 0)
        port = serving.port
        if self._latency_s:
            slow = Slow(port, self._latency_s)
            self._slow.append(slow)
            port = await slow.start()
        return f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        """End everything, and remove what it had."""
        for sandbox in self._state.sandboxes.values():
            await sandbox.finish("TERMINATED", 137)
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self) -> str:
        """The control plane's address."""
        return self._url

    async def new_worker(self) -> None:
        """Sandboxes that are created from now on are on another worker."""
        worker = Worker(self._state)
        serving = Serving(Dispatch(_ROUTER, [worker], self._book, worker.admit))
        worker.url = await self._listen(serving)
        self._workers.append((worker, serving))

    async def lose_worker(self, *, dies: bool = True) -> None:
        """The newest worker is reached no more; if it dies, its sandboxes end, and nobody says so."""
        worker, serving = self._workers[-1]
        serving.close()
        serving.break_all(reset=True)
        if dies:
            for sandbox in self._state.sandboxes.values():
                if sandbox.worker is worker:
                    await sandbox.cell.terminate()
        await self.new_worker()

    def cut(self, *, reset: bool = False) -> None:
        """Break every connection there is, to workers and to the control plane."""
        for _, serving in self._workers:
            serving.break_all(reset=reset)
        self._control.break_all(reset=reset)

    def fail(self, method: str, **options: Any) -> None:
        """Let the next calls of a method go wrong; see ``Fault``."""
        self._book.faults.append(Fault(method, **options))

    def heal(self) -> None:
        """No more faults."""
        self._book.faults.clear()
        self._state.build_failure = ""
        self._state.tokens_for_s = HOUR_S

    def fail_builds(self, message: str) -> None:
        """Images cannot be built, until ``heal``."""
        self._state.build_failure = message

    def give_tokens(self, *, for_s: int) -> None:
        """Tokens that are given out from now on expire so soon, until ``heal``."""
        self._state.tokens_for_s = for_s

    def secret(self, name: str, **values: str) -> None:
        """Have a named secret."""
        secret_id = self._state.secret_names.setdefault(name, f"st-{name}")
        self._state.secrets[secret_id] = values

    def share(self, name: str, folder: str) -> None:
        """Have a volume that is a folder of this machine."""
        self._state.volumes[f"vo-{name}"] = Path(folder)

    def seccomp(self, program: bytes, *, childless: bool = False) -> None:
        """What sandboxes that are created from now on live under."""
        self._state.seccomp, self._state.childless = program, childless

    async def finish(self, sandbox_id: str, status: str, exitcode: int = 0) -> None:
        """End a sandbox with a status such as ``KERNEL_OOM_KILL``."""
        await self._state.find(sandbox_id).finish(status, exitcode)

    def sandboxes(self) -> list[dict[str, Any]]:
        """All that there were."""
        return [sandbox.told() for sandbox in self._state.sandboxes.values()]

    def alive(self) -> list[dict[str, Any]]:
        """Those that run."""
        return [told for told in self.sandboxes() if told["alive"]]

    def images(self) -> dict[str, str]:
        """The definition's lines of each image, by its id; nothing for a snapshot."""
        return {
            name: "" if isinstance(image, Path) else "\n".join(image.dockerfile_commands)
            for name, image in self._state.images.items()
        }

    def tags(self) -> dict[str, str]:
        """The published names of images."""
        return dict(self._state.tags)

    def calls(self) -> Counter[str]:
        """How often each method was called."""
        return Counter(self._book.calls)

    def forget_problems(self) -> None:
        """What was wrong so far was another test's."""
        self._book.unmodelled.clear()
        self._book.bugs.clear()

    def forget_calls(self) -> None:
        """Count from now on."""
        self._book.calls.clear()

    def problems(self) -> list[str]:
        """What was asked and is not modelled, and what broke in here."""
        return [*self._book.unmodelled, *self._book.bugs]
