"""The words of the generated module: its frame, and docstrings for people who block."""

from __future__ import annotations

import re
import textwrap

from hermes_dev.source import CannotTurn

REWORDED = (
    (
        """\
It belongs to the event loop it was opened on, where any number of tasks may use it at once;
``hermes_exec.sync`` is for threads.""",
        "Any number of threads may use it at once.",
    ),
    ("asyncio.CancelledError: the task was cancelled;", "KeyboardInterrupt: the user pressed Ctrl-C;"),
    ("Use it with ``async with``, on one event loop.", "Use it with ``with``, from any number of threads."),
    ("``async with orchestrator.", "``with orchestrator."),
    ("``async with terminal.", "``with terminal."),
    ("``async with hermes_exec.open(", "``with hermes_exec.sync.open("),
    ("``hermes_exec.open``", "``hermes_exec.sync.open``"),
    ("``async with``", "``with``"),
)
ASYNCHRONOUS = re.compile(r"\b(async|asyncio|await(ed)?|tasks?|coroutines?|event loop)\b")
HEADER = '''\
"""The same terminals, blocking: for scripts, for threads and for notebooks.

    with hermes_exec.sync.open("local") as terminal:
        print(terminal.run("uname -s").stdout_text)

Names, arguments, results and errors are those of ``hermes_exec``. Any number of threads may share an
object. Ctrl-C ends what the main thread waits for, waits until it has ended, and is then raised; a second
one gives up that waiting. Callbacks run on whichever thread drives at that moment, and must not call back.
After a fork the child can open new terminals, and not use the parent's.

Written by ``./dev generate`` from the asynchronous classes; do not edit.
"""

# ruff: noqa: PLR0913  as many arguments as the asynchronous methods have

from __future__ import annotations

from typing import TYPE_CHECKING

import hermes_exec
from hermes_exec._arguments import check_call
from hermes_exec._sync.proxy import BlockingProxy, BlockingIterator, BlockingContextManager, unwrap
from hermes_exec._sync.portal import portal

'''
GETATTR = '''
def __getattr__(name: str) -> object:
    """Give the public names that are the same in both interfaces."""
    if name in __all__:
        return getattr(hermes_exec, name)
    raise AttributeError(f"module 'hermes_exec.sync' has no attribute {name!r}")
'''


def function(top: str, name: str, arguments: str, returns: str, text: str | None, body: str) -> str:
    """The text of a method."""
    inner = textwrap.indent(f"{text_for_people(text)}\n{body}", "    ")
    return textwrap.indent(f"{top}def {name}({arguments}) -> {returns}:\n{inner}\n", "    ")


def text_for_people(text: str | None) -> str:
    """A docstring, in words for people who block."""
    text = text or ""
    for old, new in REWORDED:
        text = text.replace(old, new)
    found = ASYNCHRONOUS.search(text or "task")
    if found:
        raise CannotTurn(f"a docstring is empty, or has the asynchronous word {found[0]!r}: {text!r}")
    quotes = 'r"""' if "\\" in text else '"""'
    return f'{quotes}{text}"""' if "\n" not in text else f'{quotes}{text}\n"""'
