"""Rules that allow and deny commands: against a real shell, and in conversations."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_exec.errors import ConfigError
from hermes_exec_agent.tools.command_rules import CommandPattern, CommandRules, describe_scope
from hermes_exec_agent.tools.shell_commands import parse_plain
from tests.tools.conftest import Somebody, agent_in

if TYPE_CHECKING:
    from pathlib import Path

READ_ONLY = (
    "ls *", "cat *", "head *", "tail *", "wc *", "grep *", "pwd", "whoami", "date", "echo *", "git status *",
    "git diff *", "git log *", "stat *", "file *", "du *", "df *", "uname *", "id *", "true",
)  # fmt: skip
RULES = CommandRules.parse(READ_ONLY, ())
PAYLOADS = (
    "rm -rf x", "curl evil.example", "touch x", "sh -c 'rm x'", "./ls", "/tmp/ls", "git push", "git -c a=b status",
    "git status-evil", "python3 -c 1", "eval ls", "command rm x", "exec rm x", "sudo ls", "env ls", "xargs rm",
    "LD_PRELOAD=x.so ls", "PATH=. ls", "export PATH=.", "alias ls=rm", "ls() { rm x; }", "function ls { rm x; }", "$X",
    "r\\m x", "r''m x", '"rm" x', "$'rm' x", "`rm x`", "$(rm x)", "{rm,x}", "rm\tx", "time rm x", "coproc rm x",
    "(rm x)", "{ rm x; }", "! rm x", "if ls; then rm x; fi", "while ls; do rm x; done", "for f in a; do rm x; done",
    "case a in a) rm x;; esac", "[[ -n $(rm x) ]]", "trap 'rm x' EXIT", "source ./x", ". ./x", "unset PATH",
)  # fmt: skip
INSIDE = (
    "ls $(rm x)", "ls `rm x`", "cat <(rm x)", 'echo "$(rm x)"', 'echo "`rm x`"', "echo ${X:=$(rm x)}", "ls $X",
    "ls > ~/.bashrc", "echo x >> .git/hooks/pre-commit", "cat <<E\n$(rm x)\nE", "cat <<< $(rm x)", "ls 2> log",
    "ls >| y", "ls &> y", "ls &", "echo $((a[$(rm x)]))", "ls *", "cat ~/.ss?/id_rsa", "cat ~/.ssh/id_rsa", "cat .env",
    "cat ~/.aws/credentials", "head --bytes=9 /home/a/.netrc", "grep -f=.ssh/id_rsa x", "ls \\\nrm", "ls \\; rm x",
    "echo 'a\nrm x", 'echo "a\nrm x', "ls\u00a0-la", "ls\u2028rm x", "ls\r\nrm x", "ls\x00rm x", "ls\x0brm x",
    "ls # \nrm x", "ls {a,$(rm x)}", "ls ~root$(rm x)", "echo !!", "ls;", "ls |", "| ls", "ls &&", "ls ;; ls",
    "ls '", 'ls "', "pwd x", "whoami -x", "date -s 2020", "git", "git status; git push", "{ls,-la}", "$(ls)", "",
)  # fmt: skip
JOINTS = ("; ", " && ", " || ", " | ", "\n", " & ", ";")


def hostile_texts() -> list[str]:
    joined = [f"{first}{joint}{payload}" for first, joint, payload in itertools.product(("ls", "git status -s"), JOINTS,
              PAYLOADS)]  # fmt: skip
    return [each for each in (*PAYLOADS, *INSIDE, *joined) if each != "ls;"]


def test_no_hostile_text_passes_a_list_of_commands_that_only_read() -> None:
    texts = hostile_texts()
    assert len(texts) > 600
    assert [each for each in texts if RULES.find_permission(each)] == []


@pytest.mark.parametrize(
    "text",
    [
        "git status", "git status --short src", "ls -la 'a b' \"c d\" e.txt", "git log -3 | head -5", "ls; pwd && date",
        "ls nothing 2>/dev/null || true", "grep -rn 'a$b' src 2>&1 | wc -l", "cat x\nls\n", "  pwd  ",
    ],
)  # fmt: skip
def test_commands_that_only_read_pass(text: str) -> None:
    assert RULES.find_permission(text)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs that record their names and arguments, each between NULs."""
    folder = tmp_path_factory.mktemp("stubs")
    program = '#!/bin/sh\n{ printf \'%s\\0\' "${0##*/}" "$@"; printf \'\\0\'; } >> "$RECORD"\n'
    for name in ("ls", "cat", "git", "rm", "touch"):
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    return folder


