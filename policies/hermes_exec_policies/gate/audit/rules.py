"""The rules of ``rules.toml``, by what they match."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

_KINDS = ("calls", "names", "imports", "assigned", "hooks", "texts", "bandit")


@dataclass(frozen=True, slots=True)
class Rule:
    """A thing that no skill needs."""

    code: str
    """The code of a finding, ``audit.trace``."""
    why: str
    instead: str

    def explain(self, what: str) -> str:
        """Return the text of a finding: what was found, why it matters, and the smallest change."""
        return f"{what}: {self.why}; {self.instead}"


DYNAMIC = Rule(
    "audit.dynamic-code",
    "text that comes from outside the file would run as code",
    "use ast.literal_eval or json.loads for values, and a function for each operation",
)
UNPICKLED = Rule("audit.unpickled", "bytes that were downloaded or decoded choose the code that runs", "use json.loads")
PIPED = Rule(
    "audit.pipe-to-shell",
    "a program from the network would run without having been examined",
    "add the program's steps as a script, or name a package in needs-packages",
)
MODULES = Rule(
    "audit.modules",
    "it replaces a module for the program that checks the skill",
    "import the module under another name and call a function of your own",
)
CODING = Rule("audit.coding", "people and tools would read another text than Python does", "save the file as UTF-8")


@functools.cache
def load_rules() -> dict[str, dict[str, Rule]]:
    """Return the rules by kind and by the name that they match."""
    found: dict[str, dict[str, Rule]] = {kind: {} for kind in _KINDS}
    table = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
    for name, entry in table.items():
        rule = Rule(f"audit.{name}", entry["why"], entry["instead"])
        for kind in _KINDS:
            found[kind] |= dict.fromkeys(entry.get(kind, ()), rule)
    return found
