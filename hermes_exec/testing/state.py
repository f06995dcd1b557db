"""State: the parts of a session that survive the end of its shell, and the report of that end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.result import ShellState
from hermes_exec.testing.behaviours import Behaviours
from hermes_exec.testing.sessions import output_of

if TYPE_CHECKING:
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing.place import SuiteTarget

ODD_VALUES = [
    "",
    " a  b ",
    "a'b\"c`d$e\\f",
    "line\nline\n",
    "\t\x01\x1b[0m",
    "ünï",
    "-n",
    "*",
    "a;b&c|d",
    "'",
    "$(id)",
]
SETTINGS = {
    "a variable": ("v=1", "echo $v", "1\n"),
    "an exported variable": ("export V=1", "sh -c 'echo $V'", "1\n"),
    "the folder": ("cd /usr", "pwd", "/usr\n"),
    "the umask": ("umask 027", "umask", "0027\n"),
    "an option": ("set -f", "echo /et*", "/et*\n"),
    "a trap of any shell": ("trap 'echo caught' USR1", "kill -USR1 $$; :", "caught\n"),
}
BASH_SETTINGS = {
    "a function": ("f() { echo in f $1; }", "f x", "in f x\n"),
    "a function with a here-document": ("f() { cat <<E\na $1 'b'\nE\n}", "f x", "a x 'b'\n"),
    "an exported function": ("f() { echo f; }; export -f f", "bash -c f", "f\n"),
    "an alias": ("shopt -s expand_aliases; alias hi='echo hi there'", "hi", "hi there\n"),
    "an array": (
        "a=(1 'two words' '' [7]=x)",
        'printf "[%s]" "${a[@]}" "${!a[@]}"',
        "[1][two words][][x][0][1][2][7]",
    ),
    "a table": ("declare -A t=(['odd key']='a b' [x]=y)", 'echo "${t[odd key]}${t[x]}"', "a by\n"),
    "an integer": ("declare -i n=4", "n=n+3; echo $n", "7\n"),
    "an upper case variable": ("declare -u up", "up=word; echo $up", "WORD\n"),
    "a read-only variable": ("readonly fixed=1", "(fixed=2) 2>/dev/null; echo $fixed", "1\n"),
    "a reference": ("target=1; declare -n ref=target", "ref=5; echo $target", "5\n"),
    "a shopt option": ("shopt -s nullglob", "echo /nothing-like-this*", "\n"),
    "pipefail": ("set -o pipefail", "false | true; echo $?", "1\n"),
    "positional parameters": ("set -- a 'b c' ''", 'printf "[%s]" $# "$@"', "[3][a][b c][]"),
    "a trap": ("trap 'echo caught' USR1", "kill -USR1 $BASHPID", "caught\n"),
    "an ignored signal": ("trap '' USR1", "kill -USR1 $BASHPID; echo on", "on\n"),
    "IFS": ("IFS=:", "x=a:b; printf '[%s]' $x", "[a][b]"),
}
ALL_SETTINGS = SETTINGS | BASH_SETTINGS


async def is_bash(session: Session) -> bool:
    """Return whether the session's shell is bash."""
    return (await session.run("echo ${BASH_VERSION-}")).stdout != b"\n"


async def needs_bash(session: Session) -> None:
    """Skip the test if the session's shell is not bash."""
    if not await is_bash(session):
        pytest.skip("the shell of this session is not bash")


