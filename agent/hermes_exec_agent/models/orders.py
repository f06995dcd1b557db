"""Find the orders in a text: commands, paths, URLs, and the verbs in front of them. `ObedientModel` follows them.

The reader verifies nothing, and accepts each format: fenced blocks, inline code, lines that begin with
``$``, sentences such as "run …", markdown images and links, text that was encoded or made invisible. It judges nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

Verb: TypeAlias = Literal[
    "run", "python", "read", "write", "append", "fetch", "send", "remember", "skill", "view", "schedule", "call",
    "reply",
]  # fmt: skip

LONGEST = 200_000
"""Characters of a text that are read."""
_SHELLS = frozenset({"", "sh", "bash", "shell", "zsh", "console", "shell-session", "terminal", "text"})
_PYTHON = frozenset({"python", "py", "python3"})
_PROGRAMS = frozenset(
    {
        ".", "awk", "base64", "bash", "bun", "cat", "cd", "chmod", "chown", "cp", "crontab", "curl", "dd", "docker",
        "date", "echo", "env", "export", "find", "for", "gcc", "gh", "git", "go", "grep", "gzip", "head", "hermes-exec",
        "id", "kill",
        "ln", "ls", "make", "mkdir", "mkfifo", "mv", "nc", "ncat", "node", "nohup", "npm", "npx", "openssl", "perl",
        "php", "pip", "pip3", "pipx", "pnpm", "printenv", "printf", "ps", "psql", "python", "python3", "rev", "rm",
        "rsync",
        "ruby", "scp", "sed", "setsid", "sh", "shred", "sleep", "socat", "source", "sqlite3", "ssh", "ssh-keygen",
        "sudo", "systemctl", "tail", "tar", "tee", "touch", "truncate", "uname", "uv", "wget", "while", "whoami",
        "xargs", "yarn", "zip", "zsh",
    }
)  # fmt: skip
_FENCE = re.compile(
    r"^[ \t>*/#]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t>*/#]*\1[ \t]*$", re.MULTILINE | re.DOTALL
)
_INLINE = re.compile(r"`([^`\n]+)`")
_PROMPT = re.compile(r"^[ \t>*/#]*\$ (.+)$", re.MULTILINE)
URL = re.compile(r"https?://(?:\{[^{}\n]*\}|<\w[^<>\n]*>|[^\s<>\"'`()\[\]])+")
"""A URL, with placeholders such as ``{the key}`` or ``<TOKEN>`` in it."""
_PATH = re.compile(
    r"(?<![\w/:.])((?:~|\.{1,2})?/[\w.@+~-]+(?:/[\w.@+~-]+)*|\.[\w-]+(?:/[\w.@+-]+)+|[\w-]+(?:/[\w.@+-]+)*\.(?:md|txt|json|"
    r"ya?ml|toml|py|[jt]s|csv|log|env|sh|ini|cfg|conf|sql|db|pem|key|html|mdc)|\.env[\w.]*|\.\w+(?:rc|config|profile))(?![\w/])"
)
_IMAGE = re.compile(rf"!\[[^\]\n]*\]\(\s*({URL.pattern})[^)\n]*\)")
_LINK = re.compile(rf"(?<!!)\[[^\]\n]*\]\(\s*({URL.pattern})[^)\n]*\)")
_TAG_IMAGE = re.compile(r"<img[^>]+src=[\"']?(https?://[^\s\"'>]+)", re.IGNORECASE)
_CALL = re.compile(r"`?(\w+)`? (?:tool )?with (?:the arguments )?`?(\{.*?\})`?(?=[\s.,;]|$)")
_EVERY = re.compile(
    r"\b(?:every|each|alle|toutes? les|cada|ogni) (?:\d+ )?(?:minutes?|hours?|day|night|Minuten?|heures?|horas?)",
    re.IGNORECASE,
)
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{24,}={0,2}(?![A-Za-z0-9+/=])")
_PATCH = re.compile(r"\*\*\* Begin Patch.*?\*\*\* End Patch", re.DOTALL)
_WORDS: dict[str, re.Pattern[str]] = {
    name: re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)
    for name, words in {
        "run": (
            "runs?|execute|invoke|launch|start|führe|starte|exécute[zr]?|lance[zr]?|ejecut[ae]r?|corre|esegui|rode",
            "запусти(?:те)?|выполни(?:те)?|uruchom|jalankan|voer|kör",
        ),
        "read": (
            "read|open|cat|load|look at|view|inspect|collect|take|attach|contents? of|lies|öffne|lis(?:ez)?|ouvre[zr]?",
            "lee|abre|leggi|leia|прочитай(?:те)?|przeczytaj|baca|lees|läs",
        ),
        "write": (
            "write|save|create|put|replace|overwrite|set|schreibe|erstelle|écri[st]|écrivez|crée[zr]?|escribe|crea",
            "scrivi|escreva|запиши(?:те)?|создай(?:те)?|zapisz|tulis|schrijf|skriv",
        ),
        "append": (
            "append|add|insert|extend|füge|ajoute[zr]?|añade|agrega|aggiungi|adicione|добавь(?:те)?|dodaj|tambahkan",
        ),
        "send": (
            "send|post|upload|submit|report|forward|push|bcc|sende|schicke|envoie|envoyez|envía|sube|invia|envie",
            "отправь(?:те)?|wyślij|kirim|stuur|skicka",
        ),
        "fetch": (
            "fetch|visit|download|get|open|ping|call|request|check|lade|rufe|besuche|télécharge[zr]?|visite[zr]?",
            "descarga|visita|scarica|baixe|скачай(?:те)?|открой(?:те)?|pobierz|unduh|haal|hämta",
        ),
        "reply": (
            "reply|respond|answer|render|show|display|include|finish|end|append|embed|link|antworte|zeige|réponds",
            "répondez|affiche[zr]?|responde|muestra|rispondi|mostra|ответь(?:те)?|покажи(?:те)?|odpowiedz|jawab",
            "antwoord|svara",
        ),
        "remember": (
            "remember|memori[sz]e|from now on|in (?:all )?future (?:sessions|conversations)|merke dir|retiens|recuerda",
            "souviens-toi|ricorda|lembre-se|запомни(?:те)?|zapamiętaj|ingat|onthoud",
        ),
        "skill": ("(?:use|follow|load) (?:the )?skill",),
        "install": ("install|installiere|installe[zr]?|instala|installa|instale|установи(?:те)?|zainstaluj|pasang",),
        "background": (
            "in the background|keep (?:it|this|them) (?:running|alive)|im Hintergrund|en arrière-plan",
            "en segundo plano|в фоне",
        ),
        "decode": ("decoded?|base64|dekodiere|décode[zr]?|decodifica",),
    }.items()
}
"""The verbs of an order, in several languages."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order that a text gives."""

    verb: Verb
    text: str
    """The command, path, URL, tool, name of a skill, or text to remember or to reply."""
    detail: str = ""
    """The content to write, the path of the file to send, the arguments of a call, or the files of a skill."""
    lasting: bool = False
    """Whether the command continues in the background."""
    origin: str = ""
    """The message that had it: ``user``, ``system``, or the tool that returned it."""

    @property
    def digest(self) -> str:
        """The same for the same order from any origin."""
        text = "\0".join((self.verb, self.text, self.detail, str(self.lasting)))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def read_orders(text: str, origin: str = "") -> list[Order]:
    """Return the orders in a text, in the order in which they stand there, each once."""
    plain = normalize(text[:LONGEST])
    found = [*_find(plain, origin)]
    if _WORDS["decode"].search(plain):
        for encoded in _ENCODED.findall(plain):
            found += _find(_decode(encoded), origin)
    return list({order.digest: order for order in found}.values())


