"""Machinery: a command may break its shell, but the next one is answered correctly, and no other is affected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.result import ShellState
from hermes_exec.testing.behaviours import Behaviours
from hermes_exec.testing.state import is_bash

if TYPE_CHECKING:
    from hermes_exec.terminal.session import Session
    from hermes_exec.testing.place import SuiteTarget

ANY = None
BREAKING: dict[str, tuple[str, int | None]] = {
    "closes every descriptor": ('for fd in 0 1 2 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done', ANY),
    "closes high descriptors": (
        'for fd in /proc/self/fd/*; do eval "exec ${fd##*/}>&-" 2>/dev/null; done',
        ANY,
    ),
    "closes standard output": ("exec >&-", 0),
    "closes standard error": ("exec 2>&-", 0),
    "closes standard input": ("exec <&-", 0),
    "sends its output away": ("exec >/dev/null 2>&1", 0),
    "redefines eval": ("eval() { :; }", 0),
    "redefines read": ("read() { return 1; }", 0),
    "redefines printf and echo": ("printf() { :; }; echo() { command echo spoofed; }", 0),
    "redefines builtin": ("builtin() { return 0; }", 0),
    "redefines builtin and read": ("builtin() { :; }; read() { :; }", 0),
    "redefines builtin, read, eval and exit": (
        "for f in builtin read eval exit set unset command trap source declare; do . /dev/stdin <<E\n$f() { :; }\nE\ndone",
        ANY,
    ),
    "redefines command": ("command() { return 9; }", 0),
    "redefines unset": ("unset() { :; }", 0),
    "redefines exit": ("exit() { :; }", 0),
    "redefines trap": ("trap() { :; }", 0),
    "redefines test and true": ("test() { return 1; }; true() { false; }; [() { return 1; }", 0),
    "redefines colon": (":() { return 1; }", 0),
    "redefines dot": (".() { return 1; }", ANY),
    "disables builtins": ("enable -n eval read builtin exit printf unset set trap test echo cd", ANY),
    "disables builtin first": ("enable -n builtin", 0),
    "aliases our words": (
        "shopt -s expand_aliases; for w in until do done builtin read eval exit unset case esac IFS set true; "
        "do alias $w='echo aliased'; done",
        ANY,
    ),
    "replaces itself": ("exec true", 0),
    "replaces itself by nothing": ("exec /no/such/program", ANY),
    "replaces itself by a shell": ("exec bash -c 'exit 5'", 5),
    "kills itself": ("kill -9 $$", None),
    "ends itself by TERM": ("kill -TERM $$; sleep 5", ANY),
    "stops itself": ("(sleep 0.1; kill -CONT $$) & kill -STOP $$; echo on >/dev/null", ANY),
    "asks for no execution": ("set -n", ANY),
    "restricts itself": ("set -r", ANY),
    "wants variables set": ("set -u", 0),
    "wants variables set and uses none": ("set -u; echo $not_set_at_all", ANY),
    "ends on errors": ("set -e", 0),
    "ends on errors and fails": ("set -e; false", 1),
    "reads lines as they are": ("set -v", 0),
    "traces": ("set -x", 0),
    "exports all": ("set -a", 0),
    "wants one command": ("set -t", ANY),
    "has no wildcards": ("set -f", 0),
    "overwrites nothing": ("set -C", 0),
    "becomes posix": ("set -o posix", 0),
    "is privileged": ("set -p", ANY),
    "has job control": ("set -m", 0),
    "has history expansion": ("set -H; set -o history", ANY),
    "traps debug": ("trap 'false' DEBUG", 0),
    "traps debug and skips": ("shopt -s extdebug; trap 'false' DEBUG", ANY),
    "traps debug and returns": ("shopt -s extdebug; trap 'return 2' DEBUG", ANY),
    "traps errors": ("trap 'echo error >/dev/null; false' ERR; false", 1),
    "traps returns": ("set -T; trap 'false' RETURN", 0),
    "traps its exit": ("trap 'exit 9' EXIT", 0),
    "traps its exit and exits": ("trap 'exit 9' EXIT; exit 3", 9),
    "ignores signals": ("trap '' TERM INT HUP QUIT USR1 PIPE CHLD", 0),
    "has no traps": ("trap - EXIT TERM; trap -- - EXIT", 0),
    "loses its folder": ("d=$(mktemp -d); cd $d; rmdir $d", 0),
    "loses its PATH": ("unset PATH", 0),
    "has an empty PATH": ("PATH=", 0),
    "splits elsewhere": ("IFS=/:0123456789abcdefs$IFS", 0),
    "has no IFS": ("unset IFS", 0),
    "fixes IFS": ("IFS=/; readonly IFS", 0),
    "fixes variables": ("readonly PATH HOME PWD OLDPWD _ 2>/dev/null; readonly mark", ANY),
    "fixes every variable": ("for v in $(compgen -v); do readonly $v 2>/dev/null; done", ANY),
    "unsets every variable": ("for v in $(compgen -v); do [ $v = mark ] || unset $v 2>/dev/null; done", ANY),
    "unsets every function": ("for f in $(compgen -A function); do unset -f $f; done; true", 0),
    "opens few files": ("ulimit -n 5", 0),
    "opens no files": ("ulimit -n 0", ANY),
    "writes no files": ("ulimit -f 0", 0),
    "has little memory": ("ulimit -v 60000 2>/dev/null", ANY),
    "starts no processes": ("ulimit -u 1", ANY),
    "has no stack": ("ulimit -s 64", ANY),
    "has no time": ("ulimit -t 1", 0),
    "breaks out": ("break", ANY),
    "breaks out of everything": ("break 99", ANY),
    "continues": ("continue 99", ANY),
    "returns": ("return 7", ANY),
    "shifts": ("shift 99", ANY),
    "has a syntax error": ("if then fi (", 2),
    "has an unclosed quote": ("echo 'not closed", ANY),
    "has an unclosed double quote": ('echo "not closed', ANY),
    "has an unclosed substitution": ("echo $(echo", ANY),
    "has an unclosed brace": ("f() { echo", ANY),
    "has an unclosed here-document": ("cat <<END\nnot closed", ANY),
    "closes what it has not opened": ("done; fi; esac; }; )", ANY),
    "ends our loop": ("done; done; echo out", ANY),
    "ends in a backslash": ("echo a \\", 0),
    "ends in an operator": ("true &&", ANY),
    "ends in a remark": ("true # remark \\", 0),
    "waits for everything": ("sleep 0.1 & wait", 0),
    "has prompts": (
        "PS1='$(echo spoof)'; PS4='$(echo trace)'; PROMPT_COMMAND='echo spoof'; PS0=x; set -x; true",
        0,
    ),
    "has another locale": ("export LC_ALL=tr_TR.UTF-8 LANG=xx 2>/dev/null; LC_ALL=POSIX", 0),
    "has shell options": (
        "shopt -s extglob nullglob failglob dotglob nocasematch lastpipe inherit_errexit; shopt -u sourcepath",
        ANY,
    ),
    "has BASH_ENV": ("export BASH_ENV=/dev/stdin ENV=/dev/stdin BASH_XTRACEFD=1 TMOUT=1", 0),
    "times out its reads": ("TMOUT=1; read_timeout=1", 0),
    "stays silent for a while": ("TMOUT=1; sleep 1.3", 0),
    "reads its own commands": ("cat; read x; mapfile", ANY),
    "moves into the background": (
        "sleep 60 & kill %1; bg; fg; disown -a; jobs >/dev/null",
        ANY,
    ),
    "is another language": ("import os, sys; os.kill(os.getpid(), 9)", ANY),
    "has our variable names": ("unset BASH_EXECUTION_STRING; declare -r BASH_COMMAND=x; _=y", ANY),
    "has a function named like a status": ("0() { echo 0; }; 1() { :; }", ANY),
    "recurses forever": ("f() { f; }; FUNCNEST=100; f", ANY),
    "exits in a subshell": ("(exit 9)", 9),
    "exits in a function": ("f() { exit 6; }; f", 6),
    "exits with a large number": ("exit 300", 44),
    "exits with a word": ("exit word", ANY),
    "logs out": ("logout", ANY),
}
"""Description of a command, its text, and its exit code where that is certain."""


class MachinerySuite(Behaviours, exercises="guest"):
    """Breaking the shell affects its own session only, for a moment, and is always reported."""

    @pytest.mark.parametrize("what", BREAKING)
    async def test_all_goes_on_after_a_command_that(self, place: SuiteTarget, session: Session, what: str) -> None:
        text, code = BREAKING[what]
        if not await is_bash(session):
            code = ANY  # a command that succeeds here may fail elsewhere
        async with await place.session() as bystander:
            await bystander.run("kept=1")
            await session.run("mark=set")
            broken = await session.run(text, timeout=12)
            assert not broken.timed_out
            if code is not ANY:
                assert broken.exit_code == code
            told = [broken]
            for turn in range(3):
                text = f"\\unset -f echo printf 2>/dev/null; echo \"{turn} $((40 + 2))\"; /bin/sh -c 'exit {turn}'"
                told.append(result := await session.run(text, timeout=12))
                if result.shell is ShellState.ROLLED_BACK and not result.stdout and turn < 2:
                    continue  # the broken shell ended only now, and the result reports it
                if result.stdout != b"%d 42\n" % turn:
                    assert any("goes elsewhere" in result.note for result in told), (
                        "output that was lost without a word"
                    )
                assert result.exit_code == turn or what in LIMITED
            look = await session.run("printf '%s' \"${mark-lost}\" || exit 0", timeout=12)
            if look.stdout == b"lost":
                assert any(result.shell is ShellState.ROLLED_BACK for result in [*told, look]), (
                    "a loss that was not told"
                )
            untouched = await bystander.run("echo $kept $((40 + 2)); (exit 3)")
            assert (untouched.stdout, untouched.exit_code, untouched.shell) == (b"1 42\n", 3, ShellState.KEPT)


LIMITED = {"starts no processes", "has no stack", "ends on errors", "has little memory", "restricts itself"}
"""After these, a program that exits with a code cannot be started, or ends the shell."""
