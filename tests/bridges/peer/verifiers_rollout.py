"""Rollouts of verifiers in a target, by a harness of this file or by our agent; prints what became of them."""

import asyncio
import json
import os
import sys
import time

import verifiers.v1 as vf
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.harness import Harness, HarnessConfig
from verifiers.v1.runtimes import SubprocessConfig, SubprocessRuntime
from verifiers.v1.task import Task, TaskData

from hermes_exec_agent.bridges.verifiers_runtime import open_runtime

TARGET, URL, PROGRAM = sys.argv[1:4]
PROBE = """
import json, os, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": os.environ["PROMPT"]}]}).encode()
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["SECRET"]}
request = urllib.request.Request(os.environ["URL"] + "/chat/completions", body, headers)
reply = json.load(urllib.request.urlopen(request, timeout=60))
open("answer", "w").write(reply["choices"][0]["message"]["content"])
"""


class ProbeConfig(HarnessConfig):
    pass


class ProbeHarness(Harness[ProbeConfig]):
    """Asks the model from inside of the runtime."""

    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        await runtime.write("probe.py", PROBE.encode())
        env = {"URL": endpoint, "SECRET": secret, "PROMPT": data.prompt}
        return await runtime.run_program(["python3", "probe.py"], env)


__all__ = ["ProbeHarness"]


class FolderTask(Task):
    @vf.reward
    async def wrote(self, runtime) -> float:
        data = await runtime.read("answer", max_bytes=1000)
        return float(b"good" in data)


async def main() -> None:
    os.environ["PROBE_KEY"] = "key"
    client = vf.EvalClientConfig(base_url=URL, api_key_var="PROBE_KEY")
    found = {}
    if PROGRAM == "-":
        from verifiers.v1.utils.loaders import harness_config_type

        harness = harness_config_type("verifiers_rollout")(id="verifiers_rollout")
    else:
        from verifiers.v1.utils.loaders import harness_config_type

        harness = harness_config_type("hermes-exec-harness")(id="hermes-exec-harness", program=PROGRAM, replies=8)
    agent = vf.Agent(AgentConfig(model="m", client=client, harness=harness, runtime=SubprocessConfig()))
    async with agent, open_runtime(TARGET) as box:
        began = time.monotonic()
        trace = await agent.run(FolderTask(TaskData(prompt="Write good into answer.")), runtime=box)
        found["seconds"] = time.monotonic() - began
        folder = (await box.run(["pwd"], {})).stdout.strip()
        json.dumps(trace.model_dump(mode="json"))
        found |= {
            "ok": trace.ok, "reward": trace.reward, "nodes": len(trace.nodes), "folder": folder,
            "errors": [str(each) for each in trace.errors],
        }
        missing = await box.run(["no-such-program"], {})
        found["missing"] = missing.exit_code
        await box.run_background(["sleep", "4711.5"], {}, "log")
    if PROGRAM == "-":
        own = SubprocessRuntime(SubprocessConfig())
        await own.start()
        async with vf.Agent(AgentConfig(model="m", client=client, harness=harness, runtime=SubprocessConfig())) as agent:
            began = time.monotonic()
            await agent.run(FolderTask(TaskData(prompt="Write good into answer.")), runtime=own)
            found["own_seconds"] = time.monotonic() - began
        await own.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
