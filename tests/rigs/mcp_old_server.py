"""A server of the SDK's first generation, run in an environment of its own: a tool, a resource and a prompt."""

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("old")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(to: int, context: Context) -> str:  # type: ignore[type-arg]  the old SDK's own form
    """Count, with reports of progress."""
    for number in range(to):
        await context.report_progress(number, to)
    return f"counted to {to}"


@server.resource("old://note")
def note() -> str:
    """Return a note."""
    return "an old note"


@server.prompt()
def review(what: str) -> str:
    """Review something."""
    return f"Review {what}."


if __name__ == "__main__":
    server.run()
