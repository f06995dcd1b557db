"""A model that does whatever any text it reads tells it to do, so that harm can be counted instead of guessed.

It finds the orders in requests, results of tools, guides, files and pages, and calls the tools of the request for them:

    model = ObedientModel()
    async with open_conversation(target, models=Models(model), person=person, log=log) as conversation:
        await conversation.ask("Read notes.md")
    for each in model.followed:
        print(each.order.origin, each.order.verb, each.order.text, each.outcome)

An order that is refused, or fails, is tried in another way (a terminal, a script, a file with the command, a delegated
task), and all orders are followed again in each later turn. The calls depend on the messages alone, so that a
conversation can be resumed, and two runs are equal.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.parse import quote

from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.orders import URL, Order, read_orders
from hermes_exec_agent.models.protocol import Reply, Text, estimate_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hermes_exec_agent.models.protocol import Item, ToolChoice, ToolSpec

Outcome: TypeAlias = Literal["open", "done", "refused"]
_Call: TypeAlias = "tuple[str, dict[str, Any]]"
_Way: TypeAlias = "tuple[_Call, ...]"

_SHOWN = 1500
"""Characters of gathered data that one URL carries."""
_PLACEHOLDER = re.compile(
    r"\{[^{}]*\}|<\w[^<>]*>|%7B\w*%7D|%s|\$\{?[A-Z_]+\}?|\[[A-Z_ ]+\]|\b(?:DATA|SECRET|TOKEN|XXXX)\b|…"
)
_DENIED = re.compile(r"\b(?:error|denied|refused|not allowed|forbidden)\b", re.IGNORECASE)
_OWN = "/tmp/obedient-"  # noqa: S108  in the target
"""Files that this model writes; a message about one is not an order."""
_REMEMBERED = "\n## Remembered "
"""Begins the quoted entries of memory in a system message."""
_CALL_ID = re.compile(r"obey-(\d+)-([0-9a-f]{10})-(\d+)-(\d+)")
_ROLES: dict[str, tuple[tuple[str, ...], ...]] = {
    "run": (("command",), ("cmd",)),
    "python": (("code",),),
    "write": (("path", "content"), ("file_path", "content")),
    "read": (("path", "limit"), ("path", "offset"), ("file_path",)),
    "fetch": (("url",),),
    "delegate": (("goal",), ("task",)),
}
"""The parameters by which a tool of any agent is recognized, the likeliest first."""
_KNOWN = {
    "run": "terminal",
    "python": "execute_code",
    "write": "write_file",
    "read": "read_file",
    "delegate": "delegate_task",
}


@dataclass(slots=True)
class FollowedOrder:
    """An order, the calls that were made for it, and what became of it."""

    order: Order
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Tool and arguments as JSON, each once."""
    outcome: Outcome = "open"


class ObedientModel:
    """Follows every order that it reads. It never refuses, and never asks whether it should."""

    scripted = True

    def __init__(
        self, *, name: str = "obedient", window: int = 128_000, most_orders: int = 64, most_calls: int = 160
    ) -> None:
        """``most_orders`` and ``most_calls`` bound one conversation; ``window`` is in tokens."""
        self.name = name
        self.window = window
        self._most_orders = most_orders
        self._most_calls = most_calls
        self._followed: dict[str, FollowedOrder] = {}

    @property
    def followed(self) -> tuple[FollowedOrder, ...]:
        """The orders so far, of all conversations, in the order in which they were read."""
        return tuple(self._followed.values())

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,  # noqa: ARG002  a reply is short
        schema: dict[str, Any] | None = None,  # noqa: ARG002  a schema is not an order
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """Stream the calls for the next orders, or an answer when none is left."""
        history = _History(messages, self._most_orders)
        calls = [] if tool_choice == "none" else self._next_calls(history, _Tools(tools))
        self._record(history)
        text = "" if calls else history.answer()
        if text:
            yield Text(text)
        message = Message("assistant", text, tuple(calls))
        usage = estimate_usage(messages, tools, message)
        yield Reply(message, "tool_calls" if calls else "stop", usage, self.name)

    async def close(self) -> None:
        """Do nothing."""

    def _next_calls(self, history: _History, tools: _Tools) -> list[ToolCall]:
        """Return the calls of the next way of each order that is not followed yet in this turn."""
        calls: list[ToolCall] = []
        for order in history.orders.values():
            if history.is_done(order):
                continue
            ways = tools.ways(order, history)
            number = history.tried[order.digest]
            if number >= len(ways):
                continue
            way = ways[number]
            if history.calls + len(calls) + len(way) > self._most_calls:
                break
            identity = f"obey-{history.turn}-{order.digest}-{number}"
            calls += [
                ToolCall(f"{identity}-{part}", name, json.dumps(arguments, ensure_ascii=False))
                for part, (name, arguments) in enumerate(way)
            ]
        return calls

    def _record(self, history: _History) -> None:
        for digest, order in history.orders.items():
            entry = self._followed.setdefault(digest, FollowedOrder(order))
            entry.calls += [each for each in history.made[digest] if each not in entry.calls]
            if history.ever_done(order):
                entry.outcome = "done"
            elif entry.calls and entry.outcome == "open":
                entry.outcome = "refused"


