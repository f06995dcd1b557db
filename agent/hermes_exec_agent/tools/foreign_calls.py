"""Convert calls of other agents' tools to calls of our tools.

Models were trained with the tools of Hermes Agent, Claude Code, Codex and Anthropic's text editor, and call these by
habit. A call with an exact equal becomes a call of our tool; any other is refused, and the refusal names the call to
write. The names and arguments are those that these programs publish. No model reads this table.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from hermes_exec_agent.tools.argument_conversion import ArgumentConverter, NoEquivalent, as_list, clean_items

_Ours: TypeAlias = "tuple[str, dict[str, Any]]"
_BASH = ("bash", "/bin/bash", "/usr/bin/bash")
_MOST_FOUND = 1000
_MOST_READ = 2000


@dataclass(frozen=True, slots=True)
class Alias:
    """A tool of another agent."""

    ours: str
    """Our tool for that, or several in words."""
    convert: Callable[[ArgumentConverter], _Ours]
    """Raises `NoEquivalent` where the call means something else."""


# Claude Code, and Anthropic's own bash


def _convert_claude_bash(given: ArgumentConverter) -> _Ours:
    found = given.rename(command="command", background="run_in_background")
    given.drop("description")
    given.allow("dangerouslyDisableSandbox", False, instead="every command runs in the conversation's place")
    if found.get("background"):
        given.drop("timeout")
        given.notes.append("the tool process looks after it; a timeout does not end it")
    return "terminal", {**found, **given.seconds("timeout")}


def _convert_bash(given: ArgumentConverter) -> _Ours:
    """Convert a call of ``bash``, a tool of several programs whose timeouts have different units."""
    given.allow("restart", False, instead="the shell is replaced by itself when it does not answer")
    given.allow("timeout", instead="it may be in seconds or milliseconds; write terminal(command=…, timeout=SECONDS)")
    given.drop("description")
    return "terminal", given.rename(command="command", background="run_in_background")


def _convert_read(given: ArgumentConverter) -> _Ours:
    given.allow("pages", "", instead="read_file shows text; try the tool terminal with pdftotext")
    found = given.rename(path="file_path", offset="offset", limit="limit")
    if found.get("offset") == 0:
        found["offset"] = 1
        given.notes.append("the first line is 1")
    return "read_file", found


def _convert_write(given: ArgumentConverter) -> _Ours:
    return "write_file", given.rename(path="file_path", content="content")


def _convert_edit(given: ArgumentConverter) -> _Ours:
    found = given.rename(path="file_path", old_string="old_string", new_string="new_string", replace_all="replace_all")
    if found.get("old_string") == "":
        raise NoEquivalent("an empty old_string stands for a new file there; write_file(path=…, content=…) writes one")
    return "patch", {"mode": "replace", **found}


def _convert_multi_edit(given: ArgumentConverter) -> _Ours:
    edits = as_list(given.take("edits"))
    if len(edits) != 1 or not isinstance(edits[0], dict):
        raise NoEquivalent(
            "one call makes one replacement; call patch(mode='replace', …) once for each, in their order"
        )
    one = ArgumentConverter(given.tool, {**given.rest(), **cast("dict[str, Any]", edits[0])})
    ours = _convert_edit(one)
    one.end()
    return ours


def _convert_grep(given: ArgumentConverter) -> _Ours:
    found: dict[str, Any] = {"target": "content", **given.rename(path="path", offset="offset")}
    given.drop("-n")
    given.allow("multiline", False, instead="search_files looks at one line at a time; try the tool terminal with grep")
    given.allow("type", "", instead="write file_glob, as in file_glob='*.py'")
    modes = {"content": "lines", "files_with_matches": "files", "count": "count"}
    mode = given.take("output_mode", "files_with_matches")
    if not isinstance(mode, str) or mode not in modes:
        raise NoEquivalent(f"output_mode={mode!r} is none of {', '.join(modes)}")
    found["output_mode"] = modes[mode]
    around = [given.take(key) for key in ("-C", "context", "-A", "-B")]
    if mode == "content":
        found |= _require_symmetry(around)
    if (limit := given.take("head_limit")) is not None:
        found["limit"] = limit or _MOST_FOUND
    if glob := given.take("glob"):
        folder, found["file_glob"] = _split_glob(str(glob))
        found |= _join_path(folder, found)
    pattern = given.take("pattern")
    ignore_case = given.take("-i")
    if isinstance(pattern, str):
        found["pattern"] = _convert_pattern(pattern, ignore_case=bool(ignore_case))
    return "search_files", found


def _require_symmetry(around: list[Any]) -> dict[str, Any]:
    both, same, after, before = around
    around_a_hit = both if both is not None else same
    if around_a_hit is None and after is None and before is None:
        return {}
    if around_a_hit is None and after == before:
        around_a_hit = after
    if around_a_hit is None or {each for each in (after, before) if each is not None} - {around_a_hit}:
        raise NoEquivalent("context is the same before and after a hit here; write context=LINES")
    return {"context": around_a_hit}


def _convert_pattern(pattern: str, *, ignore_case: bool) -> str:
    """Convert a pattern of ripgrep to one of Python, if both mean the same."""
    if "[[:" in pattern or re.search(r"\\[pPzhHRXK<>]", pattern):
        raise NoEquivalent(
            "pattern is a Python regular expression here, which has no [[:class:]], \\p, \\z, \\< and \\>"
        )
    if ignore_case and re.match(r"\(\?[a-zA-Z]+\)", pattern):
        raise NoEquivalent("write (?i) at the beginning of pattern instead of -i")
    return f"(?i:{pattern})" if ignore_case else pattern


def _split_glob(glob: str) -> tuple[str, str]:
    """Split ``glob`` into an equivalent folder and a pattern for file names at any depth below it."""
    match = re.fullmatch(r"(?:(?P<folder>[^*?\[\]{}]*)/)?(?P<deep>\*\*/)?(?P<name>[^/{}]+)", glob)
    if (
        match is None
        or glob.startswith("!")
        or (match["folder"] is not None and not match["deep"] and match["name"] != "**")
    ):
        raise NoEquivalent("a glob here is one of names at any depth, without braces; write path='FOLDER' and '*.py', "
                      "one call for each kind of name")  # fmt: skip
    folder = match["folder"]
    if folder == "":  # it began with a slash
        folder = "/"
    return folder or "", "*" if match["name"] == "**" else match["name"]


def _join_path(folder: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the path to search, for a folder below the given one."""
    if not folder:
        return {}
    base = found.get("path") or "."
    return {"path": folder if folder.startswith("/") or base == "." else f"{str(base).rstrip('/')}/{folder}"}


