"""All looks at a skill's texts; runs in a child process, which a text may be made to keep busy or crash."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from hermes_exec_policies.gate.audit import pythons, scanners, shells, words
from hermes_exec_policies.gate.verdict import Finding, functional

_READ = (".md", ".rst", ".markdown", ".mdx")
"""What agents read for instructions, beside what is below ``references``."""
_GIVEN = ("tests/", "data/")
_HELD = ("data/", "assets/", "templates/", "examples/")
"""What a script that starts programs may read commands from."""
_OTHERS = (
    ".pl", ".pm", ".rb", ".js", ".mjs", ".cjs", ".ts", ".php", ".lua", ".ps1", ".bat", ".cmd", ".tcl", ".r", ".jl",
    ".go", ".c", ".cc", ".cpp", ".h", ".rs", ".java", ".zsh", ".fish", ".ksh", ".csh", ".awk", ".nim", ".vbs",
    ".scm", ".el",
)  # fmt: skip
_PLAIN = re.compile(r"scripts/(.*/)?(?!.*[Mm]akefile|[Jj]ustfile|Dockerfile|Rakefile)[^/.]+")
"""Scripts for a shell have no ending, often."""
_RECIPES = frozenset({"Makefile", "makefile", "GNUmakefile", "Justfile", "justfile", "Dockerfile", "Rakefile"})


def answer(question: dict[str, Any]) -> list[dict[str, Any]]:
    """Findings in the texts of a skill, as plain values."""
    packages = frozenset(map(words.canonical, question["packages"]))
    return [asdict(each) for each in look(question["texts"], frozenset(question["hosts"]), packages)]


def look(texts: dict[str, str], hosts: frozenset[str], packages: frozenset[str] = frozenset()) -> list[Finding]:
    """Findings in the texts of a skill, by path; it may use these hosts and has declared these packages."""
    found: list[Finding] = []
    said: dict[str, list[str]] = {}
    starts = False
    for path, text in sorted(texts.items()):
        if path.endswith(".py"):
            seen = pythons.look(path, text, network=bool(hosts))
            found += seen.findings
            said[path] = seen.said
            starts |= seen.starts
        elif path.endswith((".sh", ".bash")) or text.startswith("#!") or _PLAIN.fullmatch(path):
            found += shells.findings(path, text)
            for code in shells.pythons(text):
                found += pythons.look(path, code, network=bool(hosts)).findings
        elif path.startswith("references/") or (path.endswith(_READ) and not path.startswith(_GIVEN)):
            found += words.findings(path, text, packages)
            for code in shells.pythons(text):
                found += [
                    each
                    for each in pythons.look(path, code, network=bool(hosts)).findings
                    if each.code != "audit.syntax"
                ]
        elif path.startswith("scripts/") and (path.endswith(_OTHERS) or path.rpartition("/")[2] in _RECIPES):
            found.append(
                functional("audit.language", "scripts are in Python or for a shell, which are looked at", path)
            )
        elif path.startswith(_HELD):
            found += words.overrides(path, text)
    if starts:
        for path, text in texts.items():
            if path.startswith(_HELD):
                found += shells.commands(path, text)
    found += scanners.findings(texts, said)
    return list(dict.fromkeys(found))