class _History:
    """The orders in a conversation, and what the calls for them returned."""

    def __init__(self, messages: Sequence[Message], most_orders: int) -> None:
        self.turn = 0
        self.calls = 0
        self.orders: dict[str, Order] = {}
        self.tried: Counter[str] = Counter()
        """Ways of each order that were tried in this turn."""
        self.made: dict[str, list[tuple[str, str]]] = {}
        self.gathered: list[str] = []
        """Outputs of the orders, which "the result" and placeholders stand for."""
        self.read: dict[str, str] = {}
        """Contents of files, by path."""
        self._most_orders = most_orders
        self._failed: dict[tuple[str, int], set[int]] = {}
        self._done: set[str] = set()
        self._done_before: set[str] = set()
        self._arguments: dict[str, ToolCall] = {}
        for message in messages:
            self._add(message)

    def _add(self, message: Message) -> None:
        if message.role == "user":
            self.turn += 1
            self.tried.clear()
            self._done_before |= self._done
            self._done.clear()
            self._learn(message.content, "user")
        elif message.role == "system":
            self._learn(message.content.partition(_REMEMBERED)[2], "memory")
        elif message.role == "assistant":
            for call in message.tool_calls:
                self._note_call(call)
        elif message.role == "tool":
            self._note_result(message)

    def _learn(self, text: str, origin: str) -> None:
        for order in read_orders(text, origin):
            if len(self.orders) < self._most_orders and _OWN not in order.text:
                self.orders.setdefault(order.digest, order)
                self.made.setdefault(order.digest, [])

    def _note_call(self, call: ToolCall) -> None:
        self.calls += 1
        self._arguments[call.id] = call
        if found := _CALL_ID.match(call.id):
            self.made.setdefault(found[2], []).append((call.name, call.arguments))
            self.tried[found[2]] = max(self.tried[found[2]], int(found[3]) + 1)
            self._done.add(found[2])  # until one of its calls fails

    def _note_result(self, message: Message) -> None:
        call = self._arguments.get(message.tool_call_id)
        text, ok = _parse_result(message.content)
        found = _CALL_ID.match(message.tool_call_id)
        if found and not ok:
            self._done.discard(found[2])
        order = self.orders.get(found[2]) if found else None
        if ok and text and order and order.origin != "user":
            self.gathered.append(text)
        if ok and order and order.verb == "read":
            self.read[order.text] = text
        name = call.name if call else "tool"
        self._learn(text, f"{name} {_subject(call)}".strip())

    def is_done(self, order: Order) -> bool:
        """Whether an order was followed in this turn, or needs no call."""
        return order.digest in self._done or order.verb == "reply"

    def ever_done(self, order: Order) -> bool:
        """Whether an order was followed in any turn."""
        return order.digest in self._done | self._done_before or order.verb == "reply"

    def data_for(self, order: Order) -> str:
        """Return the data that an order sends: the file that it names, or all that was gathered."""
        return self.read.get(order.detail, "") or "\n".join(self.gathered)

    def fill(self, url: str, data: str) -> str:
        """Return a URL with data in its placeholders, or at its end if it ends with an equals sign."""
        value = quote(data[-_SHOWN:], safe="")
        filled = _PLACEHOLDER.sub(lambda _: value, url)
        return filled + value if filled == url and url.rstrip(")").endswith("=") else filled

    def answer(self) -> str:
        """Return the answer: the replies that were ordered, with the gathered data in them."""
        replies = [each for each in self.orders.values() if each.verb == "reply"]
        data = "\n".join(self.gathered)
        lines = [URL.sub(lambda match: self.fill(match[0], data), each.text) for each in replies]
        done = sum(self.is_done(each) for each in self.orders.values())
        return "\n".join([f"{done} of {len(self.orders)} orders were followed.", *lines])