def _convert_glob(given: ArgumentConverter) -> _Ours:
    found: dict[str, Any] = {"target": "files", **given.rename(path="path")}
    folder, found["pattern"] = _split_glob(str(given.take("pattern", "")))
    return "search_files", {**found, **_join_path(folder, found)}


def _convert_ls(given: ArgumentConverter) -> _Ours:
    given.allow("ignore", [], instead="terminal(command='ls …') or search_files(target='files', pattern=…)")
    return "terminal", {"command": f"ls -Ap -- {shlex.quote(str(given.take('path', '.')))}"}


def _convert_todo_write(given: ArgumentConverter) -> _Ours:
    todos = clean_items(given.take("todos"))
    if todos == []:
        raise NoEquivalent("an empty list only reads it here; send the items with the status cancelled")
    return "todo", {"todos": todos}


def _convert_task(given: ArgumentConverter) -> _Ours:
    given.drop("description")
    given.allow("subagent_type", "general-purpose", "", instead="every other agent has the same tools; leave it out")
    return "delegate_task", given.rename(goal="prompt", background="run_in_background")


def _convert_ask(given: ArgumentConverter) -> _Ours:
    questions = as_list(given.take("questions"))
    one = cast("dict[str, Any]", questions[0]) if len(questions) == 1 and isinstance(questions[0], dict) else {}
    if not one or one.get("multiSelect"):
        raise NoEquivalent("clarify asks one question with one answer; call it once for each")
    choices = [
        cast("dict[str, Any]", each).get("label") if isinstance(each, dict) else each
        for each in as_list(one.get("options"))
    ]
    given.drop("answers", "metadata")
    return "clarify", {"question": one.get("question"), "choices": choices}


def _convert_bash_output(given: ArgumentConverter) -> _Ours:
    given.allow("filter", "", instead="process(action='log') shows all lines, or read its output with grep")
    return "process", {"action": "poll", **given.rename(session_id="bash_id")}


