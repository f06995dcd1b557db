"""The files of a skill: which may be there, characters that mislead a reader, and secrets.

The checks are strict for functions and lenient for guides. A guide's file that is not text is data: the model never
reads it, so nothing in it refuses the guide.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from hermes_exec_policies.gate.archive_members import find_zip_names
from hermes_exec_policies.gate.text_checks import decode_text, find_hidden, find_lookalike, locate_secrets
from hermes_exec_policies.gate.tree import Tree
from hermes_exec_policies.gate.verdict import Finding, advice, functional

FOLDERS = frozenset({"assets", "data", "examples", "references", "scripts", "templates", "tests"})
_TOP = re.compile(
    r"SKILL\.md|README([._-][A-Za-z]{2,3}([_-][A-Za-z]{2,4})?)?\.md|CHANGELOG\.md|LICENSE(\.md|\.txt)?|NOTICE(\.txt)?|requirements\.txt"
)
_STARTS = frozenset({"sitecustomize.py", "usercustomize.py", "conftest.py"})
"""Files that affect an interpreter or a test run by their presence."""
_SETTINGS = frozenset({"pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg"})
_LEFT = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Files that Python and its tools leave where they ran."""
_HOOKS = re.compile(rb"pytest_|hookimpl|_pytest|pluggy|exec|eval|import_|getattr|setattr|patch")
"""A conftest.py with one of these contains more than fixtures."""
_FIXTURES = "its tests are run without conftest.py: put its fixtures into the modules of tests that use them"
_COMPILED = (".pyc", ".pyo", ".pyd", ".so", ".dylib", ".dll", ".exe", ".pth", ".egg", ".whl", ".jar", ".wasm", ".node")
_PICTURES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".webp",
    ".ico",
    ".pdf",
    ".ttf",
    ".woff2",
    ".xlsx",
    ".docx",
    ".gz",
    ".zip",
)
_BINARY_STARTS = (b"\x7fELF", b"MZ", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa", b"\xcf\xfa\xed\xfe", b"\0asm")
_MOST_LINE = 20_000
_AGENT_FILES = frozenset({"agents.md", "claude.md", "gemini.md", "cursor.md"})
_MAX_FILES, _MAX_FILE, _MAX_ALL, _MAX_DEPTH = 256, 2 << 20, 8 << 20, 8
"""Limits of a function, all of whose files are judged."""


def check_function_files(files: dict[str, Any]) -> list[Finding]:
    """Return findings about the files of a skill with a function."""
    tree = Tree.from_facts(files)
    return [*check_layout(tree), *find_secrets(tree)]


def check_guide_files(files: dict[str, Any]) -> tuple[list[Finding], list[Finding]]:
    """Return findings about the files of a skill that is read, and about secrets in them."""
    tree = Tree.from_facts(files)
    return check_guide_layout(tree), find_secrets(tree)


def check_guide_layout(tree: Tree) -> list[Finding]:
    """Return findings about the files of a skill that is read."""
    found: list[Finding] = []
    for each in tree.files:
        found += _advise_on_name(each.path)
        text = decode_text(tree.read(each.path))
        if text is not None:
            found += check_characters(each.path, text)
        elif each.path == "SKILL.md":
            found.append(
                functional(
                    "manifest.not-text", "it is not UTF-8 text, or holds a null byte: save it as UTF-8", each.path
                )
            )
        elif each.path.lower().endswith((".md", ".txt", ".rst")):
            found.append(advice("manifest.not-text", "it is not UTF-8 text, so the model cannot read it", each.path))
    return found


def check_layout(tree: Tree) -> list[Finding]:
    """Return findings about the files of a skill with a function."""
    found = _check_limits(tree)
    for each in tree.files:
        if (
            each.path.startswith("tests/")
            and each.path.endswith("/conftest.py")
            and not _HOOKS.search(tree.read(each.path))
        ):
            found.append(functional("manifest.start-up", _FIXTURES, each.path))
            continue
        found += _check_file_name(each.path)
        found += _check_bytes(each.path, tree.read(each.path))
    return found


def _check_limits(tree: Tree) -> list[Finding]:
    if len(tree.files) > _MAX_FILES:
        return [functional("manifest.files", f"there are more than {_MAX_FILES} files; leave some out")]
    found = [
        functional("manifest.size", f"the file has more than {_MAX_FILE} bytes; leave it out or split it", each.path)
        for each in tree.files
        if each.size > _MAX_FILE
    ]
    if sum(each.size for each in tree.files) > _MAX_ALL:
        found.append(functional("manifest.size", f"the files have more than {_MAX_ALL} bytes together; leave some out"))
    found += [
        functional("manifest.path", f"it is deeper than {_MAX_DEPTH} folders; move it up", each.path)
        for each in tree.files
        if each.path.count("/") >= _MAX_DEPTH
    ]
    return found


def _advise_on_name(path: str) -> list[Finding]:
    name = path.rpartition("/")[2].lower()
    if name in _AGENT_FILES:
        return [
            advice("manifest.agent-file", "agents take a file of that name for instructions; here it is data", path)
        ]
    if name == "skill.md" and path != "SKILL.md":
        return [advice("manifest.nested", "this is data here, and no skill of its own", path)]
    if name.endswith(_COMPILED):
        return [advice("manifest.compiled", "a person cannot read this compiled file", path)]
    return []


def _check_file_name(path: str) -> list[Finding]:
    problem = _find_file_name_problem(path)
    return [functional(*problem, path)] if problem else []


def _find_file_name_problem(path: str) -> tuple[str, str] | None:
    """Return the rule that a path breaks, and the advice; None if it breaks none."""
    parts = path.split("/")
    name = parts[-1]
    lower = name.lower()
    if not path.isascii():
        return "manifest.file-name", "name it in plain ASCII letters, as any system can"
    if _LEFT & {*parts}:
        return "manifest.left", "this was left by a run of its tests: remove that folder"
    if lower in _SETTINGS:
        return "manifest.unlisted", "its tests are run without settings of pytest: leave it out"
    if lower in {".gitignore", ".gitkeep", ".gitattributes", ".editorconfig", ".ds_store"}:
        return "manifest.hidden-file", "a skill has no hidden files: leave it out"
    if any(part.startswith(".") for part in parts):
        return "manifest.hidden-file", "a skill has no hidden files"
    if lower in _STARTS:
        return "manifest.start-up", "this file would change how its own tests are run"
    if lower.endswith(_COMPILED):
        return "manifest.compiled", "compiled code cannot be looked at"
    if lower in _AGENT_FILES:
        return "manifest.agent-file", "agents take this file for instructions of a person's"
    if lower == "skill.md" and path != "SKILL.md":
        return "manifest.nested", "a second SKILL.md would be a skill that was not checked"
    if any(part.lower().endswith((".dist-info", ".egg-info")) for part in parts):
        return "manifest.start-up", "this would make it an installed package, whose plugins are loaded"
    if len(parts) == 1 and not _TOP.fullmatch(name):
        return "manifest.unlisted", f"next to SKILL.md belong the folders {', '.join(sorted(FOLDERS))}"
    if len(parts) > 1 and parts[0] not in FOLDERS:
        return "manifest.unlisted", f"{parts[0]} is not a folder of a skill: {', '.join(sorted(FOLDERS))}"
    if lower.endswith(".py") and name.removesuffix(".py") in sys.stdlib_module_names:
        return "manifest.shadows", "a module of that name would hide one of Python's own"
    if parts[0] in {"scripts", "tests"} and len(parts) == 3 and parts[1] in sys.stdlib_module_names:
        return "manifest.shadows", "a package of that name would hide one of Python's own"
    return None


def _check_bytes(path: str, data: bytes) -> list[Finding]:
    if data.startswith(_BINARY_STARTS):
        return [functional("manifest.compiled", "compiled code cannot be looked at; leave it out", path)]
    if path.split("/", maxsplit=1)[0] in {
        "assets",
        "data",
        "references",
        "tests",
        "templates",
        "examples",
    } and path.lower().endswith(_PICTURES):
        return _check_packed(path, data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return [functional("manifest.not-text", "it is not UTF-8 text, so it could be read in two ways", path)]
    plain = text.replace("\r\n", "\n")
    if found := check_characters(path, plain):
        return found
    if path.startswith("scripts/") and any(len(line) > _MOST_LINE for line in plain.split("\n")):
        return [functional("manifest.long-line", f"a line is longer than {_MOST_LINE} characters; break it", path)]
    return []


def check_characters(path: str, text: str) -> list[Finding]:
    """Return findings about characters in a text that are invisible, or look like others."""
    text = re.sub("\r+\n", "\n", text)  # two conversions of line ends leave \r\r\n, which hides nothing
    if (index := text.find("\r")) >= 0:
        wrong = (
            "a carriage return alone ends a line for some readers only, and hides text on others: end lines with \\n"
        )
        return [functional("manifest.hidden", wrong, path, _line(text, index))]
    if hidden := find_hidden(text):
        wrong = f"it holds a character that is not seen, {hidden.name}: a person and a model would read different texts"
        return [functional("manifest.hidden", f"{wrong}; delete it", path, _line(text, hidden.index))]
    if word := find_lookalike(text):
        wrong = f"a word mixes alphabets that look alike, {word!a}: write it in one alphabet"
        return [functional("manifest.look-alike", wrong, path, _line(text, text.index(word)))]
    return []


def _line(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


def _check_packed(path: str, data: bytes) -> list[Finding]:
    """Return a finding if there is code in an archive, also one appended to an image: Python can import from it."""
    if not any(
        name.lower().endswith((".py", ".sh", *_COMPILED)) or name.startswith("/") or ".." in name.split("/")
        for name in find_zip_names(data)
    ):
        return []
    return [functional("manifest.compiled", "code in an archive cannot be looked at; unpack it into the skill", path)]


def find_secrets(tree: Tree) -> list[Finding]:
    """Return a finding for each file with a secret; none quotes it."""
    found: list[Finding] = []
    for each in tree.files:
        text = decode_text(tree.read(each.path))
        if text is None:
            continue
        for kind, index in locate_secrets(text):
            wrong = f"it holds a secret, which everyone who gets the skill could use: {kind}"
            remedy = "revoke it, and write a placeholder or read it from the environment"
            line = text.count("\n", 0, index) + 1
            found.append(functional("manifest.secret", f"{wrong}; {remedy}", each.path, line))
            break
    return found
