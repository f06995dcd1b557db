"""Read a skill's SKILL.md in the format of agentskills.io, its function's signature, and the files next to them.

Scripts are parsed; nothing of them is imported or executed.

The checks are strict for functions and lenient for guides. A guide's file that is not text is data: the model never
reads it, so nothing in it refuses the guide.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_policies.gate.archive_members import find_zip_names
from hermes_exec_policies.gate.child_process import Unanswered, ask
from hermes_exec_policies.gate.grants import Needs, parse_needs
from hermes_exec_policies.gate.skill_names import find_name_problem, module_name
from hermes_exec_policies.gate.text_checks import decode_text, find_hidden, find_lookalike, locate_secrets
from hermes_exec_policies.gate.verdict import Finding, SkillRefused, advice, functional

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hermes_exec_policies.gate.tree import Tree


_MAX_TEXT = 256 << 10
_MAX_FRONT = 16 << 10
_MAX_FRONT_LINES = 200
_MAX_INDENT = 16
_MAX_BRACKETS = 128
_NESTED = re.compile(r"(?:[-?:][ \t]+){16}")
"""Nested lists on one line."""
_CPU_S = 4
_MARKUP = re.compile(r"</\s*\w|<\s*(skill|system|assistant|user|tool|script|iframe|img)\b|<!--|\]\]>", re.IGNORECASE)
_MENTIONED = re.compile(r"(?<![\w./-])(?:scripts|references|templates|assets)/[A-Za-z0-9_./-]*[A-Za-z0-9_]")
_CLAIMS = ("created-by", "created_by", "verified", "pinned", "trusted", "signed", "official")


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a skill's function, as declared in its source."""

    function: str
    schema: dict[str, Any]
    documented: bool
    """Whether it has a docstring."""
    typed: bool
    """Whether every argument and the result have a type."""
    json: bool
    """Whether JSON can represent every type."""
    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = field(default=())
    raises: frozenset[str] = frozenset()
    """The names of errors in the section ``Raises:`` of its docstring."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A skill's description of itself; facts that can be checked are never taken from it."""

    name: str
    """``generate-csv-report``"""
    module: str
    """``generate_csv_report``"""
    description: str
    version: str
    license: str
    metadata: Mapping[str, str]
    body: str
    entry: str
    """The path of the script with the skill's function."""
    signature: Signature
    needs: Needs

    def facts(self) -> dict[str, Any]:
        """Return the manifest as JSON data."""
        return {
            "name": self.name, "module": self.module, "description": self.description, "version": self.version,
            "license": self.license, "entry": self.entry, "function": self.signature.function,
            "schema": self.signature.schema, "needs": self.needs.facts(),
        }  # fmt: skip


async def read_manifest(tree: Tree, folder: str, taken: Collection[str] = ()) -> tuple[Manifest, list[Finding]]:
    """Read and validate a skill's SKILL.md; return the manifest, and findings that refuse nothing.

    ``folder`` is the name of the source's folder; ``taken`` are the names of other skills.

    Raises:
        SkillRefused: it is not a skill; the findings name every error.
    """
    found = [*check_layout(tree), *find_secrets(tree)]
    paths = {each.path for each in tree.files}
    if "SKILL.md" not in paths:
        raise SkillRefused(
            *found,
            functional(
                "manifest.missing", "there is no SKILL.md; add one that begins with ---, name: …, description: …, ---"
            ),
        )
    if found:
        raise SkillRefused(*found)
    front = await read_front_matter(tree.read("SKILL.md").decode(), folder)
    fields, body = front.fields, front.body
    name = str(fields["name"])
    metadata: dict[str, str] = fields.get("metadata") or {}
    found += _check_skill_name(name, taken)
    found += front.check_characters()
    found += check_description(str(fields["description"]))
    needs, wrong = parse_needs(metadata)
    found += wrong
    found += [
        functional(
            "manifest.unlisted",
            f"SKILL.md names {path}, which does not exist; add the file, or remove the name",
            "SKILL.md",
        )
        for path in find_absent(body, paths)
    ]
    if found:
        raise SkillRefused(*found)
    module = module_name(name)
    entry, signature = _entry(tree, paths, module)
    manifest = Manifest(
        name=name, module=module, description=str(fields["description"]).strip(),
        version=metadata.get("version", ""), license=str(fields.get("license") or ""), metadata=metadata, body=body,
        entry=entry, signature=signature, needs=needs,
    )  # fmt: skip
    return manifest, list_ignored(fields)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The first part of SKILL.md as the format's reference library reads it."""

    fields: dict[str, Any]
    body: str
    ignored: tuple[str, ...]
    """Fields that the format does not have."""
    long: Mapping[str, int]
    """Fields that are longer than the format allows, and their limits."""

    def check_characters(self) -> list[Finding]:
        """Return findings about the characters of the parsed fields, since YAML can write any as an escape."""
        found = [wrong for text in _texts(self.fields) for wrong in check_characters("SKILL.md", text)]
        return [replace(each, line=0) for each in found]


