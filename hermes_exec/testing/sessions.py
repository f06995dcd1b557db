"""Sessions: live shells that keep what commands set, apart from each other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Closed, UsageError
from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.place import SuiteTarget, count_living, marker, wait_until

if TYPE_CHECKING:
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal


async def output_of(session: Session, command: str) -> str:
    """Return the output of a command of this session; the command must succeed."""
    return (await session.run(command, check=True)).stdout.decode()


class SessionsSuite(Behaviours, exercises="guest"):
    """Each session is one shell: in order within itself, independent of all others."""

    async def test_the_folder_persists(self, session: Session, folder: str) -> None:
        await session.run(f"cd {folder}")
        assert await output_of(session, "pwd -P") == f"{folder}\n"

    async def test_variables_persist_exported_or_not(self, session: Session) -> None:
        await session.run("plain='a b'; export exported='c d'")
        assert (
            await output_of(session, 'echo "$plain|$exported"; sh -c \'echo "$plain|$exported"\'') == "a b|c d\n|c d\n"
        )

    async def test_functions_persist(self, session: Session) -> None:
        await session.run("greet() { echo hello $1; }")
        for name in ("one", "two"):
            assert await output_of(session, f"greet {name}") == f"hello {name}\n"

    async def test_options_persist(self, session: Session) -> None:
        await session.run("set -f; set -u; umask 027")
        assert await output_of(session, "echo /et*; umask") == "/et*\n0027\n"
        assert (await session.run("(echo $never_set)")).exit_code != 0

    async def test_positional_parameters_persist(self, session: Session) -> None:
        await session.run("set -- one 'two words' ''")
        assert await output_of(session, 'echo $#; echo "$2"') == "3\ntwo words\n"

    async def test_the_last_status_can_be_asked_for(self, session: Session) -> None:
        await session.run("(exit 7)")
        assert await output_of(session, "echo $?") == "7\n"
        assert await output_of(session, "echo $?") == "0\n"

    async def test_children_of_an_earlier_command_can_be_waited_for(self, session: Session) -> None:
        await session.run("(read line < /dev/zero; exit 9) & child=$!; kill $child", timeout=10)
        await session.run("(exit 9) & child=$!")
        assert await output_of(session, "wait $child; echo $?") == "9\n"

    async def test_open_descriptors_persist(self, session: Session, folder: str) -> None:
        await session.run(f"exec 7> {folder}/log")
        await session.run("echo one >&7")
        await session.run("echo two >&7; exec 7>&-")
        assert await output_of(session, f"cat {folder}/log") == "one\ntwo\n"

    async def test_two_sessions_share_nothing(self, place: SuiteTarget, session: Session) -> None:
        async with await place.session() as other:
            await session.run("cd /; mine=1; f() { echo mine; }; export SHOWN=1; umask 077")
            await other.run("cd /usr; mine=2; f() { echo other; }; umask 007")
            show = "pwd; echo $mine ${SHOWN-none}; f; umask"
            assert await output_of(session, show) == "/\n1 1\nmine\n0077\n"
            assert await output_of(other, show) == "/usr\n2 none\nother\n0007\n"

    async def test_sessions_run_beside_each_other(self, place: SuiteTarget, session: Session, folder: str) -> None:
        async with await place.session() as other:
            await session.run(f"mkfifo {folder}/a {folder}/b", check=True)
            one = session.run(f"echo from one > {folder}/a; cat {folder}/b", timeout=20)
            two = other.run(f"cat {folder}/a; echo from two > {folder}/b", timeout=20)
            results = await asyncio.gather(one, two)  # one after the other they would wait forever
            assert [result.stdout for result in results] == [b"from two\n", b"from one\n"]

    async def test_commands_at_once_in_one_session_run_in_order(self, session: Session) -> None:
        await session.run("list=")
        results = await asyncio.gather(*(session.run(f"list=$list.{n}; echo {n}; (exit {n})") for n in range(30)))
        assert [(r.stdout, r.exit_code) for r in results] == [(b"%d\n" % n, n) for n in range(30)]
        assert await output_of(session, "echo $list") == "." + ".".join(map(str, range(30))) + "\n"

    async def test_tasks_that_share_a_terminal_each_get_their_own_answers(self, terminal: Terminal) -> None:
        async def one(n: int) -> None:
            async with terminal.session() as mine:
                for turn in range(5):
                    await mine.run(f"x=$((${{x-{n}}} + 1))")
                    result = await mine.run("echo $x; echo err$x >&2; (exit $x)")
                    wanted = n + turn + 1
                    assert result.stdout == b"%d\n" % wanted
                    assert result.stderr == b"err%d\n" % wanted
                    assert result.exit_code == wanted

        if not terminal.capabilities.sessions:
            pytest.skip(f"{terminal.target} says that it has no sessions")
        await asyncio.gather(*(one(n * 10) for n in range(12)))

    async def test_a_session_starts_where_and_with_what_it_is_told(self, place: SuiteTarget, folder: str) -> None:
        await place.require("sessions")
        async with await place.session(cwd=folder, env={"TOLD": "a 'quoted' $word"}) as session:
            assert await output_of(session, 'pwd -P; echo "$TOLD"; sh -c \'echo "$TOLD"\'') == (
                f"{folder}\na 'quoted' $word\na 'quoted' $word\n"
            )

    async def test_a_session_in_a_missing_folder_is_an_error(self, place: SuiteTarget, folder: str) -> None:
        await place.require("sessions")
        with pytest.raises(UsageError):
            session = await place.session(cwd=f"{folder}/missing")
            await session.run("true")

    async def test_a_folder_for_one_command_is_not_kept(self, session: Session, folder: str) -> None:
        before = await output_of(session, "pwd")
        assert (await session.run("pwd -P; lost=1", cwd=folder)).stdout.decode() == f"{folder}\n"
        assert await output_of(session, "pwd; echo ${lost-none}") == f"{before}none\n"

    async def test_variables_for_one_command_see_the_state_and_change_none(self, session: Session) -> None:
        await session.run("mine=1; f() { echo f $mine $THEIRS; }")
        assert (await session.run("f; mine=2", env={"THEIRS": "t"})).stdout == b"f 1 t\n"
        assert await output_of(session, "f") == "f 1\n"

    async def test_late_output_of_a_child_is_kept_apart(self, session: Session, folder: str) -> None:
        await session.run(f"mkfifo {folder}/go")
        first = await session.run(f"(read x < {folder}/go; echo late; echo late error >&2) & echo first")
        second = await session.run(f"echo second; echo > {folder}/go")
        third = await session.run("wait; echo third")
        assert [r.stdout for r in (first, second, third)] == [b"first\n", b"second\n", b"third\n"]
        assert [r.stderr for r in (first, second, third)] == [b"", b"", b""]
        seen = [b"", b""]

        async def came() -> bool:
            out, err = session.background_output()
            seen[0] += out
            seen[1] += err
            return seen == [b"late\n", b"late error\n"]

        await wait_until(came)

    async def test_late_output_is_kept_apart_from_a_shell_that_is_slow_to_wait(
        self, session: Session, folder: str
    ) -> None:
        """Check late output with a trap that runs before each step of the shell, also after a command's status."""
        await session.run(f"mkfifo {folder}/go; [ -z \"$BASH_VERSION\" ] || trap 'sleep 0.2' DEBUG")
        await session.run(f"(read x < {folder}/go; echo late error >&2) &")
        second = await session.run(f"echo > {folder}/go; wait")
        assert (second.stderr, second.note) == (b"", "")

    async def test_a_child_that_floods_its_output_disturbs_no_later_command(self, session: Session) -> None:
        await session.run("while :; do echo flood; done &")
        for n in range(5):
            result = await session.run(f"echo {n}", timeout=10)
            assert (result.stdout, result.exit_code) == (b"%d\n" % n, 0)

    @exercises("target")
    async def test_children_live_on_until_their_session_closes(self, place: SuiteTarget, terminal: Terminal) -> None:
        await place.require("sessions")
        mark = marker()
        session = await place.session()
        await session.run(f"sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 &")
        await session.run("true")

        async def both() -> bool:
            return await count_living(terminal, mark) == 2

        await wait_until(both)
        await session.close()
        assert await count_living(terminal, mark) == 0

    async def test_a_closed_session_refuses_commands_and_closes_again(self, place: SuiteTarget) -> None:
        await place.require("sessions")
        session = await place.session()
        await session.close()
        await session.close()
        with pytest.raises(Closed):
            await session.run("true")

    @exercises("target")
    async def test_closing_ends_a_command_that_runs(self, place: SuiteTarget, terminal: Terminal) -> None:
        await place.require("sessions")
        mark = marker()
        session = await place.session()
        running = asyncio.ensure_future(session.run(f"sleep {mark}"))

        async def runs() -> bool:
            return await count_living(terminal, mark) == 1

        await wait_until(runs)
        await session.close()
        assert not (await running).ok
        assert await count_living(terminal, mark) == 0

    @needs("sessions")
    async def test_the_terminals_own_session_is_one_of_them(self, place: SuiteTarget) -> None:
        async with place.fresh() as terminal:
            await terminal.run("cd /; mine=1")
            assert (await terminal.run("pwd; echo $mine")).stdout == b"/\n1\n"
            async with terminal.session() as other:
                assert (await other.run("echo ${mine-none}")).stdout == b"none\n"

    @exercises("target")
    async def test_fifty_sessions_live_at_once(self, place: SuiteTarget) -> None:
        await place.require("sessions")
        sessions = [await place.session() for _ in range(50)]
        await asyncio.gather(*(session.run(f"mine={n}") for n, session in enumerate(sessions)))
        results = await asyncio.gather(*(session.run("echo $mine") for session in sessions))
        assert [result.stdout for result in results] == [b"%d\n" % n for n in range(50)]
        await asyncio.gather(*(session.close() for session in sessions))
