"""The results of a job of Harbor, as one line."""

import json
import sys
from pathlib import Path

found = {}
for path in Path(sys.argv[1]).glob("*/*/result.json"):
    result = json.loads(path.read_text())
    failure = result.get("exception_info")
    found[result["task_name"]] = {
        "rewards": (result.get("verifier_result") or {}).get("rewards"),
        "failure": failure and failure["exception_message"],
        "agent": result["agent_info"]["name"],
        "tokens": result["agent_result"]["n_output_tokens"],
    }
print(json.dumps(found))
