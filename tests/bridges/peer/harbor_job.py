"""The results of a job of Harbor, as one line; trajectories are validated by Harbor's own model."""

import json
import sys
from pathlib import Path

from harbor.models.trajectories import Trajectory

found = {}
for path in Path(sys.argv[1]).glob("*/*/result.json"):
    result = json.loads(path.read_text())
    failure = result.get("exception_info")
    written = path.parent / "agent/trajectory.json"
    trajectory = Trajectory.model_validate_json(written.read_text()) if written.exists() else None
    found[f"{result['agent_info']['name']} {result['task_name']}"] = {
        "rewards": (result.get("verifier_result") or {}).get("rewards"),
        "failure": failure and failure["exception_message"],
        "tokens": result["agent_result"]["n_output_tokens"],
        "steps": trajectory and [[each.source, [call.function_name for call in each.tool_calls or ()]]
                                 for each in trajectory.steps],
        "recorded_tokens": trajectory and trajectory.final_metrics.total_completion_tokens,
    }
print(json.dumps(found))
