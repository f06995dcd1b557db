"""The prepared schemas of our own tools are what their classes say.

The file is written by running this one with ``--write``.
"""

from __future__ import annotations

import json
import sys

from hermes_exec.config.plugins import load_class, own_entry_points
from hermes_exec_agent.tools.base import SCHEMAS, BaseTool, build_schema, class_name
from hermes_exec_agent.tools.toolset import GROUP


def build_file() -> str:
    """Build the content of the file from the classes."""
    types = [load_class(point, BaseTool).arguments_type for point in own_entry_points(GROUP).values()]
    schemas = {class_name(each): build_schema(each) for each in sorted(types, key=class_name)}
    rows = (f"{json.dumps(name)}: {json.dumps(schema)}" for name, schema in schemas.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def test_the_prepared_schemas_are_those_of_the_classes() -> None:
    assert json.loads(SCHEMAS.read_text()) == json.loads(build_file()), f"renew them: python {__file__} --write"


if __name__ == "__main__" and "--write" in sys.argv:
    SCHEMAS.write_text(build_file())