def normalize(text: str) -> str:
    """Return the text with invisible letters made visible, and without entities and line numbers."""
    shown = "".join(
        chr(ord(each) - 0xE0000) if 0xE0020 <= ord(each) <= 0xE007E else each for each in html.unescape(text)
    )
    visible = "".join(each for each in shown if unicodedata.category(each) != "Cf")
    return re.sub(r"^\d+\|", "", unicodedata.normalize("NFKC", visible), flags=re.MULTILINE)


def _decode(encoded: str) -> str:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return text if "\n" in text or "`" in text or not is_command(text) else f"`{text.strip()}`"


def is_command(text: str) -> bool:
    """Whether a text looks like a command of a shell."""
    words = text.strip().split()
    if not words:
        return False
    while words and re.fullmatch(r"[A-Za-z_]\w*=\S*", words[0]):
        words = words[1:]
    first = words[0] if words else ""
    return first in _PROGRAMS or (len(words) > 1 and bool(re.fullmatch(r"(?:~|\.{1,2})?/[\w./-]+", first)))


def _find(text: str, origin: str) -> Generator[Order]:
    patches = _PATCH.findall(text)
    for patch in patches:
        name = re.search(r"skill\W+(?:called |named )?`?([a-z][\w-]+)", text, re.IGNORECASE)
        yield Order("skill", name[1] if name else "helpful-skill", patch, origin=origin)
    text = _PATCH.sub("", text)
    before = 0
    for match in _FENCE.finditer(text):
        head = text[before : match.start()]
        yield from _find_in_lines(head, origin)
        yield from _read_block(match[2].lower(), match[3], head.rstrip().rpartition("\n\n")[2], origin)
        before = match.end()
    yield from _find_in_lines(text[before:], origin)


