"""Secrets: found by name, shown by name only."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.config.check import profile_from_table
from hermes_exec.config.secrets import Secret, SecretSource, parse_secrets, resolve_secrets
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

VALUE = "hunter2-the-password"


def resolve(source: object, environ: dict[str, str] | None = None) -> str:
    (secret,) = resolve_secrets(parse_secrets({"TOKEN": source}), environ or {}).values()
    return secret.reveal()


def refused(source: object, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(source, environ)
    return str(caught.value)


def test_a_name_alone_is_looked_up_in_the_environment() -> None:
    secrets = resolve_secrets(parse_secrets(["A", "B"]), {"A": "1", "B": "2", "C": "3"})
    assert {name: secret.reveal() for name, secret in secrets.items()} == {"A": "1", "B": "2"}


def test_a_secret_can_come_from_another_variable() -> None:
    assert resolve("env:OTHER", {"OTHER": VALUE, "TOKEN": "wrong"}) == VALUE


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(VALUE + "\n")
    assert resolve(f"file:{tmp_path}/token") == VALUE
    assert resolve("file:~/token", {"HOME": str(tmp_path)}) == VALUE


def test_only_one_newline_at_the_end_is_not_part_of_a_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" a\nb \n\n")
    assert resolve({"file": str(tmp_path / "token")}) == " a\nb \n"


def test_a_secret_can_come_from_a_command(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import os, sys; print(sys.argv[1] + os.environ['X'])", "a b;$c "]
    assert resolve({"command": words}, {"X": "!"}) == "a b;$c !"


def test_a_missing_variable_is_told_by_name_and_place() -> None:
    assert refused("env:OTHER") == (
        "secret TOKEN: environment variable OTHER is not set. "
        "Try: export OTHER, or give the secret a file or a command as its source"
    )


def test_a_missing_file_is_told_by_name_and_place(tmp_path: Path) -> None:
    assert refused(f"file:{tmp_path}/no") == f"secret TOKEN: {tmp_path}/no: No such file or directory"


def test_a_folder_or_device_is_no_secret(tmp_path: Path) -> None:
    assert "not a regular file" in refused(f"file:{tmp_path}")
    assert "not a regular file" in refused("file:/dev/zero")


def test_a_failing_command_is_told_without_its_output() -> None:
    said = refused({"command": ["sh", "-c", f"echo {VALUE}; exit 3"]}, {"PATH": "/usr/bin:/bin"})
    assert said.startswith("secret TOKEN: command sh failed with exit code 3")
    assert VALUE not in said


def test_a_missing_command_is_told_by_name() -> None:
    assert refused({"command": ["/no/such/program", VALUE]}).endswith(
        "command /no/such/program: No such file or directory"
    )


def test_an_empty_secret_is_a_missing_one() -> None:
    assert "is empty" in refused("env:TOKEN", {"TOKEN": ""})


def test_a_secret_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(f"file:{tmp_path}/binary")
    (tmp_path / "nul").write_bytes(b"a\0b")
    assert "NUL" in refused(f"file:{tmp_path}/nul")


@pytest.mark.parametrize(
    "source",
    [VALUE, "env:", f"env:{VALUE}", f"file:{VALUE}", {"command": f"echo {VALUE}"}, {"command": []},
     {"command": [VALUE, 3]}, {"env": "A", "file": VALUE}, {}, [VALUE], 3, None, {VALUE: VALUE}],
)  # fmt: skip
def test_a_source_of_no_known_form_is_refused_and_not_repeated(source: object) -> None:
    with pytest.raises(ConfigError) as caught:
        profile_from_table({"type": "local", "secrets": {"TOKEN": source}}, "p")
    assert str(caught.value).startswith("p: 'secrets': TOKEN: a secret's source is env:NAME")
    assert VALUE not in str(caught.value)


@pytest.mark.parametrize("secrets", [[f"A={VALUE}"], [3], {f"A {VALUE}": "env:A"}, VALUE, 3])
def test_secrets_without_proper_names_are_refused_and_not_repeated(secrets: object) -> None:
    with pytest.raises(ConfigError) as caught:
        profile_from_table({"type": "local", "secrets": secrets}, "p")
    assert VALUE not in str(caught.value)


@given(st.text(min_size=1))
def test_a_secret_shows_its_name_only(value: str) -> None:
    secret = Secret("TOKEN", value)
    assert {repr(secret), str(secret), f"{secret}", repr([secret])[1:-1]} == {"Secret('TOKEN')"}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_cannot_be_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="TOKEN cannot be pickled"):
        pickle.dumps(Secret("TOKEN", VALUE), protocol)


def test_a_secret_cannot_be_copied_or_turned_into_json() -> None:
    with pytest.raises(TypeError):
        copy.deepcopy(Secret("TOKEN", VALUE))
    with pytest.raises(TypeError):
        json.dumps(Secret("TOKEN", VALUE))


def test_a_source_shows_no_arguments_of_its_command() -> None:
    assert str(SecretSource.parse({"command": ["pass", "show", VALUE]})) == "command pass"
