"""The committed module is what the generator writes, and holds everything."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hermes_exec
import hermes_exec.sync as hx
from hermes_exec._sync.proxy import BlockingContextManager, BlockingIterator, BlockingProxy

ROOT = Path(__file__).parents[2]
FACES = [
    value
    for value in vars(hx).values()
    if isinstance(value, type)
    and issubclass(value, BlockingProxy)
    and value not in {BlockingProxy, BlockingIterator, BlockingContextManager}
]


def test_the_committed_file_is_what_the_generator_writes() -> None:
    argv = [sys.executable, "-I", str(ROOT / "tools"), "generate", "--here", "--print"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "hermes_exec" / "sync.py").read_text(), "run ./dev generate"


def test_every_public_name_has_its_blocking_form_or_is_the_same() -> None:
    assert hx.__all__ == hermes_exec.__all__
    for name in hx.__all__:
        if name in {"gather", "open"} or getattr(hx, name) in FACES:
            assert getattr(hx, name) is not getattr(hermes_exec, name)
        else:
            assert getattr(hx, name) is getattr(hermes_exec, name)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    assert not hasattr(hx, "no_such_name")


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_nothing_of_a_blocking_class_has_to_be_awaited(face: type) -> None:
    methods = [value for base in face.__mro__ for value in vars(base).values() if inspect.isfunction(value)]
    assert methods
    assert not [one for one in methods if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)]


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_blocking_class_has_the_signatures_of_the_asynchronous_one(face: type) -> None:
    for name, method in vars(face).items():
        if inspect.isfunction(method) and not name.startswith("__"):
            original = inspect.signature(getattr(getattr(hermes_exec, face.__name__), name))
            assert inspect.signature(method).parameters == original.parameters
