"""A whole evaluation of inspect_ai over targets: prints its end, and what its samples found, as JSON."""

import json
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

from hermes_exec_agent.bridges.inspect_sandbox import hermes_sandbox


by_name = sys.argv[1] == "by-name"


@solver
def copy():
    async def solve(state, generate):
        done = await sandbox().exec(["sh", "-c", "cat given > out; pwd; setsid sleep 4712.5 >/dev/null 2>&1 &"])
        state.metadata["folder"] = done.stdout.strip()
        return state

    return solve


@scorer(metrics=[accuracy()])
def has_copied():
    async def score(state, target):
        text = await sandbox().read_file("out")
        is_alone = by_name or not (await sandbox("other").exec(["cat", "out"])).success
        return Score(value="C" if text == target.text and is_alone else "I")

    return score


work = Task(
    dataset=[
        Sample(input=f"copy {number}", target=f"{number}\n", files={"given": f"{number}\n"}) for number in range(40 if by_name else 4)
    ],
    solver=copy(),
    scorer=has_copied(),
    sandbox=("hermes_exec", "here") if by_name else hermes_sandbox(sys.argv[1], other=sys.argv[1]),
)
(log,) = eval(work, model="mockllm/model", display="none", log_dir=sys.argv[2],
              max_samples=20, max_sandboxes=20)
found = log.results.scores[0].metrics["accuracy"].value if log.results else None
folders = [sample.metadata["folder"] for sample in log.samples or []]
print(json.dumps({"status": log.status, "accuracy": found, "folders": folders, "error": str(log.error)}))
