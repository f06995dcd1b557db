"""Opening and closing: cancelled at any moment, they leave a target that can be opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import hermes_exec
from hermes_exec.backend import nest
from hermes_exec.config import registry
from hermes_exec.config.secrets import SecretSource
from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.place import count_living, marker
from hermes_exec.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, Check
    from hermes_exec.config.profile import Profile
    from hermes_exec.testing.place import SuiteTarget
    from hermes_exec.wrapper import ArgvAndEnv

_MOMENTS_S = (0.0, 0.01, 0.04, 0.15, 0.4)
NO_HOME = "/dev/null/home"


class OpeningSuite(Behaviours, exercises="channel"):
    """Cancelling an open or a close leaves nothing to clean up."""

    @pytest.mark.parametrize("after_s", _MOMENTS_S)
    async def test_after_an_opening_that_was_cancelled_the_place_opens(
        self, place: SuiteTarget, after_s: float
    ) -> None:
        async def open_and_close() -> None:
            async with place.fresh():
                pass

        opening = asyncio.ensure_future(open_and_close())
        await asyncio.wait([opening], timeout=after_s)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled() or opening.exception() is None
        async with place.fresh() as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"

    @pytest.mark.parametrize("after_s", _MOMENTS_S[:3])
    @needs("kill_tree")
    async def test_a_closing_that_was_cancelled_has_ended_everything(self, place: SuiteTarget, after_s: float) -> None:
        mark = marker()
        async with place.fresh() as terminal:
            await terminal.run(f"sleep {mark} &")
            closing = asyncio.ensure_future(terminal.close())
            await asyncio.wait([closing], timeout=after_s)
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled() or closing.exception() is None
        async with place.fresh() as terminal:
            assert await count_living(terminal, mark) == 0

    @exercises("target")
    async def test_a_folder_that_does_not_exist_fails_at_the_opening(self, place: SuiteTarget) -> None:
        with pytest.raises(hermes_exec.UsageError, match=r"^cwd: /no/such/folder: no such folder"):
            async with place.fresh(cwd="/no/such/folder"):
                pass
        async with place.fresh(cwd="/usr") as terminal:
            assert (await terminal.run(["pwd"])).stdout == b"/usr\n"

    @pytest.mark.parametrize("form", ["profile", "backend"])
    @exercises("target")
    async def test_a_profile_and_its_backend_bring_folder_variables_and_set_up(
        self, place: SuiteTarget, carrier: Any, monkeypatch: pytest.MonkeyPatch, form: str
    ) -> None:
        given, outer = place.backend.profile, getattr(place.backend, "outer", None)
        if given is None:
            pytest.skip("this backend is made without a profile")
        if form == "profile" and outer is not None and not isinstance(outer, registry.find_backend_class("local")):
            pytest.skip("the profile alone does not name the outer target")
        monkeypatch.setenv("HX_FROM_HERE", "hidden")
        secrets = {"HX_SECRET": SecretSource.parse("env:HX_FROM_HERE")}
        wanted = {"cwd": "/usr", "secrets": secrets, "setup": ("HX_SET=done",)}
        profile = given.model_copy(update={**wanted, "env": {**given.env, "HX_PLAIN": "shown"}})
        kind = registry.find_backend_class(profile.type)
        backend = kind.from_profile(profile) if outer is None else nest(kind, profile, outer)
        await place.release()
        target = profile if form == "profile" else backend
        async with hermes_exec.open(target, audit=False, carrier=carrier) as terminal:
            by_words = await terminal.run(["sh", "-c", 'echo "$HX_PLAIN $HX_SECRET"; pwd'])
            by_text = await terminal.run('echo "$HX_PLAIN $HX_SECRET $HX_SET"; pwd')
        assert by_words.stdout == b"shown hidden\n/usr\n"
        assert by_text.stdout == b"shown hidden done\n/usr\n"

    @exercises("target")
    async def test_without_a_home_folder_commands_start_in_the_root(self, place: SuiteTarget, carrier: Any) -> None:
        await place.release()
        options: dict[str, Any] = {"env": {"HOME": NO_HOME}, "audit": False, "carrier": carrier}
        async with hermes_exec.open(Homeless(place.backend), **options) as terminal:
            by_words, by_text = await terminal.run(["pwd"]), await terminal.run("pwd; cd /usr && pwd")
            assert by_words.ok
            assert by_text.ok
            if terminal.capabilities.carrier == "plain":
                return  # commands start in the default folder of the target
            assert (by_words.stdout, by_text.stdout) == (b"/\n", b"/\n/usr\n")
            assert (NO_HOME in by_words.note, NO_HOME in by_text.note) == (True, False)  # it is reported once
            async with await terminal.pty(["pwd"]) as pty:
                assert b"".join([data async for data in pty]) == b"/\r\n"
            assert await terminal.read("proc/self/cmdline")
            with pytest.raises(hermes_exec.UsageError, match="/no/such/folder"):
                await terminal.run(["pwd"], cwd="/no/such/folder")


class Homeless(Wrapper):
    """A target for a user whose home folder does not exist, such as a service's user."""

    type: ClassVar[str] = "homeless"

    @property
    def own_target(self) -> str:
        """Return the target itself."""
        return self.outer.target

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:  # noqa: ARG003  there is nothing to choose
        """Create the wrapper; see ``Wrapper``."""
        return cls(outer)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:  # noqa: ARG003  there is nothing to choose
        """Return no checks, as nothing is needed."""
        return []

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """Return the same program with another HOME, below which no folder can be created."""
        return ["env", f"HOME={NO_HOME}", *argv], env