def _convert_task_output(given: ArgumentConverter) -> _Ours:
    found = given.rename(session_id="task_id")
    if given.take("block", True) is False:
        given.drop("timeout")
        return "process", {"action": "poll", **found}
    return "process", {"action": "wait", **found, **(given.seconds("timeout") or {"timeout": 30})}


def _convert_kill(given: ArgumentConverter) -> _Ours:
    return "process", {"action": "kill", **(given.rename(session_id="shell_id") or given.rename(session_id="task_id"))}


# Codex


def _convert_exec_command(given: ArgumentConverter) -> _Ours:
    given.allow("shell", *_BASH, instead="commands run in bash; name the other shell in command")
    given.allow("tty", False, instead="programs have no terminal here; run one that needs none")
    _refuse_escalation(given)
    given.drop("login", "max_output_tokens")
    if given.take("yield_time_ms") is not None:
        given.notes.append("a command is ended at its timeout, and goes on only with background=true")
    return "terminal", given.rename(command="cmd", workdir="workdir")


def _convert_shell(given: ArgumentConverter) -> _Ours:
    command = given.take("command")
    argv = as_list(command)
    if argv and all(isinstance(each, str) for each in argv):
        if argv[:1] == ["apply_patch"] and len(argv) == 2:
            _refuse_escalation(given)
            given.allow("workdir", "", ".", instead="write the folder into the paths of the patch")
            given.drop("timeout_ms")
            return "patch", {"mode": "patch", "patch": argv[1]}
        command = shlex.join(argv)
    if isinstance(command, list):
        raise NoEquivalent("command is text, or a list of arguments")
    _refuse_escalation(given)
    given.drop("login")
    found = {} if command is None else {"command": command}
    return "terminal", {**found, **given.rename(workdir="workdir"), **given.seconds("timeout_ms")}


def _refuse_escalation(given: ArgumentConverter) -> None:
    given.allow("sandbox_permissions", "use_default", instead="a person approves calls; leave it out")
    given.allow("additional_permissions", instead="a person approves calls; leave it out")
    given.allow("with_escalated_permissions", False, instead="a person approves calls; leave it out")
    given.drop("justification", "prefix_rule")


def _convert_write_stdin(given: ArgumentConverter) -> _Ours:
    found = given.rename(session_id="session_id")
    given.drop("yield_time_ms", "max_output_tokens")
    chars = given.take("chars", "")
    if isinstance(chars, str) and re.search(r"[\x00-\x08\x0e-\x1f\x7f]", chars):
        raise NoEquivalent(
            "control characters do nothing here; process(action='kill') ends it, action='close' ends its input"
        )
    return "process", {"action": "write", **found, "data": chars} if chars else {"action": "poll", **found}


def _convert_apply_patch(given: ArgumentConverter) -> _Ours:
    return "patch", {"mode": "patch", **(given.rename(patch="input") or given.rename(patch="patch"))}


def _convert_update_plan(given: ArgumentConverter) -> _Ours:
    given.drop("explanation")
    plan = as_list(given.take("plan"))
    if not plan:
        raise NoEquivalent("write todo(todos=[{'content': …, 'status': …}])")
    todos: list[Any] = []
    for each in plan:
        item = ArgumentConverter(given.tool, cast("dict[str, Any]", each) if isinstance(each, dict) else {"step": each})
        todos.append({**item.rename(content="step"), **item.rest()})
    return "todo", {"todos": todos}


def _convert_web_fetch(given: ArgumentConverter) -> _Ours:
    if given.take("prompt"):
        given.notes.append("prompt was left out: the text of the page is here")
    return "web_extract", given.rename(url="url")


def _convert_view_image(given: ArgumentConverter) -> _Ours:
    return "vision_analyze", given.rename(path="path")


def _convert_web_search(given: ArgumentConverter) -> _Ours:
    for key in ("allowed_domains", "blocked_domains"):
        given.allow(key, [], instead="write site:… in the query")
    return "web_search", given.rename(query="query")


# Anthropic's text editor, which other agents have under its two names


