"""The registry: ours by name, plugins by entry point, and four different errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hermes_exec.config import registry
from hermes_exec.config.registry import BuiltInType
from hermes_exec.errors import ConfigError, MissingExtra, PlaceUnavailable, Unsupported
from hermes_exec.extras import install_command
from hermes_exec_backends.profiles import LocalProfile
from tests.rigs.distributions import Site, site

__all__ = ["site"]


PLUGIN = """
from typing import Literal
from hermes_exec.config.profile import Profile
class LabProfile(Profile, frozen=True):
    target_field = "room"
    type: Literal["lab"] = "lab"
    room: str = "1"
"""


def test_a_plugin_brings_a_type_and_its_target(site: Site) -> None:
    from hermes_exec.config.targets import parse_target

    site.install("lab-plugin", {registry.PROFILES: {"lab": "lab_plugin:LabProfile"}}, PLUGIN, "lab_plugin")
    assert "lab" in registry.list_types()
    assert parse_target("lab:7").profile.model_dump()["room"] == "7"
    assert parse_target("lab").text == "lab:1"


def test_a_plugin_with_profiles_but_no_backend_is_told(site: Site) -> None:
    site.install("lab-plugin", {registry.PROFILES: {"lab": "lab_plugin:LabProfile"}}, PLUGIN, "lab_plugin")
    with pytest.raises(Unsupported, match=r"lab: .* no backend"):
        registry.find_backend_class("lab")


@pytest.mark.parametrize("name", ["local", "docker", "shell", "bubblewrap"])
def test_a_plugin_that_takes_a_name_of_ours_is_refused_by_name(site: Site, name: str) -> None:
    site.install("Evil.Plugin", {registry.PROFILES: {name: "evil:X"}, registry.BACKENDS: {name: "evil:X"}})
    with pytest.raises(ConfigError, match=f"'evil-plugin' offers '{name}', which is a built-in name"):
        registry.list_types()
    with pytest.raises(ConfigError, match="Try: pip uninstall evil-plugin"):
        registry.find_backend_class("lab")


def test_a_plugin_never_gets_into_a_name_of_ours(site: Site) -> None:
    site.install("evil", {registry.PROFILES: {"local": "evil:X"}}, "raise SystemExit('taken over')", "evil")
    assert registry.find_profile_model("local") is LocalProfile
    assert registry.find_profile_model("shell") is LocalProfile


def test_our_own_entry_points_are_not_taken_for_a_plugins(site: Site) -> None:
    site.install("hermes-exec", {registry.PROFILES: {"local": "hermes_exec_backends.profiles:LocalProfile"}})
    assert "local" in registry.list_types()


def test_two_plugins_with_one_name_are_refused(site: Site) -> None:
    site.install("one", {registry.PROFILES: {"lab": "a:X"}})
    site.install("two", {registry.PROFILES: {"lab": "b:X"}})
    with pytest.raises(ConfigError, match=r"'(one|two)' and '(one|two)' both offer 'lab'"):
        registry.find_profile_model("lab")


@pytest.mark.parametrize("code", ["import no_such_sdk", "1/0", "class Other: pass", "LabProfile = int", "X ="])
def test_a_plugin_that_cannot_be_loaded_is_named(site: Site, code: str) -> None:
    site.install("lab-plugin", {registry.PROFILES: {"lab": "lab_plugin:LabProfile"}}, code, "lab_plugin")
    with pytest.raises(PlaceUnavailable, match="lab: lab_plugin:LabProfile of the distribution 'lab-plugin'"):
        registry.find_profile_model("lab")


def test_an_unknown_type_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="unknown type 'modla'; the nearest known one is 'modal'"):
        registry.find_backend_class("modla")


def test_a_known_type_without_a_backend_is_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    row = BuiltInType("hermes_exec_backends.nothing_here:P", "hermes_exec_backends.nothing_here:B", extra="docker")
    monkeypatch.setitem(registry.BUILT_INS, "future", row)
    with pytest.raises(Unsupported, match="future: a known type, but this version has no backend for it"):
        registry.find_backend_class("future")


def test_a_missing_sdk_is_yet_another_and_names_its_extra(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.folder / "needs_sdk.py").write_text("import no_such_sdk.part")
    monkeypatch.setitem(registry.BUILT_INS, "docker", BuiltInType("needs_sdk:P", "needs_sdk:B", extra="docker"))
    with pytest.raises(MissingExtra) as caught:
        registry.find_backend_class("docker")
    assert caught.value.what == "docker: the package 'no_such_sdk' of the extra 'docker' is not installed"
    assert caught.value.remedy == install_command("docker")


def test_an_sdk_that_does_not_fit_is_not_said_to_be_missing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.folder / "old_sdk.py").write_text("from json import no_such_name")
    monkeypatch.setitem(registry.BUILT_INS, "docker", BuiltInType("old_sdk:P", "old_sdk:B", extra="docker"))
    with pytest.raises(PlaceUnavailable, match=r"does not fit: .*no_such_name.*install --upgrade .*\[docker\]"):
        registry.find_backend_class("docker")


def test_the_core_imports_no_backend_until_one_is_asked_for() -> None:
    script = (
        "import sys, hermes_exec.config.registry, hermes_exec.config.load, hermes_exec.observe.audit\n"
        "assert not [name for name in sys.modules if name.startswith('hermes_exec_')]\n"
        "hermes_exec.config.registry.find_profile_model('local')\n"
        "assert 'hermes_exec_backends.profiles.local' in sys.modules\n"
        "assert 'hermes_exec_backends.profiles.docker' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""
