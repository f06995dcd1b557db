"""The process that talks to Ray: it creates an actor for each shard, and reports the ends of the actors.

Its input has one JSON object a line: first the settings, then ``{"submit": [[ID, EPOCH, POSITION, SLOTS], ...]}`` or
``{"kill": [ID, ...]}``. It writes ``{"ready": true}`` or ``{"failed": WHY}``, then ``{"ended": ID}`` for each shard.
The end of its input ends it, with all its actors and with a cluster that it started.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

_WAIT_S = 0.25
_OBJECTS = 80 << 20
"""Bytes of the store of objects, which shards do not use."""


class ShardActor:
    """Runs one shard in a worker process of a node."""

    async def run(self, run: str, order: tuple[str, int, int, int]) -> None:
        """Run a shard to its end. Its output goes to the folder of the shard."""
        from hermes_exec_agent.batch.run_folder import RunFolder
        from hermes_exec_agent.batch.shard import run_shard

        os.umask(0o077)
        folder = RunFolder.open(Path(run))
        id, epoch, position, slots = order
        output = os.open(folder.shard(id) / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        await run_shard(folder, epoch, id, position, slots, detached=True)


class Driver:
    """Holds the actors of a run."""

    def __init__(self, ray: Any, settings: dict[str, Any]) -> None:
        self._ray = ray
        self._run: str = settings["run"]
        self._options = {
            "num_cpus": settings["cpus"], "num_gpus": settings["gpus"], "memory": settings["memory"],
            "max_restarts": 0, "max_task_retries": 0,
        }  # fmt: skip
        self._actors: dict[str, Any] = {}
        self._shards: dict[Any, str] = {}
        """The shards by the references to their results."""

    @property
    def is_busy(self) -> bool:
        """Whether an actor has not ended."""
        return bool(self._shards)

    def obey(self, message: dict[str, Any]) -> None:
        """Create actors, or kill them."""
        for order in message.get("submit", ()):
            actor = self._ray.remote(ShardActor).options(**self._options).remote()
            self._actors[order[0]] = actor
            self._shards[actor.run.remote(self._run, tuple(order))] = order[0]
        for id in message.get("kill", ()):
            if id in self._actors:
                self._ray.kill(self._actors[id], no_restart=True)

    def find_ends(self) -> list[str]:
        """Wait a moment for actors to end, and return the shards of those that did."""
        if not self._shards:
            return []
        done, _ = self._ray.wait(list(self._shards), num_returns=1, timeout=_WAIT_S)
        ended: list[str] = []
        for reference in done:
            id = self._shards.pop(reference)
            try:
                self._ray.get(reference)
            except Exception as error:  # noqa: BLE001  the reasons of Ray are many; the coordinator settles each
                _say(f"{id}: {error}")
            # An actor that cannot be reached may still run: it is ended as far as this can be known.
            self._ray.kill(self._actors.pop(id), no_restart=True)
            ended.append(id)
        return ended


def connect(settings: dict[str, Any]) -> Any:
    """Connect to a cluster, or start one here; return the module of Ray."""
    ray: Any = importlib.import_module("ray")
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if settings["address"]:
        ray.init(address=settings["address"], **common)
    else:
        ray.init(
            address="local", include_dashboard=False, object_store_memory=_OBJECTS, _node_ip_address="127.0.0.1",
            _temp_dir=settings["temporary"], **common,
        )  # fmt: skip
        _check_size(ray, settings)
    return ray


def _check_size(ray: Any, settings: dict[str, Any]) -> None:
    """Check that a shard fits in this machine, as it would wait forever."""
    total = ray.cluster_resources()
    for name, resource in (("cpus", "CPU"), ("gpus", "GPU"), ("memory", "memory")):
        if (settings[name] or 0) > total.get(resource, 0):
            raise ValueError(
                f"a shard needs {name}={settings[name]:g}, and this machine has {total.get(resource, 0):g}"
            )


def main() -> None:
    """Run the driver."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints
    messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    settings = json.loads(sys.stdin.readline())
    threading.Thread(target=_read, args=(messages,), daemon=True).start()
    try:
        ray = connect(settings)
    except Exception as error:  # noqa: BLE001  the reasons of Ray are many
        _say(f"{type(error).__name__}: {error}")
        print(json.dumps({"failed": str(error).strip().partition("\n")[0]}), file=replies)
        os._exit(1)
    print(json.dumps({"ready": True}), file=replies)
    _serve(Driver(ray, settings), messages, replies)
    ray.shutdown()


def _serve(driver: Driver, messages: queue.SimpleQueue[dict[str, Any] | None], replies: TextIO) -> None:
    while True:
        try:
            message = messages.get(block=not driver.is_busy)
        except queue.Empty:
            message = {}
        if message is None:
            return
        driver.obey(message)
        for id in driver.find_ends():
            print(json.dumps({"ended": id}), file=replies)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _read(messages: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        messages.put(json.loads(line))
    messages.put(None)


if __name__ == "__main__":
    main()
