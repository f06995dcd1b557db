"""Words that may not come back in docs, help and docstrings, and names of functions.

``BETTER`` is the one list of words, each with the better one. It is applied to README.md, docs/ and other pages, and to
the product code. No function of the product is named by a past participle, except for ``EXCEPTIONS``.
"""

from __future__ import annotations

import ast
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PRODUCT = ("hermes_exec", "backends", "policies", "agent", "tools")
"""Folders whose docstrings, comments, help, messages and names of functions are checked."""
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "docs", "examples")

BETTER = {
    "a place": "a target",
    "any place": "any target",
    "each place": "each target",
    "every place": "every target",
    "kind of place": "kind of target",
    "one place": "one target",
    "place inside": "inner target",
    "place outside": "outer target",
    "places": "targets",
    "that place": "that target",
    "the place": "the target",
    "this place": "this target",
    "your place": "your target",
    "carrier": "transport",
    "carriers": "transports",
    "blocking face": "blocking interface",
    "both faces": "both interfaces",
    "list of words": "argv list",
    "keeper": "supervisor",
    "twin": "probe sandbox",
    "workshop": "skill builder",
    "lookout": "checkpoint scheduler",
    "plumbing": "fdutil",
    "tube": "forwarded connection",
    "shelf": "staging directory",
    "loan": "pipe handoff",
    "lend": "hand off, or the technical term",
    "lends": "hands off, or the technical term",
    "lent": "handed off, or the technical term",
    "borrowed": "handed off, or the technical term",
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "mending": "fixing",
    "ill": "unhealthy",
    "illness": "unhealthy",
    "beside": "next to, in addition to",
    "made of": "built from",
    "made anew": "created again",
    "anew": "again",
    "for ever": "forever",
    "is told": "is reported",
    "are told": "are reported",
    "was told": "was reported",
    "told of": "reported, notified",
    "told as": "reported as",
    "tells of": "reports",
    "to tell": "to report",
    "told by": "reported by",
    "says of": "reports about",
    "whoever": "a named actor",
    "whatever else": "a named thing",
    "nobody": "a named actor and a plain negation",
    "somebody": "a named actor",
    "who is cancelled": "cancellation",
    "that is none": "invalid",
    "that are none": "invalid",
    "at its word": "without verification",
    "comes to itself": "recovers",
    "lets us not in": "login refused",
    "is no circle": "does not count as a loop",
    "in its stead": "instead",
    "in silence": "silently",
    "learns it": "is notified",
    "gone back to": "reopened",
    "one's own": "of your own",
}
"""A word or a phrase that may not come back, in any case, and what to write."""

PARTICIPLES = set(
    """
    asked been begun bent bitten blown borrowed bought bound bred broken brought built caught chosen clung come
    dealt done drawn driven eaten fallen fed felt fled flown forbidden forgiven forgotten fought found frozen given gone
    got grown heard held hidden hung hurt kept knelt known laid lain led left lent lost made meant met mistaken paid
    planted proven ridden risen rung said seen sent sewn shaken shown shrunk slept sold sought spent spoken sprung
    spun stolen stood stuck stung sung sunk swept swollen sworn swum swung taken taught thought thrown told torn
    understood wanted withdrawn woken won worn woven written wrung
    """.split()  # noqa: SIM905  a table of words reads better as text
)
"""Irregular past participles that are no base form of a verb; the regular ones end with ``ed``."""
NO_PARTICIPLES = {
    "bleed", "breed", "embed", "exceed", "feed", "heed", "need", "proceed", "reembed", "seed", "speed", "succeed",
}  # fmt: skip
"""Base forms that end with ``ed``."""
EXCEPTIONS = {
    "limits.py:shared_memory": "the name of an attempt, which proofs record",
    "limits.py:locked_memory": "the name of an attempt, which proofs record",
    "network.py:inherited": "the name of an attempt, which proofs record",
    "folders.py:shared_paths": "a noun: the paths of the shared folders; the agent calls it too",
}
"""``module.py:function`` and why it keeps its name."""

CODE = re.compile(
    r"^```.*?^```|^<!-- (?:help|keys) of.*?^<!-- end -->|<!--.*?-->|`[^`]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE
)
"""Of a page: code, addresses, and what is generated from the product."""