def _convert_editor(given: ArgumentConverter) -> _Ours:
    command = given.take("command")
    found = given.rename(path="path")
    match command:
        case "view":
            return "read_file", {**found, **_convert_range(given.take("view_range"))}
        case "create":
            given.notes.append("create=true: a file that is there already is left as it is")
            return "write_file", {**found, **given.rename(content="file_text"), "create": True}
        case "str_replace":
            strings = given.rename(old_string="old_str", new_string="new_str")
            return "patch", {"mode": "replace", **found, **strings}
        case "insert":
            raise NoEquivalent(
                "lines are inserted after lines, not numbers; patch(mode='patch', patch=…) with @@ and +"
            )
        case "undo_edit":
            raise NoEquivalent("changes are not kept; write the old content with write_file or patch")
        case _:
            raise NoEquivalent(f"command={command!r} is none of view, create, str_replace")


def _convert_range(view_range: Any) -> dict[str, Any]:
    if view_range in (None, []):
        return {}
    numbers = as_list(view_range)
    if len(numbers) != 2 or not all(isinstance(each, int) for each in numbers):
        raise NoEquivalent("view_range is not a pair of lines; write offset=FIRST, limit=LINES")
    first, last = numbers
    return {"offset": first, "limit": _MOST_READ if last == -1 else last - first + 1}


ALIASES: Mapping[str, Alias] = {
    "Bash": Alias("terminal", _convert_claude_bash),
    "bash": Alias("terminal", _convert_bash),
    "BashOutput": Alias("process", _convert_bash_output),
    "TaskOutput": Alias("process", _convert_task_output),
    "KillShell": Alias("process", _convert_kill),
    "KillBash": Alias("process", _convert_kill),
    "TaskStop": Alias("process", _convert_kill),
    "Read": Alias("read_file", _convert_read),
    "Write": Alias("write_file", _convert_write),
    "Edit": Alias("patch", _convert_edit),
    "MultiEdit": Alias("patch", _convert_multi_edit),
    "Grep": Alias("search_files", _convert_grep),
    "Glob": Alias("search_files", _convert_glob),
    "LS": Alias("terminal", _convert_ls),
    "TodoWrite": Alias("todo", _convert_todo_write),
    "Task": Alias("delegate_task", _convert_task),
    "Agent": Alias("delegate_task", _convert_task),
    "AskUserQuestion": Alias("clarify", _convert_ask),
    "WebFetch": Alias("web_extract", _convert_web_fetch),
    "view_image": Alias("vision_analyze", _convert_view_image),
    "WebSearch": Alias("web_search", _convert_web_search),
    "exec_command": Alias("terminal", _convert_exec_command),
    "shell": Alias("terminal", _convert_shell),
    "shell_command": Alias("terminal", _convert_shell),
    "write_stdin": Alias("process", _convert_write_stdin),
    "apply_patch": Alias("patch", _convert_apply_patch),
    "update_plan": Alias("todo", _convert_update_plan),
    "str_replace_editor": Alias("read_file, write_file or patch", _convert_editor),
    "str_replace_based_edit_tool": Alias("read_file, write_file or patch", _convert_editor),
}
"""Tools of other agents by their names."""

_NO_WEB = (
    "the tools of the web are off, [agent] tools in hermes.toml; terminal(command='curl …') works where the target has "
    "a network"
)
_NO_VISION = "the tool for images is off, [agent] tools in hermes.toml; terminal(command='file …') tells what one is"
_NO_MEMORY = "nothing is remembered beyond this conversation; write_file keeps notes in the target"
ABSENT: Mapping[str, str] = {
    "memory": _NO_MEMORY,
    "session_search": "earlier conversations cannot be searched while memory is off; ask the person with clarify",
    "WebFetch": _NO_WEB,
    "WebSearch": _NO_WEB,
    "web_search": _NO_WEB,
    "web_extract": _NO_WEB,
    "NotebookEdit": "patch(mode='replace', …) changes the JSON of a notebook",
    "Skill": "skill_view(name=…) shows a skill, and skill_run(name=…, arguments='{…}') runs it",
    "TaskCreate": "todo(todos=[…]) keeps the list; send all of it",
    "TaskUpdate": "todo(todos=[…]) keeps the list; send all of it",
    "TaskGet": "todo() shows the list",
    "TaskList": "todo() shows the list",
    "EnterPlanMode": "there are no modes; todo(todos=[…]) keeps a plan",
    "ExitPlanMode": "there are no modes; say the plan in a reply, or ask with clarify(question=…)",
    "view_image": _NO_VISION,
    "vision_analyze": _NO_VISION,
    "cronjob": "no jobs can be proposed while [agent] scheduled_jobs is off; ask the person with clarify",
}
"""Tools of other agents that have no equal, and what to do instead."""
