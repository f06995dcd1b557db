"""The base of every topic of the suite: asynchronous tests, the fixtures, and promises that a target may lack."""

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

    Elsewhere it checks that the target refuses such a request with a clear error, and is skipped with that reason.
    """

    def mark(test: Test) -> Test:
        setattr(test, _NEEDS, promises)
        return test

    return mark


class Behaviours:
    """A group of behaviours. Subclasses return a ``backend``, and may return a transport and a ``shell``.

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
        """Return the backend under test; the first one serves all tests of the class, and is reopened at times."""
        raise NotImplementedError("give your class a fixture `backend` that returns your Backend")

    @pytest.fixture
    def carrier(self) -> str | None:
        """Return ``guest``, ``plain``, or None for the target's default."""
        return None

    @pytest.fixture
    def shell(self) -> str | None:
        """Return the shell of the sessions, or None for the target's best one."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def places(cls) -> Generator[list[SuiteTarget]]:
        """Keep the target of this class while its tests run."""
        places: list[SuiteTarget] = []
        yield places
        for place in places:
            place.close()

    @pytest.fixture
    def place(self, places: list[SuiteTarget], backend: Backend, carrier: str | None, shell: str | None) -> SuiteTarget:
        """Return the target, with the terminal that the tests of this class share."""
        if not places:
            places.append(SuiteTarget(backend, carrier, shell))
        return places[0]

    @pytest.fixture(autouse=True)
    def _here(self, place: SuiteTarget) -> None:
        self._place = place

    @pytest.fixture
    def terminal(self, place: SuiteTarget) -> Terminal:
        """Return an open, shared terminal: a test must leave its default session unchanged."""
        return place.run(place.get_shared_terminal())

    @pytest.fixture
    def session(self, place: SuiteTarget, terminal: Terminal) -> Generator[Session]:
        """Create a live shell for this test alone."""
        place.run(place.require("sessions"))
        session = place.run(place.session())
        yield session
        place.run(session.close())

    @pytest.fixture
    def folder(self, place: SuiteTarget, terminal: Terminal) -> Generator[str]:
        """Create a folder on the target."""
        made = place.run(terminal.run(["mktemp", "-d"], check=True))
        path = made.stdout.decode().rstrip("\n")
        yield path
        place.run(place.remove(path))


def _blocking(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return the test as a plain function, which pytest can run."""

    @functools.wraps(test)
    def run(self: Behaviours, *args: Any, **fixtures: Any) -> None:
        place = self._place  # pyright: ignore[reportPrivateUsage]  our own
        for promise in getattr(test, _NEEDS, ()):
            place.run(place.require(promise))
        place.run(test(self, *args, **fixtures), self.limit_s)

    return run