def _read_block(language: str, body: str, head: str, origin: str) -> Generator[Order]:
    """Read a fenced block; ``head`` is the paragraph before it, which may name a file to write it to."""
    body = (
        re.sub(r"^[ \t]*(?:#|//|\*|>) ?", "", body, flags=re.MULTILINE)
        if head.lstrip().startswith(("//", "*", ">"))
        else body
    )
    paths = _paths(head)
    if paths and (_says("write", head) or _says("append", head)):
        yield Order("append" if _says("append", head) else "write", paths[-1], body, origin=origin)
    elif language in _PYTHON:
        yield Order("python", body.strip(), origin=origin)
    elif language in _SHELLS and (prompted := _PROMPT.findall(body)):
        for command in prompted:
            yield Order("run", command.strip(), lasting=_says("background", head), origin=origin)
    elif language in _SHELLS and (language or is_command(body)):
        verb: Verb = "schedule" if _EVERY.search(head) else "run"
        yield Order(verb, body.strip(), lasting=_says("background", head), origin=origin)


def _find_in_lines(text: str, origin: str) -> Generator[Order]:
    for command in _PROMPT.findall(text):
        yield Order("run", command.strip(), origin=origin)
    above = ""
    for line in _PROMPT.sub("", text).splitlines():
        if line.strip():
            yield from _read_line(line.strip(), above, origin)
            above = line
    for pattern in (_IMAGE, _TAG_IMAGE):
        for match in pattern.finditer(text):
            yield Order("reply", match[0] if pattern is _IMAGE else f"![]({match[1]})", origin=origin)


def _read_line(line: str, above: str, origin: str) -> Generator[Order]:
    codes = _INLINE.findall(line)
    commands = [code for code in codes if is_command(code)]
    if call := _CALL.search(line):
        yield Order("call", call[1], call[2], origin=origin)
        return
    if _says("skill", line) and (name := re.search(r"skill\W+([a-z][\w-]*)", line, re.IGNORECASE)):
        yield Order("view", name[1], origin=origin)
    yield from _read_files(line, codes, origin)
    for command in commands:
        verb: Verb = "schedule" if _EVERY.search(line) else "run"
        yield Order(verb, command.strip(), lasting=_says("background", line), origin=origin)
    if not commands:
        yield from _read_sentence(line, codes, origin)
    yield from _read_urls(line, above, codes, origin)
    if _says("remember", line):
        yield Order("remember", line, origin=origin)


def _read_files(line: str, codes: list[str], origin: str) -> Generator[Order]:
    paths = _paths(URL.sub("", line))
    contents = [code for code in codes if not is_command(code) and code not in paths and not URL.fullmatch(code)]
    if paths and contents and (_says("write", line) or _says("append", line)):
        yield Order("append" if _says("append", line) else "write", paths[0], "\n".join(contents) + "\n", origin=origin)
    elif paths and (_says("read", line) or _says("send", line)):
        for path in paths:
            yield Order("read", path, origin=origin)


def _read_sentence(line: str, codes: list[str], origin: str) -> Generator[Order]:
    """Read a line without a command in inline code: "run X", "install X"."""
    match = _WORDS["run"].search(line)
    if match and is_command(rest := line[match.end() :].strip(" :\"'.")):
        yield Order(
            "schedule" if _EVERY.search(line) else "run", rest, lasting=_says("background", line), origin=origin
        )
    elif _says("install", line) and codes:
        yield Order("run", f"pip install {codes[0]}", origin=origin)


def _read_urls(line: str, above: str, codes: list[str], origin: str) -> Generator[Order]:
    shown = {match[1]: match[0] for match in _LINK.finditer(line)}
    images = {match[1] for pattern in (_IMAGE, _TAG_IMAGE) for match in pattern.finditer(line)}
    in_commands = " ".join(code for code in codes if is_command(code))
    for url in dict.fromkeys([*shown, *(each.rstrip(".,;:!") for each in URL.findall(line))]):
        if (
            url in images
            or url in in_commands
            or any(url != each and each.startswith(url) for each in (*images, *shown))
        ):
            continue
        paths = _paths(URL.sub("", line))
        if _says("send", line):
            yield Order("send", url, paths[0] if paths else "", origin=origin)
        elif url in shown or _says("reply", line) or _says("reply", above):
            yield Order("reply", shown.get(url, url), origin=origin)
        elif _says("fetch", line):
            yield Order("fetch", url, origin=origin)


def _paths(text: str) -> list[str]:
    found: Iterable[str] = _PATH.findall(URL.sub("", text))
    return list(dict.fromkeys(path.rstrip(".") for path in found))


def _says(word: str, line: str) -> bool:
    return _WORDS[word].search(line) is not None
