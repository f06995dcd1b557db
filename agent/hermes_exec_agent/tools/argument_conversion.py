"""Convert the arguments of calls: each is taken out once, and those of our own tools may be spelled as other agents do.

Hermes Agent has tools of the same names as ours with other arguments, and models mix the arguments of several programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

MS = 1000
_PATCH = ("*** Begin Patch", "*** End Patch")


class NoEquivalent(Exception):
    """A call means something that none of our tools does; the text names the tool to use instead."""


class ArgumentConverter:
    """Arguments that are taken out one by one, so that none is lost silently. One that is null counts as left out."""

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        """``tool`` is its name as the model wrote it."""
        self.tool = tool
        self.notes: list[str] = []
        self._left = {key: value for key, value in arguments.items() if value is not None}

    def take(self, key: str, default: Any = None) -> Any:
        """Take one argument out."""
        return self._left.pop(key, default)

    def rest(self) -> dict[str, Any]:
        """Take all that is left."""
        rest, self._left = self._left, {}
        return rest

    def rename(self, **pairs: str) -> dict[str, Any]:
        """Take arguments out under our names; ``pairs`` maps each of these to theirs.

        Raises:
            NoEquivalent: one is given under both names, with two values.
        """
        found: dict[str, Any] = {}
        for ours, theirs in pairs.items():
            if theirs not in self._left:
                continue
            value = self._left.pop(theirs)
            if self._left.setdefault(ours, value) != value:
                raise NoEquivalent(f"{ours} and {theirs} mean the same and differ; write {ours} alone")
            found[ours] = self._left.pop(ours)
        return found

    def drop(self, *keys: str) -> None:
        """Take out what describes a call and has no effect on it."""
        for key in keys:
            self._left.pop(key, None)

    def allow(self, key: str, *values: Any, instead: str) -> None:
        """Take an argument out that means nothing here if it is one of ``values``.

        Raises:
            NoEquivalent: it is another one; ``instead`` says what to write.
        """
        if key in self._left and (value := self._left.pop(key)) not in values:
            raise NoEquivalent(f"{key}={value!r} has no equal here; {instead}")

    def seconds(self, theirs: str) -> dict[str, Any]:
        """Take a time limit in milliseconds out, as our ``timeout`` in whole seconds.

        Raises:
            NoEquivalent: it is not a whole number of seconds. Such a number is likely meant in seconds.
        """
        if theirs not in self._left:
            return {}
        value = self._left.pop(theirs)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0 or value % MS:
            raise NoEquivalent(f"{theirs} is in milliseconds, and {value!r} is not a whole number of seconds; "
                          "timeout of our tools is in whole seconds")  # fmt: skip
        self.notes.append(f"{theirs}={value:g} is in milliseconds, timeout in seconds")
        return {"timeout": int(value) // MS}

    def end(self) -> None:
        """Check that every argument was taken.

        Raises:
            NoEquivalent: some have no equal.
        """
        if self._left:
            raise NoEquivalent(f"{', '.join(self._left)}: no equal here; leave it out")


def read_bare_patch(name: str, text: str) -> dict[str, Any] | None:
    """The arguments of a call whose text is a patch and no JSON, as ``apply_patch`` is specified."""
    bare = text.strip()
    if name in ("apply_patch", "patch") and bare.startswith(_PATCH[0]) and bare.endswith(_PATCH[1]):
        return {"input": bare}
    return None


def adapt(name: str, arguments: dict[str, Any], parameters: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments of a call of our tool ``name`` in the form that it takes, and notes for the model.

    ``parameters`` is its schema.

    Raises:
        NoEquivalent: they mean something that it cannot do.
    """
    given = ArgumentConverter(name, arguments)
    found = OWN[name](given) if name in OWN else {}
    properties: Mapping[str, Any] = parameters.get("properties", {})
    found = {**given.rest(), **found}
    for key, value in found.items():
        schema = properties.get(key)  # a schema may also be true or false
        kind = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
        if (name, key) in _JSON_TEXT and isinstance(value, dict):
            found[key] = json.dumps(value, ensure_ascii=False)
        elif kind in ("array", "object") and isinstance(value, str):
            found[key] = _parse_json(value, kind)
    return found, given.notes


_JSON_TEXT = frozenset({("skill_run", "arguments")})
"""Arguments that are text with a JSON object in it."""


def as_list(value: Any) -> list[Any]:
    """Return a list, or parse JSON text of a list; empty if it is neither."""
    if isinstance(value, str):
        value = _parse_json(value, "array")
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]  JSON


