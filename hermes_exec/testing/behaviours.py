"""What every topic of the suite stands on: asynchronous tests, the fixtures, and promises that a place may lack."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import pytest

from hermes_exec.testing.place import SuiteTarget

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

_NEEDS = "hermes_exec_needs"
EXERCISES = "hermes_exec_exercises"
"""The attribute of a test that holds what it exercises; a test without it counts as ``target``."""
Exercised = Literal["guest", "channel", "target"]
Test = TypeVar("Test", bound=Callable[..., Awaitable[None]])


def exercises(part: Exercised) -> Callable[[Test], Test]:
    """Name the part that a test exercises, where that is not the part of its class.

    Args:
        part: ``guest`` for a test that only exercises the guest, which is the same process on every target; ``channel``
            for one that depends on how the backend carries bytes and signals; ``target`` for one that depends on what
            runs there: files, users, images, limits.
    """

    def mark(test: Test) -> Test:
        setattr(test, EXERCISES, part)
        return test

    return mark


def needs(*promises: str) -> Callable[[Test], Test]:
    """Mark a test that holds only where the named capabilities do.

    Elsewhere it checks that the place refuses such a request plainly, and is skipped with that reason.
    """

    def mark(test: Test) -> Test:
        setattr(test, _NEEDS, promises)
        return test

    return mark


class Behaviours:
    """A group of behaviours. Subclasses give a ``backend``, and may give a ``carrier`` and a ``shell``.

    Test functions may be ``async``: each runs on the one event loop that all tests of a class share.
    """

    limit_s: ClassVar[float] = 60.0
    """Seconds that one test may take."""

    _place: SuiteTarget

    def __init_subclass__(cls, *, exercises: Exercised | None = None) -> None:
        super().__init_subclass__()
        for name, member in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(member):
                if exercises is not None and not hasattr(member, EXERCISES):
                    setattr(member, EXERCISES, exercises)
                setattr(cls, name, _blocking(member))

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend under test; the first one serves all tests of the class. It is opened and closed by turns."""
        raise NotImplementedError("give your class a fixture `backend` that returns your Backend")

    @pytest.fixture
    def carrier(self) -> str | None:
        """``guest``, ``plain``, or None for what the place would get by itself."""
        return None

    @pytest.fixture
    def shell(self) -> str | None:
        """The shell of the sessions; the place's best one when None."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def places(cls) -> Generator[list[SuiteTarget]]:
        """Where the place of this class is kept while its tests run."""
        places: list[SuiteTarget] = []
        yield places
        for place in places:
            place.close()

    @pytest.fixture
    def place(self, places: list[SuiteTarget], backend: Backend, carrier: str | None, shell: str | None) -> SuiteTarget:
        """The place, with the terminal that the tests of this class share."""
        if not places:
            places.append(SuiteTarget(backend, carrier, shell))
        return places[0]

    @pytest.fixture(autouse=True)
    def _here(self, place: SuiteTarget) -> None:
        self._place = place

    @pytest.fixture
    def terminal(self, place: SuiteTarget) -> Terminal:
        """An open terminal, shared: a test must leave its default session as it was."""
        return place.run(place.shared_terminal())

    @pytest.fixture
    def session(self, place: SuiteTarget, terminal: Terminal) -> Generator[Session]:
        """A new live shell for this test alone."""
        place.run(place.require("sessions"))
        session = place.run(place.session())
        yield session
        place.run(session.close())

    @pytest.fixture
    def folder(self, place: SuiteTarget, terminal: Terminal) -> Generator[str]:
        """A new folder in the place."""
        made = place.run(terminal.run(["mktemp", "-d"], check=True))
        path = made.stdout.decode().rstrip("\n")
        yield path
        place.run(place.remove(path))


def _blocking(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test as a plain function, which pytest can run."""

    @functools.wraps(test)
    def run(self: Behaviours, *args: Any, **fixtures: Any) -> None:
        place = self._place  # pyright: ignore[reportPrivateUsage]  our own
        for promise in getattr(test, _NEEDS, ()):
            place.run(place.require(promise))
        place.run(test(self, *args, **fixtures), self.limit_s)

    return run
