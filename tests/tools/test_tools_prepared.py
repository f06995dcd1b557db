"""What is prepared of our own tools is what their classes say.

The file is written by running this one with ``--write``.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import hermes_exec
from hermes_exec.config.plugins import load_class, own_entry_points
from hermes_exec_agent.tools.base import BaseTool, build_schema, class_name, describe
from hermes_exec_agent.tools.prepared import PREPARED, TRAITS, PreparedTool, ToolTraits
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import GROUP, create_tools, offer_tools
from tests.tools.conftest import Nobody

if TYPE_CHECKING:
    from pathlib import Path


def describe_tool(tool: type[BaseTool[Any]]) -> dict[str, object]:
    """Return what is prepared of a tool."""
    takes = tool.arguments_type
    traits = {name: getattr(tool, name) for name in TRAITS if getattr(tool, name) != getattr(ToolTraits, name)}
    return {"type": class_name(takes), "description": describe(takes), **traits, "schema": build_schema(takes)}


def build_file() -> str:
    """Build the content of the file from the classes."""
    points = sorted(own_entry_points(GROUP).items())
    rows = (f"{json.dumps(name)}: {json.dumps(describe_tool(load_class(point, BaseTool)))}" for name, point in points)
    return "{\n" + ",\n".join(rows) + "\n}\n"


def test_what_is_prepared_is_what_the_classes_say() -> None:
    assert json.loads(PREPARED.read_text()) == json.loads(build_file()), f"renew it: python {__file__} --write"


def test_a_prepared_tool_runs_as_its_class_does_and_another_conversation_has_its_own(tmp_path: Path) -> None:
    async def call() -> None:
        async with hermes_exec.open("local", cwd=str(tmp_path)) as terminal:
            context = Context(terminal, "local", Nobody(), "1", approvals=Approvals("allow"))
            tools = {tool.spec.name: tool for tool in create_tools(context, ["todo", "terminal"])}
            first = tools["todo"]
            assert isinstance(first, PreparedTool)
            assert first.loaded is None
            kept = await first.call({"todos": [{"content": "one"}]}, context)
            assert "one" in kept.output
            refused = await tools["terminal"].call({"comand": "true"}, context)
            assert refused.error is not None
            assert "'command'" in refused.error.message
            (second,) = offer_tools([first.renew()], context)
            assert "one" not in (await second.call({}, context)).output
            await context.close()

    asyncio.run(call())


def test_a_conversation_without_configuration_begins_without_pydantic(tmp_path: Path) -> None:
    code = """if True:
        import asyncio, sys
        from pathlib import Path
        from hermes_exec_agent.models import Models, ScriptedModel, say
        from hermes_exec_agent.runtime import open_conversation
        from hermes_exec_agent.runtime.events import EventLog
        from hermes_exec_agent.tools.absent_person import AbsentPerson

        async def begin():
            with EventLog(Path("log.sqlite")) as log:
                models = Models(ScriptedModel([say("Done.")]))
                async with open_conversation("local", models=models, person=AbsentPerson(), log=log) as conversation:
                    assert len(conversation.specs) > 10
                    assert (await conversation.ask("work")).text == "Done."

        asyncio.run(begin())
        print(sorted({"pydantic", "hermes_exec.config.load"} & set(sys.modules)))
    """
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    argv = [sys.executable, "-c", code]
    run = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("[]\n", "")


if __name__ == "__main__" and "--write" in sys.argv:
    PREPARED.write_text(build_file())