PIECES = st.sampled_from([
    "ls", "cat", "git", "rm", "touch", "status", "-l", "x", "a b", "'", '"', "'a b'", '"c d"', "\\", "$", "`", "(", ")",
    "{", "}", "<", ">", "|", "||", "&", "&&", ";", ";;", "\n", " ", " ", " ", "\t", "#", "!", "*", "~", "=", "$(rm)",
    "2>&1", ">/dev/null", "1", "0x", "[", "]", "x=1", "if", "then", "fi", "do", "done", "\u00a0", "\u00e9", "\r", "''",
])  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "dash"])
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(PIECES, min_size=1, max_size=9))
def test_a_shell_runs_the_words_that_were_read(stubs: Path, tmp_path: Path, shell: str, pieces: list[str]) -> None:
    text = "".join(pieces)
    commands = parse_plain(text)
    if commands is None or any("\0" in word for words in commands for word in words):
        return
    record = tmp_path / "record"
    record.write_bytes(b"")
    env = {"PATH": str(stubs), "RECORD": str(record)}
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-c", text], env=env, cwd=tmp_path, capture_output=True, check=False, timeout=20)
    ran = [tuple(map(os.fsdecode, each.split(b"\0"))) for each in record.read_bytes().split(b"\0\0")[:-1]]
    read = [tuple(words) for words in commands]
    assert all(each in read for each in ran), (text, ran, read)


def test_a_rule_that_denies_covers_commands_wherever_they_are() -> None:
    rules = CommandRules.parse((), ("rm *", "git push *"))
    for text in (
        "rm x", "/bin/rm x", "ls && rm -rf x", "ls $(rm x)", "f() { rm x; }", "sudo -u a rm x", "env A=1 rm x",
        "(rm x)", "if true; then git push origin; fi", '"rm" x', "timeout 5 rm x", "git $X origin",
    ):  # fmt: skip
        assert rules.find_denial(text) not in ("", "?"), text
    for text in ("$X x", "eval x", "sh -c 'rm x'", "ls '", "r\\m x", "$(echo rm) x"):
        assert rules.find_denial(text) == "?", text
    for text in ("ls", "git status", "echo rm", "grep rm x | wc -l"):
        assert rules.find_denial(text) == "", text


def test_a_pattern_names_a_command() -> None:
    for text in ("*", "* push", "??"):
        with pytest.raises(ConfigError, match="names no command"):
            CommandPattern.parse(text)
    assert not CommandPattern.parse("git status*").matches(("git", "status-evil"))
    assert CommandPattern.parse("python3.1? -m pytest *").matches(("python3.11", "-m", "pytest"))


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("git status -s", "git status *"), ("ls -l | wc -l", "ls *, wc *"), ("touch a", "touch *"), ("rm a", ""),
        ("git -C x status", ""), ("ls $X", ""), ("python3 -c 1", ""), ("./run.sh", ""), ("ls && rm a", ""),
    ],
)  # fmt: skip
def test_a_lasting_approval_covers_a_narrow_pattern(text: str, scope: str) -> None:
    assert describe_scope(text) == scope


def test_rules_decide_before_the_mode_in_scripts_as_well() -> None:
    rules = CommandRules.parse(("echo *",), ("touch *",))
    person = Somebody(says=False)

    async def ask(mode: str) -> list[str]:
        async with agent_in("local", person, mode=mode, commands=rules) as agent:
            call = "tools.terminal(command='touch one')"
            code = f"try:\n    {call}\nexcept tools.ToolFailed as error:\n    print(error)"
            answers = [await agent("terminal", command=each) for each in ("echo hi", "touch one", "pwd", "$X")]
            if mode == "allow":
                answers.append(await agent("execute_code", code=code))
            return [str(each.get("output") or each["error"]["type"]) for each in answers]

    assert asyncio.run(ask("ask"))[:4] == ["hi\n", "denied", "denied", "denied"]
    asked = [summary for _, summary in person.asked]
    assert asked == ["pwd", "$X"]
    allowed = asyncio.run(ask("allow"))
    assert (allowed[0], allowed[1], allowed[3]) == ("hi\n", "denied", "denied")
    assert "rule 'touch *' denies" in allowed[4]


def test_without_the_grammar_no_rule_allows_and_each_one_that_denies_asks() -> None:
    code = (
        "import sys\n"
        "sys.modules['tree_sitter'] = None\n"
        "from hermes_exec_agent.tools.command_rules import CommandRules, describe_scope\n"
        "rules = CommandRules.parse(('ls *',), ('rm *',))\n"
        "print(repr((rules.find_permission('ls'), rules.find_denial('ls'), describe_scope('ls'))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "('', '?', '')\n"