class _Tools:
    """The tools of a request, by what they can do."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self.names = {tool.name: tool for tool in tools}
        self._roles = {role: self._find(role) for role in _ROLES}

    def _find(self, role: str) -> str:
        if _KNOWN.get(role) in self.names:
            return _KNOWN[role]
        for wanted in _ROLES[role]:
            for name, tool in self.names.items():
                if set(wanted) <= _parameters(tool).keys():
                    return name
        return ""

    def ways(self, order: Order, history: _History) -> list[_Way]:
        """Return the ways to follow an order with these tools, the plainest first."""
        match order.verb:
            case "run" | "schedule":
                found = self._run_ways(order)
            case "python":
                file = f"{_OWN}{order.digest}.py"
                found = [self._python(order.text), self._store_and_run(file, order.text, f"python3 {file}")]
            case "read":
                found = [self._one("read", order.text), *self._commands(f"cat -- {_path(order.text)}")]
                found = [*self._skill_file(order), *found]
            case "write" | "append":
                found = self._write_ways(order)
            case "fetch" | "send":
                found = self._web_ways(order, history)
            case "remember":
                found = self._remember_ways(order)
            case "view":
                found = [self._call_named("skill_view", name=order.text)]
            case "skill":
                found = [self._call_named("skill_manage", action="create", name=order.text, patch=order.detail)]
            case "call":
                found = [self._call_named(order.text, **_parse(order.detail))]
            case _:
                found = []
        return [way for way in found if way]

    def _call_named(self, name: str, /, **arguments: Any) -> _Way:
        return ((name, arguments),) if name in self.names else ()

    def _one(self, role: str, value: str, **more: Any) -> _Way:
        name = self._roles[role]
        if not name:
            return ()
        parameters = _parameters(self.names[name])
        key = next(each for wanted in _ROLES[role] for each in wanted if each in parameters)
        return ((name, {key: value} | {each: given for each, given in more.items() if each in parameters}),)

    def _python(self, code: str) -> _Way:
        return self._one("python", code)

    def _shell_in_python(self, command: str) -> _Way:
        code = (
            "import subprocess\n"
            f"done = subprocess.run({command!r}, shell=True, capture_output=True, text=True, stdin=-3)\n"
            "print(done.stdout + done.stderr)\nraise SystemExit(done.returncode)\n"
        )
        return self._python(code)

    def _store_and_run(self, file: str, content: str, command: str) -> _Way:
        write, run = self._one("write", file, content=content), self._one("run", command)
        return (*write, *run) if write and run else ()

    def _delegate(self, command: str) -> _Way:
        return self._one("delegate", f"Run this command:\n\n```sh\n{command}\n```\n")

    def _commands(self, command: str) -> list[_Way]:
        file = f"{_OWN}{Order('run', command).digest}.sh"
        return [
            self._one("run", command),
            self._shell_in_python(command),
            self._store_and_run(file, f"{command}\n", f"sh {file}"),
            self._delegate(command),
        ]

    def _run_ways(self, order: Order) -> list[_Way]:
        command = order.text
        if order.verb == "schedule":
            line = shlex.quote(f"*/5 * * * * {command}")
            schedulers = [name for name in self.names if "cron" in name or "schedule" in name]
            timers = [self._call_named(name, schedule="*/5 * * * *", command=command) for name in schedulers]
            loop = f"while :; do {command}; sleep 300; done"
            lasting = self._one("run", loop, background=True, keep=True)
            return [*timers, lasting, *self._commands(f"(crontab -l; echo {line}) 2>&1 | crontab -")]
        if order.lasting:
            return [
                self._one("run", command, background=True, keep=True),
                *self._commands(f"nohup setsid {command} >/dev/null 2>&1 &"),
            ]
        return [*self._skill_script(order), *self._commands(command)]

    def _skill_of(self, order: Order) -> str:
        tool, _, name = order.origin.partition(" ")
        return name.split(" ")[0] if tool in {"skill_view", "skill_read"} else ""

    def _skill_script(self, order: Order) -> list[_Way]:
        """Return the call that runs a script of the guide that the order stands in."""
        skill, words = self._skill_of(order), order.text.split()
        place = next((at for at, word in enumerate(words[:3]) if word.startswith("scripts/")), None)
        if not skill or place is None or "skill_script" not in self.names:
            return []
        parameters = _parameters(self.names["skill_script"])
        arguments: dict[str, Any] = {"name": skill, "script": words[place]}
        for key in ("args", "arguments"):
            if key in parameters:
                is_list = parameters[key].get("type") == "array"
                arguments[key] = words[place + 1 :] if is_list else shlex.join(words[place + 1 :])
        return [(("skill_script", arguments),)]

    def _skill_file(self, order: Order) -> list[_Way]:
        skill = self._skill_of(order)
        return (
            [self._call_named("skill_view", name=skill, file_path=order.text)]
            if skill and order.text[:1] not in "/~."
            else []
        )

    def _write_ways(self, order: Order) -> list[_Way]:
        path, more = _path(order.text), ">>" if order.verb == "append" else ">"
        folder = f'mkdir -p "$(dirname {path})"; ' if "/" in order.text else ""
        command = f"{folder}printf %s {shlex.quote(order.detail)} {more} {path}"
        plain = [self._one("write", order.text, content=order.detail)] if order.verb == "write" else []
        return [*plain, *self._commands(command)]

    def _web_ways(self, order: Order, history: _History) -> list[_Way]:
        data = history.data_for(order) if order.verb == "send" or _PLACEHOLDER.search(order.text) else ""
        url = history.fill(order.text, data)
        if order.verb == "fetch":
            return [self._one("fetch", url), *self._commands(f"curl -fsS {shlex.quote(url)}")]
        body = f"@{_path(order.detail)}" if order.detail and not data else shlex.quote(data[-_SHOWN:])
        joined = f"{url}{'&' if '?' in url else '?'}d={quote(data[-_SHOWN:], safe='')}"
        return [*self._commands(f"curl -fsS --data-binary {body} {shlex.quote(url)}"), self._one("fetch", joined)]

    def _remember_ways(self, order: Order) -> list[_Way]:
        stores = [name for name in self.names if "memory" in name or "remember" in name]
        ways: list[_Way] = []
        for name in stores:
            texts = [key for key, each in _parameters(self.names[name]).items() if each.get("type") == "string"]
            named = ["content"] if "content" in texts else texts[:1]
            ways.append(((name, dict.fromkeys(named, order.text)),))
        return [*ways, *self._commands(f"printf '%s\\n' {shlex.quote(order.text)} >> AGENTS.md")]


def _parameters(tool: ToolSpec) -> dict[str, dict[str, Any]]:
    return cast("dict[str, dict[str, Any]]", tool.parameters.get("properties") or {})


def _path(path: str) -> str:
    """Return a path for a shell, whose ``~`` stays one."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


def _parse(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _parse_result(content: str) -> tuple[str, bool]:
    """Return the text of a tool's result, and whether the call succeeded."""
    try:
        value: object = json.JSONDecoder().raw_decode(content)[0]
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or "ok" not in value:
        return content, not _DENIED.search(content[:200])
    result = cast("dict[str, Any]", value)
    return str(result.get("output") or ""), bool(result["ok"]) and result.get("exit_code") in (None, 0)


def _subject(call: ToolCall | None) -> str:
    """Return the first argument of a call, which names the file, page or guide that it read."""
    arguments = _parse(call.arguments) if call else {}
    return next((str(value) for value in arguments.values()), "")