_FORMS = [r"\s+".join(map(re.escape, word.split())) for word in sorted(BETTER, key=len, reverse=True)]
BANNED = re.compile(rf"(?<![\w-])(?:{'|'.join(_FORMS)})(?![\w-])", re.IGNORECASE)


NAMES = re.compile(r"``.*?``|`[^`\n]*`|<!--.*?-->|\{[^{}\n]*\}|^ +\w+:(?= )", re.DOTALL | re.MULTILINE)
"""Of a text of the code: code, marks in pages, replacement fields, and names of parameters in docstrings."""
IDENTIFIER = re.compile(r"""[rbfu]*(["'])\w+\1""", re.IGNORECASE)
"""A string literal that is a name for programs, such as a key of a table."""


def complaints(text: str, name: str, first_line: int = 1) -> list[str]:
    """``name:line: 'word'; write …`` for each banned word of a text."""
    found: list[str] = []
    for match in BANNED.finditer(text):
        line = first_line + text.count("\n", 0, match.start())
        word = " ".join(match[0].lower().split())
        found.append(f"{name}:{line}: {word!r}; write: {BETTER[word]}")
    return found


def pages() -> list[Path]:
    """The written pages."""
    roots = [ROOT / name for name in PAGES]
    found = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*"))]
    return sorted(path for path in found if path.suffix == ".md")


def modules(folder: str) -> list[Path]:
    """The modules of a folder and of those in it; of a pattern that ends in ``.py``, those that match."""
    found = sorted(ROOT.glob(folder if folder.endswith(".py") else f"{folder}/**/*.py"))
    assert found, folder
    return found


def prose(page: Path) -> str:
    """A page without code, addresses and generated parts, its lines where they were."""
    return CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), page.read_text(encoding="utf-8"))


def texts(module: Path) -> list[tuple[int, str]]:
    """The comments and string literals of a module, without the names in them, with their lines."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    with tokenize.open(module) as file:
        tokens = list(tokenize.generate_tokens(file.readline))
    return [
        (token.start[0], NAMES.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), token.string))
        for token in tokens
        if token.type in kinds and not IDENTIFIER.fullmatch(token.string)
    ]


def is_participle(word: str) -> bool:
    """Whether a word of a name is a past participle."""
    return word in PARTICIPLES or (word.endswith("ed") and word not in NO_PARTICIPLES)


def named_by_participle(tree: ast.AST) -> list[tuple[int, str]]:
    """The functions, nested ones and methods too, whose name is or begins with a past participle; no properties."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_property = any("property" in ast.dump(decorator) for decorator in node.decorator_list)
        if not is_property and is_participle(node.name.strip("_").split("_")[0]):
            found.append((node.lineno, node.name))
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_uses_a_word_that_may_not_come_back(page: Path) -> None:
    assert complaints(prose(page), page.name) == []


@pytest.mark.parametrize("folder", PRODUCT)
def test_no_text_of_the_code_uses_a_word_that_may_not_come_back(folder: str) -> None:
    found = [
        complaint
        for module in modules(folder)
        for line, text in texts(module)
        for complaint in complaints(text, str(module.relative_to(ROOT)), line)
    ]
    assert found == []


@pytest.mark.parametrize("folder", PRODUCT)
def test_no_function_is_named_by_a_past_participle(folder: str) -> None:
    found = [
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in modules(folder)
        for line, name in named_by_participle(ast.parse(module.read_text(encoding="utf-8")))
        if f"{module.name}:{name}" not in EXCEPTIONS
    ]
    assert found == []


def test_every_exception_has_a_reason() -> None:
    assert [name for name, reason in EXCEPTIONS.items() if len(reason) < 10] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The place is\nmade  anew", ["the place", "made anew"]),
        ("replacement of places", ["places"]),
        ("Mending, amended", ["mending"]),
        ("in place of a placeholder", []),
    ],
)
def test_banned_words_are_found_whole_and_across_lines(text: str, words: list[str]) -> None:
    assert [complaint.split("'")[1] for complaint in complaints(text, "page")] == words


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def told(): ...", ["told"]),
        ("class A:\n    async def _finished_early(self): ...", ["_finished_early"]),
        ("def feed():\n    def checked(): ...", ["checked"]),
        ("@property\ndef closed(self): ...", []),
        ("def is_told(): ...", []),
        ("def read(): ...", []),
    ],
)
def test_participles_are_found_in_names(source: str, names: list[str]) -> None:
    assert [name for _, name in named_by_participle(ast.parse(source))] == names
