"""The client of MCP that pydantic-ai-harness uses: opens a server, and calls its tool ``echo``."""

import asyncio
import json
import sys
import time

from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset


async def main() -> None:
    loop = asyncio.get_running_loop()
    opened = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        kind, value = json.loads(line)
        begin = time.perf_counter()
        if kind == "open":
            _, config = value
            where = config["url"] if "url" in config else StdioTransport(config["command"], config["args"])
            toolset = MCPToolset(where, init_timeout=60)
            await toolset.__aenter__()
            opened.append(toolset)
            if [each.name for each in await toolset.list_tools()] != ["echo"]:
                raise SystemExit("no tool")
        elif "hello" not in str(await toolset.direct_call_tool("echo", {"text": "hello"})):
            raise SystemExit("no answer")
        print("took", time.perf_counter() - begin, flush=True)
    for toolset in opened:
        await toolset.__aexit__(None, None, None)


asyncio.run(main())
