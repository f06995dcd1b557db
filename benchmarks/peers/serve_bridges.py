"""Samples of another project in its own environment and in ours, in turns of blocks, by the project's own Python.

``python serve_bridges.py PEER ROUNDS [URL]`` prints as JSON the seconds of each start and each sample, and the
processor time of this process in a start, a sample and an end.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

BLOCK = 4
CALLS = 10
PROGRAM = "import json, re, subprocess"
"""What a call runs, as scripts of agents do."""


def read_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Side:
    """The figures of one environment."""

    def __init__(self) -> None:
        self.start, self.sample, self.cpu = [], [], []

    @contextmanager
    def measure(self, kind: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        getattr(self, kind).append(time.perf_counter() - begin)

    def drop_first(self) -> dict[str, list[float]]:
        """Return the figures without the first block, which loads code."""
        return {kind: values[BLOCK:] for kind, values in vars(self).items()}


async def measure_in_turns(sides: dict[str, Any], work: Any, rounds: int) -> None:
    """Measure ``work(open_it, side)`` in blocks."""
    found = {name: Side() for name in sides}
    for _ in range(1 + max(1, rounds // BLOCK)):
        for name, open_it in sides.items():
            for _ in range(BLOCK):
                begin = read_cpu()
                await work(open_it, found[name])
                found[name].cpu.append(read_cpu() - begin)
    print(json.dumps({name: side.drop_first() for name, side in found.items()}))


async def measure_inspect(rounds: int) -> None:
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

    from hermes_exec_agent.bridges.inspect_sandbox import HermesExecSandbox

    async def work(kind: Any, side: Side) -> None:
        with side.measure("start"):
            environments = await kind.sample_init("task", None, {})
            box = environments["default"]
            await box.exec(["true"])
        with side.measure("sample"):
            for number in range(CALLS):
                await box.write_file(f"file{number}", "x" * 1000)
                done = await box.exec([sys.executable, "-c", PROGRAM])
                assert done.success, done
                await box.read_file(f"file{number}")
        await kind.sample_cleanup("task", None, environments, False)

    await measure_in_turns({"own": LocalSandboxEnvironment, "ours": HermesExecSandbox}, work, rounds)


async def measure_mini(rounds: int) -> None:
    from minisweagent.environments.local import LocalEnvironment

    from hermes_exec_agent.bridges.mini_swe_agent import HermesExec

    async def work(kind: Any, side: Side) -> None:
        with side.measure("start"):
            environment = kind()
            environment.execute({"command": "true"})
        with side.measure("sample"):
            for _ in range(CALLS):
                done = environment.execute({"command": f"{sys.executable} -c '{PROGRAM}'"})
                assert done["returncode"] == 0, done
        if hasattr(environment, "cleanup"):
            environment.cleanup()

    await measure_in_turns({"own": LocalEnvironment, "ours": HermesExec}, work, rounds)


async def measure_verifiers(rounds: int, url: str) -> None:
    sys.argv[1:] = ["local", url, "-"]
    import verifiers.v1 as vf
    import verifiers_rollout as rollout
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.runtimes import SubprocessConfig, SubprocessRuntime
    from verifiers.v1.task import TaskData
    from verifiers.v1.utils.loaders import harness_config_type

    from hermes_exec_agent.bridges.verifiers_runtime import open_runtime

    os.environ["PROBE_KEY"] = "key"
    client = vf.EvalClientConfig(base_url=url, api_key_var="PROBE_KEY")
    harness = harness_config_type("verifiers_rollout")(id="verifiers_rollout")

    @asynccontextmanager
    async def open_own() -> AsyncIterator[SubprocessRuntime]:
        runtime = SubprocessRuntime(SubprocessConfig())
        await runtime.start()
        yield runtime
        await runtime.stop()

    config = AgentConfig(model="m", client=client, harness=harness, runtime=SubprocessConfig())
    async with vf.Agent(config) as agent:

        async def work(open_it: Any, side: Side) -> None:
            manager = open_it()
            with side.measure("start"):
                runtime = await manager.__aenter__()
                await runtime.run(["true"], {})
            with side.measure("sample"):
                trace = await agent.run(rollout.FolderTask(TaskData(prompt="good")), runtime=runtime)
            assert trace.ok, trace.errors
            await manager.__aexit__(None, None, None)

        await measure_in_turns({"own": open_own, "ours": lambda: open_runtime("local")}, work, rounds)


if __name__ == "__main__":
    peer, count = sys.argv[1], int(sys.argv[2])
    if peer == "verifiers":
        asyncio.run(measure_verifiers(count, sys.argv[3]))
    else:
        asyncio.run({"inspect": measure_inspect, "mini": measure_mini}[peer](count))
