"""The client of MCP that pydantic-ai-harness uses: opens a server, and calls its tool ``echo``."""

import asyncio
import json
import os
import sys
import time

from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset


async def main() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        kind, value = json.loads(line)
        begin = time.perf_counter()
        if kind == "open":
            _, config = value
            where = config["url"] if "url" in config else StdioTransport(config["command"], config["args"])
            toolset = MCPToolset(where, init_timeout=60)
            await toolset.__aenter__()
            if [each.name for each in await toolset.list_tools()] != ["echo"]:
                raise SystemExit("no tool")
        elif "hello" not in str(await toolset.direct_call_tool("echo", {"text": "hello"})):
            raise SystemExit("no answer")
        print("took", time.perf_counter() - begin, flush=True)
    os._exit(0)  # closing the servers in order may take longer than the benchmark waits


asyncio.run(main())
