"""What ``import hermes_exec`` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution

import pytest

import hermes_exec
from hermes_exec import errors
from hermes_exec.config import registry


def modules_after(statement: str) -> set[str]:
    """The modules that ``statement`` loads in a fresh, isolated interpreter."""
    code = f"import sys; before = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_every_public_name_can_be_had() -> None:
    missing = [name for name in hermes_exec.__all__ if not hasattr(hermes_exec, name)]
    assert not missing


def test_public_names_are_sorted_and_named_once() -> None:
    assert list(hermes_exec.__all__) == sorted(set(hermes_exec.__all__))


def test_dir_tells_every_public_name() -> None:
    assert set(hermes_exec.__all__) <= set(dir(hermes_exec))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    assert not hasattr(hermes_exec, "no_such_name")


def test_every_error_is_public() -> None:
    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.HermesError)
    }
    assert tree <= set(hermes_exec.__all__)


def test_importing_costs_no_heavy_module() -> None:
    heavy = {"asyncio", "pydantic", "typer", "click", "rich", "ssl", "socket", "subprocess", "typing"}
    sdks = {"docker", "paramiko", "modal", "daytona", "spython", "opentelemetry"}
    loaded = {name.partition(".")[0] for name in modules_after("import hermes_exec")}
    assert not loaded & (heavy | sdks)


def test_importing_loads_none_of_our_other_packages() -> None:
    ours = {name for name in modules_after("import hermes_exec") if name.startswith("hermes_exec_")}
    assert not ours


def test_our_entry_points_offer_exactly_the_built_in_types() -> None:
    points = distribution("hermes-exec").entry_points
    assert {point.name for point in points if point.group == registry.PROFILES} == {
        *registry.BUILT_INS,
        *registry.ALIASES,
    }
    assert {point.name for point in points if point.group == registry.BACKENDS} == set(registry.BUILT_INS)


@pytest.mark.parametrize(
    "group", ["console_scripts", "hermes_exec.backends", "hermes_exec.profiles", "hermes_exec.tools"]
)
def test_every_entry_point_of_ours_loads(group: str) -> None:
    points = [point for point in distribution("hermes-exec").entry_points if point.group == group]
    assert points
    assert all(callable(point.load()) for point in points)