async def read_front_matter(text: str, folder: str, *, lenient: bool = False) -> FrontMatter:
    """Parse and validate the front matter of SKILL.md.

    Args:
        text: the whole file.
        folder: the name of its folder, which must be the skill's; not compared if empty.
        lenient: accept fields that the format does not have, and values of any YAML style.

    Raises:
        SkillRefused: it is malformed; the findings name every error.
    """
    text = text.replace("\r\n", "\n")
    _check_bounds(text)
    question = {"text": text, "folder": folder, "lenient": lenient}
    try:
        read = await ask("hermes_exec_policies.gate.frontmatter", question, cpu_s=_CPU_S)
    except Unanswered as error:
        why = f"its first part cannot be read: {error.what}"
        raise SkillRefused(functional("manifest.unreadable", why, "SKILL.md")) from error
    if read["errors"]:
        raise SkillRefused(*(functional("manifest.format", each, "SKILL.md", read["line"]) for each in read["errors"]))
    return FrontMatter(read["fields"], read["body"], tuple(read["ignored"]), read["long"])


def find_absent(body: str, paths: Collection[str]) -> list[str]:
    """Return the files that a text mentions and the skill does not have."""
    mentioned = sorted(set(_MENTIONED.findall(body)))
    return [path for path in mentioned if path not in paths and not any(each.startswith(path + "/") for each in paths)]


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of the front matter as parsed, since YAML can write any character as an escape."""
    if isinstance(value, dict):
        for pair in value.items():  # pyright: ignore[reportUnknownVariableType]  YAML
            yield from _texts(list(pair))  # pyright: ignore[reportUnknownArgumentType]  YAML
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]  YAML
            yield from _texts(each)
    else:
        yield str(value)


def _check_bounds(text: str) -> None:
    """Refuse front matter that would keep a YAML parser busy, or that two parsers would read differently."""
    lines = text.split("\n")
    if len(text) > _MAX_TEXT:
        raise SkillRefused(functional("manifest.size", f"it is longer than {_MAX_TEXT} characters", "SKILL.md"))
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    if lines[0].rstrip() != "---" or not end:
        wrong = "it does not begin with a part between lines of '---': begin with ---, name: …, description: …, ---"
        raise SkillRefused(functional("manifest.format", wrong, "SKILL.md"))
    front = lines[1:end]
    joined = "\n".join(front)
    if len(joined) > _MAX_FRONT or len(front) > _MAX_FRONT_LINES:
        raise SkillRefused(
            functional("manifest.size", f"its first part is longer than {_MAX_FRONT} characters", "SKILL.md")
        )
    indent = max((len(line) - len(line.lstrip(" ")) for line in front), default=0)
    if indent > _MAX_INDENT or joined.count("[") + joined.count("{") > _MAX_BRACKETS or _NESTED.search(joined):
        raise SkillRefused(functional("manifest.deep", "its first part is nested too deeply", "SKILL.md"))
    for number, line in enumerate(front, 2):
        if "---" in line or line.rstrip() == "...":
            wrong = "its first part holds '---' or '...' within, where some readers end it: write a single dash"
            raise SkillRefused(functional("manifest.format", wrong, "SKILL.md", number))


def _check_skill_name(name: str, taken: Collection[str]) -> list[Finding]:
    if wrong := find_name_problem(name):
        return [functional("manifest.name", wrong, "SKILL.md")]
    if name in taken:
        return [functional("manifest.taken", f"there is a skill {name} already; change that one instead", "SKILL.md")]
    return []


def check_description(description: str) -> list[Finding]:
    """Return a finding if a description has markup that could end the list in which it is shown."""
    if _MARKUP.search(description):
        return [
            functional("manifest.markup", "its description holds markup that could end where it is shown", "SKILL.md")
        ]
    return []


def _entry(tree: Tree, paths: set[str], module: str) -> tuple[str, Signature]:
    candidates = [path for path in ("scripts/main.py", f"scripts/{module}.py") if path in paths]
    if not candidates:
        raise SkillRefused(
            functional(
                "manifest.entry", f"there is no scripts/main.py and no scripts/{module}.py; add one with a function run"
            )
        )
    entry = candidates[0]
    try:
        parsed = ast.parse(tree.read(entry))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
        raise SkillRefused(
            functional("manifest.syntax", f"it is not Python: {type(error).__name__}", entry, line)
        ) from error
    signature = read_signature(parsed, ("run", module))
    if signature is None:
        raise SkillRefused(
            functional(
                "manifest.entry", f"it has no function run and no function {module}; define one at its top level", entry
            )
        )
    return entry, signature


_TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
    "None": {"type": "null"},
    "List": {"type": "array"},
    "Dict": {"type": "object"},
    "Sequence": {"type": "array"},
    "Mapping": {"type": "object"},
    "Any": {},
    "object": {},
}
_ERROR = re.compile(r"^\s*(?:[\w.]+\.)?(\w+):", re.MULTILINE)
_NOT_JSON = frozenset({"bytes", "bytearray", "memoryview", "set", "frozenset", "tuple", "Path", "complex", "Callable"})


def read_signature(tree: ast.Module, names: tuple[str, ...]) -> Signature | None:
    """Return the signature of the first of ``names`` that the module defines at its top level, or None."""
    defined = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }  # the last definition of a name counts, as in Python
    for name in names:
        if name in defined:
            return _read(defined[name])
    return None


def _read(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    taken = node.args
    arguments = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]
    defaulted = len(taken.defaults)
    plain = [*taken.posonlyargs, *taken.args]
    required = [each.arg for each in plain[: len(plain) - defaulted]]
    required += [each.arg for each, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if value is None]
    properties = {each.arg: _schema(each.annotation) for each in arguments}
    annotations = [each.annotation for each in arguments]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": taken.kwarg is not None,
    }
    return Signature(
        function=node.name,
        schema=schema,
        documented=bool(ast.get_docstring(node)),
        typed=all(each is not None for each in (*annotations, node.returns)),
        json=all(_is_json(each) for each in (*annotations, node.returns)),
        names=tuple(properties),
        required=tuple(required),
        optional=tuple(each for each in properties if each not in required),
        raises=frozenset(_ERROR.findall((ast.get_docstring(node) or "").partition("Raises:")[2])),
    )


def _schema(node: ast.expr | None) -> dict[str, Any]:
    """Return the JSON Schema of a type; an empty one for an unknown type."""
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):
            return _schema(_parse_type(text))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return dict(_TYPES.get(name, {}))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return {"anyOf": [_schema(left), _schema(right)]}
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name, inner)
        case _:
            return {}


def _generic(name: str, inner: ast.expr) -> dict[str, Any]:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    match name:
        case "list" | "List" | "Sequence" | "Iterable":
            return {"type": "array", "items": _schema(parts[0])}
        case "dict" | "Dict" | "Mapping" if len(parts) == 2:
            return {"type": "object", "additionalProperties": _schema(parts[1])}
        case "Optional":
            return {"anyOf": [_schema(parts[0]), {"type": "null"}]}
        case "Union":
            return {"anyOf": [_schema(part) for part in parts]}
        case "Literal" if all(isinstance(part, ast.Constant) for part in parts):
            return {"enum": [part.value for part in parts if isinstance(part, ast.Constant)]}
        case _:
            return dict(_TYPES.get(name, {}))


def _parse_type(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body if len(text) < 200 else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _is_json(node: ast.expr | None) -> bool:
    return node is None or not any(
        isinstance(each, ast.Name | ast.Attribute)
        and (each.id if isinstance(each, ast.Name) else each.attr) in _NOT_JSON
        for each in ast.walk(node)
    )


def list_ignored(fields: Mapping[str, Any]) -> list[Finding]:
    """Return advice about claims of a skill that have no effect."""
    found: list[Finding] = []
    if fields.get("allowed-tools"):
        found.append(
            advice("manifest.allowed-tools", "a skill does not permit itself tools; this is ignored", "SKILL.md")
        )
    metadata = fields.get("metadata")
    found += [
        advice("manifest.claim", f"{name} is not for a skill to say; it is ignored", "SKILL.md")
        for name in (cast("dict[str, object]", metadata) if isinstance(metadata, dict) else {})
        if name.lower() in _CLAIMS
    ]
    return found


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
