"""A small task of mini-swe-agent in a target: prints what its agent and its environment returned, as JSON."""

import json
import sys

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

settings = {"target": sys.argv[1], "cwd": sys.argv[2], "timeout": 3, "env": {"WORD": "hello"}}
env = get_environment({"environment_class": "hermes_exec_agent.bridges.mini_swe_agent.HermesExec", **settings})
slow = env.execute({"command": "echo before; sleep 30 & setsid sleep 31.5 & wait"})
commands = ["echo $WORD > out; exit 3", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat out"]
model = DeterministicModel(outputs=[make_output(each, [{"command": each}]) for each in commands])
agent = DefaultAgent(model, env, system_template="work on {{system}}", instance_template="{{task}}")
result = agent.run("task")
env.cleanup()
codes = [each["extra"]["returncode"] for each in agent.messages if "returncode" in each.get("extra", {})]
print(json.dumps({"slow": slow, "result": result, "codes": codes, "system": agent.messages[0]["content"],
                  "serialized": env.serialize()}))  # fmt: skip