def _parse_json(text: str, kind: str) -> Any:
    """Parse JSON text of an array or object; return other text unchanged."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, list if kind == "array" else dict) else text  # pyright: ignore[reportUnknownVariableType]  JSON


def _adapt_terminal(given: ArgumentConverter) -> dict[str, Any]:
    found = given.rename(command="cmd", background="run_in_background")
    given.allow("pty", False, instead="programs have no terminal here; run one that needs none")
    given.allow("watch_patterns", [], instead="look with process(action='poll') or process(action='log')")
    if given.take("notify_on_complete"):
        given.notes.append("no message comes when it ends; process(action='wait') waits for it")
    given.drop("description")
    return {**found, **given.seconds("timeout_ms")}


def _adapt_write_file(given: ArgumentConverter) -> dict[str, Any]:
    given.allow("cross_profile", False, instead="leave it out")
    return given.rename(path="file_path", content="file_text")


def _adapt_patch(given: ArgumentConverter) -> dict[str, Any]:
    given.allow("cross_profile", False, instead="leave it out")
    found = given.rename(path="file_path", old_string="old_str", new_string="new_str", patch="input")
    found = {**given.rest(), **found}
    if "mode" not in found:
        text, strings = bool(found.get("patch")), bool(found.get("old_string"))
        if text == strings:
            raise NoEquivalent(
                "mode is missing, and the arguments do not tell it; write mode='replace' or mode='patch'"
            )
        found["mode"] = "patch" if text else "replace"
    return found


def _adapt_read_file(given: ArgumentConverter) -> dict[str, Any]:
    return given.rename(path="file_path")


def _adapt_search_files(given: ArgumentConverter) -> dict[str, Any]:
    found = given.rename(file_glob="glob", limit="head_limit", context="-C")
    modes = {"content": "lines", "files_only": "files", "files_with_matches": "files"}
    if (mode := given.take("output_mode")) is not None:
        found["output_mode"] = modes.get(mode, mode) if isinstance(mode, str) else mode
    return found


def _adapt_todo(given: ArgumentConverter) -> dict[str, Any]:
    return {key: clean_items(value) if key == "todos" else value for key, value in given.rest().items()}


def _adapt_delegate(given: ArgumentConverter) -> dict[str, Any]:
    given.allow("role", "leaf", instead="the other agent hands nothing on; leave it out")
    if not (tasks := as_list(given.take("tasks"))):
        return {}
    rest = given.rest()
    if rest.pop("goal", ""):
        raise NoEquivalent("write either goal or tasks")
    return {**rest, "tasks": [_to_request(given.tool, each) for each in tasks]}


def _to_request(tool: str, task: Any) -> Any:
    """Return a task as one text."""
    if not isinstance(task, dict):
        return task
    given = ArgumentConverter(tool, cast("dict[str, Any]", task))
    given.allow("role", "leaf", instead="leave it out")
    goal, context = given.take("goal", ""), given.take("context", "")
    given.end()
    return f"{goal}\n\n{context}".strip()


def _adapt_skills_list(given: ArgumentConverter) -> dict[str, Any]:
    given.allow("category", "", instead="query looks for words in names and summaries")
    return {}


def _adapt_skill_manage(given: ArgumentConverter) -> dict[str, Any]:
    given.allow("category", "", instead="leave it out")
    given.allow("absorbed_into", "", instead="leave it out")
    theirs = ("content", "old_string", "new_string", "replace_all", "file_content", "file_path")
    found = {key: value for key in theirs if (value := given.take(key)) is not None}
    action = given.take("action")
    if action == "delete" and not found:
        given.notes.append("nothing is deleted; archive keeps it")
        return {"action": "archive"}
    if action == "remove_file" and list(found) == ["file_path"]:
        return {"action": "patch", "patch": f"{_PATCH[0]}\n*** Delete File: {found['file_path']}\n{_PATCH[1]}"}
    if found or action in ("edit", "write_file", "remove_file"):
        raise NoEquivalent(
            f"files of a skill are changed by patch alone: skill_manage(action='patch', name=…, patch='{_PATCH[0]} / "
            f"*** Add File: PATH or *** Update File: PATH / … / {_PATCH[1]}'), or made with action create and a task"
        )
    return {} if action is None else {"action": action}


def _adapt_web_extract(given: ArgumentConverter) -> dict[str, Any]:
    given.drop("char_limit")
    urls = as_list(given.take("urls"))
    if len(urls) > 1:
        raise NoEquivalent("web_extract reads one page; write url='…', and a call for each page")
    return {"url": urls[0]} if urls else {}


def _adapt_vision(given: ArgumentConverter) -> dict[str, Any]:
    return given.rename(path="image_url")


def clean_items(todos: Any) -> Any:
    """Return items without purely descriptive fields; ids are converted to text."""
    found = as_list(todos)
    if not found:
        return todos
    kept: list[Any] = []
    for each in found:
        item: Any = each
        if isinstance(each, dict):
            item = {key: value for key, value in cast("dict[str, Any]", each).items()
                    if key not in ("activeForm", "priority")}  # fmt: skip
            if isinstance(item.get("id"), int):
                item["id"] = str(item["id"])
        kept.append(item)
    return kept


OWN: Mapping[str, Callable[[ArgumentConverter], dict[str, Any]]] = {
    "terminal": _adapt_terminal,
    "read_file": _adapt_read_file,
    "write_file": _adapt_write_file,
    "patch": _adapt_patch,
    "search_files": _adapt_search_files,
    "todo": _adapt_todo,
    "delegate_task": _adapt_delegate,
    "skills_list": _adapt_skills_list,
    "skill_manage": _adapt_skill_manage,
    "vision_analyze": _adapt_vision,
    "web_extract": _adapt_web_extract,
}