class StateSuite(Behaviours, exercises="guest"):
    """A session continues after its shell has ended, with its state, and reports it."""

    @pytest.mark.parametrize("name", ALL_SETTINGS)
    async def test_it_is_there_for_the_next_command(self, session: Session, name: str) -> None:
        if name in BASH_SETTINGS:
            await needs_bash(session)
        setting, look, wanted = ALL_SETTINGS[name]
        assert (await session.run(setting)).shell is ShellState.KEPT
        assert (await session.run(look)).stdout.decode() == wanted

    @pytest.mark.parametrize("name", ALL_SETTINGS)
    async def test_it_is_there_after_exit(self, session: Session, name: str) -> None:
        if name in BASH_SETTINGS:
            await needs_bash(session)
        setting, look, wanted = ALL_SETTINGS[name]
        result = await session.run(f"{setting}\nexit 3")
        assert (result.exit_code, result.shell) == (3, ShellState.RESTORED)
        assert (await session.run(look)).stdout.decode() == wanted

    async def test_odd_values_survive_exit(self, session: Session) -> None:
        await needs_bash(session)
        names = [f"v{index}" for index in range(len(ODD_VALUES))]
        for name, value in zip(names, ODD_VALUES, strict=True):
            quoted = "'" + value.replace("'", "'\\''") + "'"
            await session.run(f"{name}={quoted}; export e{name}={quoted}")
        await session.run("exit")
        show = "printf '%s\\0' " + " ".join(f'"${name}" "$e{name}"' for name in names)
        values = (await output_of(session, show)).split("\0")
        assert values == [value for value in ODD_VALUES for _ in range(2)] + [""]

    async def test_bytes_that_are_not_text_survive_exit(self, session: Session) -> None:
        await needs_bash(session)
        await session.run(b"v='\xff\x80\xc3'; export V='\xfe'; exit")
        assert (await session.run('printf "%s%s" "$v" "$V"')).stdout == b"\xff\x80\xc3\xfe"

    async def test_a_large_value_survives_exit(self, session: Session) -> None:
        await session.run("big=$(head -c 1000000 /dev/zero | tr '\\0' x); exit")
        assert await output_of(session, "echo ${#big}") == "1000000\n"

    async def test_a_large_environment_loses_nothing(self, session: Session) -> None:
        make = "i=0; while [ $i -lt 60 ]; do export BIG_$i=$(head -c 20000 /dev/zero | tr '\\0' y)$i; i=$((i+1)); done"
        await session.run(make)
        await session.run("after=1; cd /usr")
        assert await output_of(session, "echo $after ${#BIG_59}; pwd") == "1 20002\n/usr\n"
        await session.run("exit")
        assert await output_of(session, "echo $after ${#BIG_59}; pwd; env | grep -c ^BIG_") == "1 20002\n/usr\n60\n"

    async def test_a_variable_too_long_for_programs_works_for_the_shell(self, session: Session) -> None:
        await session.run("export HUGE=$(head -c 200000 /dev/zero | tr '\\0' z)")
        assert await output_of(session, "echo ${#HUGE}") == "200000\n"
        result = await session.run("env true")
        assert result.exit_code == 126
        assert b"rgument list too long" in result.stderr
        assert await output_of(session, "unset HUGE; env true; echo fine") == "fine\n"

    @pytest.mark.parametrize("size", [130_000, 200_000, 5_000_000])
    async def test_a_command_may_be_longer_than_any_argument(self, session: Session, size: int) -> None:
        result = await session.run(f"v='{'x' * size}'; echo ${{#v}}; (exit 5)")
        assert (result.stdout, result.exit_code) == (b"%d\n" % size, 5)
        assert await output_of(session, "echo ${#v}") == f"{size}\n"

    async def test_a_word_too_long_for_programs_is_refused_by_the_kernels_words(self, terminal: Terminal) -> None:
        result = await terminal.run(["echo", "x" * 200_000])
        if result.stdout == b"x" * 200_000 + b"\n":
            pytest.skip("the shell of this target runs echo itself (busybox), so no kernel is asked")
        assert result.exit_code == 126
        assert b"rgument list too long" in result.stderr

    async def test_set_e_ends_the_shell_and_keeps_the_state(self, session: Session) -> None:
        result = await session.run("before=1; set -e; false; after=1")
        assert (result.exit_code, result.shell) == (1, ShellState.RESTORED)
        assert await output_of(session, "echo $before ${after-none}") == "1 none\n"

    async def test_output_before_the_shells_exit_is_kept(self, session: Session) -> None:
        result = await session.run("seq 1 200000; echo error >&2; exit 4")
        assert result.stdout == b"".join(b"%d\n" % n for n in range(1, 200_001))
        assert (result.stderr, result.exit_code) == (b"error\n", 4)

    async def test_an_exit_trap_of_the_users_runs_once_and_state_is_kept(self, session: Session) -> None:
        await session.run("kept=1; trap 'echo bye' EXIT")
        result = await session.run("exit 6")
        assert (result.stdout, result.exit_code) == (b"bye\n", 6)
        assert await output_of(session, "echo $kept") == "1\n"

    async def test_exec_gives_the_programs_result_and_the_last_state(self, session: Session) -> None:
        await session.run("kept=1; cd /usr")
        result = await session.run("exec sh -c 'echo replaced; exit 8'")
        assert (result.stdout, result.exit_code) == (b"replaced\n", 8)
        assert result.shell is ShellState.ROLLED_BACK
        assert await output_of(session, "echo $kept; pwd") == "1\n/usr\n"

    async def test_a_shell_that_killed_itself_is_told_and_followed_by_the_last_state(self, session: Session) -> None:
        await session.run("kept=1")
        result = await session.run("lost=1; kill -9 $$")
        assert (result.exit_code, result.signal, result.shell) == (None, 9, ShellState.ROLLED_BACK)
        assert await output_of(session, "echo $kept ${lost-none}") == "1 none\n"

    async def test_state_set_before_a_time_limit_is_kept(self, session: Session) -> None:
        await session.run("before=1")
        result = await session.run("during=1; cd /usr; sleep 60", timeout=2, grace_s=0.1)
        assert result.timed_out
        assert result.shell in {ShellState.RESTORED, ShellState.ROLLED_BACK}
        if result.shell is ShellState.RESTORED:
            assert await output_of(session, "echo $during; pwd") == "1\n/usr\n"
        assert await output_of(session, "echo $before") == "1\n"

    async def test_many_exits_in_a_row_lose_nothing(self, session: Session) -> None:
        for n in range(10):
            assert (await session.run(f"count=$((count + 1)); exit {n}")).exit_code == n
        assert await output_of(session, "echo $count") == "10\n"

    async def test_a_removed_folder_breaks_nothing(self, session: Session, folder: str) -> None:
        await session.run(f"mkdir {folder}/gone; cd {folder}/gone; rmdir {folder}/gone; kept=1")
        assert await output_of(session, "echo still; echo $kept") == "still\n1\n"
        await session.run("exit")
        assert await output_of(session, "echo after exit; echo $kept; cd /; pwd") == "after exit\n1\n/\n"

    @pytest.mark.parametrize("name", ["with space", "new\nline", "quo'te", "$dollar", "-dash", "ünï", "trailing\n"])
    async def test_a_folder_of_any_name_survives_exit(self, session: Session, folder: str, name: str) -> None:
        await needs_bash(session)
        quoted = "'" + name.replace("'", "'\\''") + "'"
        await session.run(f"mkdir {folder}/{quoted}; cd {folder}/{quoted}; exit", check=True)
        assert await output_of(session, "pwd -P; echo .") == f"{folder}/{name}\n.\n"

    async def test_state_is_not_shared_with_a_session_opened_later(self, place: SuiteTarget, session: Session) -> None:
        await session.run("mine=1; export MINE=1; exit")
        async with await place.session() as other:
            assert await output_of(other, "echo ${mine-none} ${MINE-none}") == "none none\n"
