"""Run a script whose calls of tools go out on descriptor 1 and come back on descriptor 0; what it prints goes to 2.

The first line on standard input is the script, as JSON. A call is a line of JSON, and so is its answer.
"""

import sys

sys.path.pop(0)  # the folder of the script, in which a json.py may lie
import json
import os
import threading
import traceback
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OUT, IN = os.dup(1), os.fdopen(os.dup(0), "rb")  # neither is inherited by the script's child processes
os.dup2(2, 1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
TURN = threading.Lock()


class ToolFailed(Exception):
    """A tool call failed; ``result`` is the tool's whole result."""

    def __init__(self, result: "dict[str, Any]") -> "None":
        self.result = result
        super().__init__(result["error"]["message"])


def call(name: "str", arguments: "dict[str, Any]") -> "dict[str, Any]":
    """Call a tool and return its result; raise ToolFailed if the result has an error of the tool itself."""
    data = json.dumps({"tool": name, "arguments": arguments}).encode() + b"\n"
    with TURN:
        while data:
            data = data[os.write(OUT, data) :]
        line = IN.readline()
    if not line:
        raise SystemExit("the agent does not answer any more")
    result = json.loads(line.decode())
    if "error" in result:
        raise ToolFailed(result)
    return dict(result)


def function(name: "str", taken: "list[str]") -> "Callable[..., dict[str, Any]]":
    """Return the function with which a script calls a tool."""

    def tool(*words: "Any", **named: "Any") -> "dict[str, Any]":
        if len(words) > len(taken):
            raise TypeError("%s takes %s" % (name, ", ".join(taken)))
        return call(name, dict(zip(taken, words), **named))

    tool.__name__ = tool.__qualname__ = name
    return tool


def main() -> "None":
    """Run the script, and exit with its exit code."""
    begin = json.loads(IN.readline().decode())
    module = types.ModuleType("tools")
    for name, taken in begin["tools"].items():
        setattr(module, name, function(name, taken))
    vars(module).update(call=call, ToolFailed=ToolFailed)
    sys.modules["tools"] = module
    sys.path.insert(0, "")
    sys.argv = ["script.py"]
    code = 0
    try:
        exec(compile(begin["code"], "script.py", "exec"), {"__name__": "__main__", "tools": module})
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            sys.stderr.write(error.code + "\n")
    except BaseException as error:
        trace = error.__traceback__
        traceback.print_exception(type(error), error, (trace and trace.tb_next) or trace)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


main()
