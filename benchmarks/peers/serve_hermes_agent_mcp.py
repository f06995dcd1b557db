"""hermes-agent's client of the Model Context Protocol: opens a server, and calls its tool ``echo``."""

import json
import sys
import time

from tools import mcp_tool

for line in sys.stdin:
    kind, value = json.loads(line)
    begin = time.perf_counter()
    if kind == "open":
        name, config = value
        found = mcp_tool.register_mcp_servers({name: config})
        if not any(each.endswith("echo") for each in found):
            raise SystemExit(f"no tool in {found}")
        call = mcp_tool._make_tool_handler(name, "echo", 60)  # noqa: SLF001  it has no public one
    elif "hello" not in call({"text": "hello"}):
        raise SystemExit("no answer")
    print("took", time.perf_counter() - begin, flush=True)
