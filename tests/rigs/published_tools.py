"""Names, arguments and types of the tools that other agents publish: facts, as JSON Schemas without descriptions."""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
WHOLE: dict[str, Any] = {"type": "integer"}
TRUTH: dict[str, Any] = {"type": "boolean"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}


def one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def tool(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def items(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": tool(*required, **properties)}


CLAUDE_CODE: dict[str, dict[str, Any]] = {
    "Bash": tool(
        "command", command=TEXT, timeout=NUMBER, description=TEXT, run_in_background=TRUTH,
        dangerouslyDisableSandbox=TRUTH,
    ),
    "BashOutput": tool("bash_id", bash_id=TEXT, filter=TEXT),
    "TaskOutput": tool("task_id", task_id=TEXT, block=TRUTH, timeout=NUMBER),
    "KillShell": tool("shell_id", shell_id=TEXT),
    "TaskStop": tool(task_id=TEXT, shell_id=TEXT),
    "Read": tool("file_path", file_path=TEXT, offset=NUMBER, limit=NUMBER, pages=TEXT),
    "Write": tool("file_path", "content", file_path=TEXT, content=TEXT),
    "Edit": tool(
        "file_path", "old_string", "new_string", file_path=TEXT, old_string=TEXT, new_string=TEXT, replace_all=TRUTH
    ),
    "MultiEdit": tool(
        "file_path", "edits", file_path=TEXT,
        edits=items("old_string", "new_string", old_string=TEXT, new_string=TEXT, replace_all=TRUTH),
    ),
    "Grep": tool(
        "pattern", pattern=TEXT, path=TEXT, glob=TEXT, type=TEXT,
        output_mode=one_of("content", "files_with_matches", "count"), multiline=TRUTH, head_limit=NUMBER, offset=NUMBER,
        **{"-A": NUMBER, "-B": NUMBER, "-C": NUMBER, "context": NUMBER, "-n": TRUTH, "-i": TRUTH},
    ),
    "Glob": tool("pattern", pattern=TEXT, path=TEXT),
    "LS": tool("path", path=TEXT, ignore=TEXTS),
    "NotebookEdit": tool("notebook_path", "new_source", notebook_path=TEXT, new_source=TEXT, cell_id=TEXT),
    "TodoWrite": tool(
        "todos",
        todos=items(
            "content", "status", "activeForm", content=TEXT, status=one_of("pending", "in_progress", "completed"),
            activeForm=TEXT,
        ),
    ),
    "Task": tool(
        "description", "prompt", "subagent_type", description=TEXT, prompt=TEXT, subagent_type=TEXT, model=TEXT,
        resume=TEXT, run_in_background=TRUTH, max_turns=NUMBER, allowed_tools=TEXTS,
    ),
    "AskUserQuestion": tool(
        "questions",
        questions=items(
            "question", "header", "options", "multiSelect", question=TEXT, header=TEXT, multiSelect=TRUTH,
            options=items("label", "description", label=TEXT, description=TEXT),
        ),
    ),
    "Skill": tool("skill", skill=TEXT, args=TEXT),
    "WebFetch": tool("url", "prompt", url=TEXT, prompt=TEXT),
    "WebSearch": tool("query", query=TEXT, allowed_domains=TEXTS, blocked_domains=TEXTS),
}  # fmt: skip

_ESCALATION: dict[str, Any] = {"sandbox_permissions": TEXT, "justification": TEXT, "prefix_rule": TEXTS}
CODEX: dict[str, dict[str, Any]] = {
    "exec_command": tool(
        "cmd", cmd=TEXT, workdir=TEXT, shell=TEXT, tty=TRUTH, yield_time_ms=NUMBER, max_output_tokens=NUMBER,
        login=TRUTH, **_ESCALATION,
    ),
    "write_stdin": tool(
        "session_id", session_id=TEXT, chars=TEXT, yield_time_ms=NUMBER, max_output_tokens=NUMBER
    ),
    "shell": tool("command", command=TEXTS, workdir=TEXT, timeout_ms=NUMBER, **_ESCALATION),
    "shell_command": tool("command", command=TEXT, workdir=TEXT, timeout_ms=NUMBER, login=TRUTH, **_ESCALATION),
    "apply_patch": tool("input", input=TEXT),
    "update_plan": tool(
        "plan", explanation=TEXT,
        plan=items("step", "status", step=TEXT, status=one_of("pending", "in_progress", "completed")),
    ),
    "view_image": tool("path", path=TEXT),
}  # fmt: skip

_EDITOR = tool(
    "command", "path", command=one_of("view", "create", "str_replace", "insert", "undo_edit"), path=TEXT,
    file_text=TEXT, old_str=TEXT, new_str=TEXT, insert_line=WHOLE, insert_text=TEXT,
    view_range={"type": "array", "items": WHOLE},
)  # fmt: skip
ANTHROPIC: dict[str, dict[str, Any]] = {
    "bash": tool("command", command=TEXT, restart=TRUTH),
    "str_replace_editor": _EDITOR,
    "str_replace_based_edit_tool": _EDITOR,
}

_TASK: dict[str, Any] = {"goal": TEXT, "context": TEXT, "role": one_of("leaf", "orchestrator")}
HERMES_AGENT: dict[str, dict[str, Any]] = {
    "terminal": tool(
        "command", command=TEXT, background=TRUTH, timeout=WHOLE, workdir=TEXT, pty=TRUTH, notify_on_complete=TRUTH,
        watch_patterns=TEXTS,
    ),
    "process": tool(
        "action", action=one_of("list", "poll", "log", "wait", "kill", "write", "submit", "close"), session_id=TEXT,
        data=TEXT, timeout=WHOLE, offset=WHOLE, limit=WHOLE,
    ),
    "read_file": tool("path", path=TEXT, offset=WHOLE, limit=WHOLE),
    "write_file": tool("path", "content", path=TEXT, content=TEXT, cross_profile=TRUTH),
    "patch": tool(
        "mode", mode=one_of("replace", "patch"), path=TEXT, old_string=TEXT, new_string=TEXT, replace_all=TRUTH,
        patch=TEXT, cross_profile=TRUTH,
    ),
    "search_files": tool(
        "pattern", pattern=TEXT, target=one_of("content", "files"), path=TEXT, file_glob=TEXT, limit=WHOLE,
        offset=WHOLE, output_mode=one_of("content", "files_only", "count"), context=WHOLE,
    ),
    "todo": tool(
        todos=items(
            "id", "content", "status", id=TEXT, content=TEXT,
            status=one_of("pending", "in_progress", "completed", "cancelled"),
        ),
        merge=TRUTH,
    ),
    "memory": tool("target", target=one_of("memory", "user"), action=TEXT, content=TEXT, old_text=TEXT),
    "session_search": tool(query=TEXT, limit=WHOLE, session_id=TEXT),
    "skills_list": tool(category=TEXT),
    "skill_view": tool("name", name=TEXT, file_path=TEXT),
    "skill_manage": tool(
        "action", "name", action=one_of("create", "patch", "edit", "delete", "write_file", "remove_file"), name=TEXT,
        content=TEXT, old_string=TEXT, new_string=TEXT, replace_all=TRUTH, category=TEXT, file_path=TEXT,
        file_content=TEXT, absorbed_into=TEXT,
    ),
    "execute_code": tool("code", code=TEXT),
    "delegate_task": tool(
        goal=TEXT, context=TEXT, role=_TASK["role"], background=TRUTH, tasks=items("goal", **_TASK)
    ),
    "clarify": tool("question", question=TEXT, choices=TEXTS),
    "web_search": tool("query", query=TEXT, limit=WHOLE),
    "web_extract": tool("urls", urls=TEXTS, char_limit=WHOLE),
    "cronjob": tool("action", action=TEXT, schedule=TEXT, prompt=TEXT),
}  # fmt: skip

PUBLISHED = {**CLAUDE_CODE, **CODEX, **ANTHROPIC, **HERMES_AGENT}
