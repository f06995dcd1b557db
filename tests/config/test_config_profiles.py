"""Profiles: what is accepted, and how what is wrong is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.config import registry
from hermes_exec.config.check import profile_from_table
from hermes_exec.config.load import profiles_from_mapping
from hermes_exec.config.secrets import SecretSource
from hermes_exec.config.values import Bind, format_size, parse_size
from hermes_exec.errors import ConfigError
from hermes_exec_backends.profiles import (
    DaytonaProfile,
    DockerProfile,
    LocalProfile,
    ModalProfile,
    SingularityProfile,
    SlurmProfile,
    SshProfile,
)

if TYPE_CHECKING:
    from hermes_exec.config.profile import Profile

SEEDS: dict[str, object] = {
    "local": {"type": "shell", "shell": "/bin/bash"},
    "sandbox": {"type": "docker", "image": "python:3.11"},
    "gpu_cluster": {"type": "modal", "gpu": "A100", "timeout": 3600, "secrets": ["HUGGINGFACE_TOKEN"]},
    "remote_server": {"type": "ssh", "host": "agent.example.com", "key_path": "~/.ssh/agent_key"},
}
MODELS: list[type[Profile]] = [
    LocalProfile,
    DockerProfile,
    SshProfile,
    SingularityProfile,
    ModalProfile,
    DaytonaProfile,
    SlurmProfile,
]
LEAST: dict[str, dict[str, object]] = {"ssh": {"host": "h"}, "singularity": {"image": "x.sif"}}
MARK = "hunter2-the-password"


def complaint(table: object, folder: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        profile_from_table(table, "profile 'p' in f.toml", folder)
    return str(caught.value)


def test_the_short_form_is_accepted_as_it_stands() -> None:
    profiles = profiles_from_mapping(SEEDS)
    assert profiles["local"] == LocalProfile(shell="/bin/bash")
    assert profiles["sandbox"] == DockerProfile(image="python:3.11")
    source = SecretSource("env", ("HUGGINGFACE_TOKEN",))
    assert profiles["gpu_cluster"] == ModalProfile(gpu="A100", timeout=3600, secrets={"HUGGINGFACE_TOKEN": source})
    key = Path("~/.ssh/agent_key").expanduser()
    assert profiles["remote_server"] == SshProfile(host="agent.example.com", key_path=key)


def test_the_short_form_is_accepted_from_a_json_file(tmp_path: Path) -> None:
    (tmp_path / "seeds.json").write_text(json.dumps(SEEDS))
    assert profiles_from_mapping(tmp_path / "seeds.json") == profiles_from_mapping(SEEDS)


def test_shell_is_another_word_for_local() -> None:
    assert profile_from_table({"type": "shell"}, "p").type == "local"
    assert LocalProfile.model_validate({"type": "shell"}) == LocalProfile()


def test_apptainer_is_another_word_for_singularity() -> None:
    assert profile_from_table({"type": "apptainer", "image": "a.sif"}, "p").type == "singularity"


def test_a_type_of_another_kind_is_refused_by_a_model() -> None:
    with pytest.raises(ValueError, match="local"):
        LocalProfile.model_validate({"type": "docker"})


def test_an_unknown_key_names_the_nearest_known_one_and_the_file() -> None:
    said = complaint({"type": "docker", "imgae": "x"})
    assert said == "profile 'p' in f.toml: unknown key 'imgae'; the nearest known one is 'image'"


def test_an_unknown_type_names_the_nearest_known_one() -> None:
    assert "unknown type 'dokcer'; the nearest known one is 'docker'" in complaint({"type": "dokcer"})


def test_a_missing_type_is_said_to_be_missing() -> None:
    assert "'type' is missing" in complaint({"image": "x"})


@pytest.mark.parametrize("table", ["docker", ["docker"], None, 3])
def test_a_profile_that_is_no_table_is_refused(table: object) -> None:
    assert "should be a table" in complaint(table)


def test_each_problem_has_a_line_of_its_own() -> None:
    said = complaint({"type": "ssh", "port": "22", "agent": "yes", "hots": "h"})
    assert sorted(said.splitlines()) == [
        "profile 'p' in f.toml: 'agent' should be true or false, not text",
        "profile 'p' in f.toml: 'host' is missing",
        "profile 'p' in f.toml: 'port' should be a whole number, not text",
        "profile 'p' in f.toml: unknown key 'hots'; the nearest known one is 'host'",
    ]


def test_the_problems_of_all_profiles_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        profiles_from_mapping({"a": {"type": "ssh"}, "b": {"type": "local", "shel": "x"}}, "s.json")
    assert str(caught.value).splitlines() == [
        "profile 'a' in s.json: 'host' is missing",
        "profile 'b' in s.json: unknown key 'shel'; the nearest known one is 'shell'",
    ]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kind())
@pytest.mark.parametrize(
    "wrong", [MARK, [MARK], {MARK: MARK}, {"x": MARK}, {"x": [MARK]}, [{"source": MARK}], [[MARK]], -1, True]
)
def test_no_complaint_repeats_a_value(model: type[Profile], wrong: object) -> None:
    for field in model.model_fields:
        if field == "type":
            continue
        table = {"type": model.kind(), **LEAST.get(model.kind(), {}), field: wrong}
        try:
            profile_from_table(table, "p")
        except ConfigError as error:
            said = str(error).replace(f"env.{MARK}", "").replace(f".{MARK}'", "")  # the name of a key
            assert MARK not in said
            assert "pydantic" not in said


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kind())
def test_every_model_is_found_by_its_type(model: type[Profile]) -> None:
    assert registry.find_profile_model(model.kind()) is model


def test_a_profile_cannot_be_changed() -> None:
    profile = LocalProfile()
    with pytest.raises(ValueError, match="frozen"):
        setattr(profile, "cwd", "/")  # noqa: B010  the type checkers know already that it cannot be assigned


def test_values_of_variables_are_not_in_the_repr() -> None:
    assert MARK not in repr(LocalProfile(env={"A": MARK}))


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    profile = profile_from_table({"type": "docker", "dockerfile": "docker/Dockerfile"}, "p", tmp_path)
    assert cast("DockerProfile", profile).dockerfile == tmp_path / "docker/Dockerfile"


def test_home_in_a_path_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    profile = profile_from_table({"type": "ssh", "host": "h", "key_path": "~/k"}, "p", Path("/elsewhere"))
    assert cast("SshProfile", profile).key_path == tmp_path / "k"


def test_binds_are_read_only_unless_asked_for() -> None:
    table = {"type": "docker", "binds": ["/a:/b", "/c:/d:rw", {"source": "/e", "target": "/f"}]}
    assert cast("DockerProfile", profile_from_table(table, "p")).binds == (
        Bind(source="/a", target="/b"),
        Bind(source="/c", target="/d", writable=True),
        Bind(source="/e", target="/f"),
    )


@pytest.mark.parametrize("bind", ["/a", "/a:/b:rx", "a:b:c:d", ":", "-v:/x", 3])
def test_a_bind_that_is_none_is_refused(bind: object) -> None:
    assert "binds[0]" in complaint({"type": "docker", "binds": [bind]})


@pytest.mark.parametrize(
    ("kind", "key"),
    [("docker", "image"), ("docker", "user"), ("docker", "network"), ("ssh", "host"), ("ssh", "user")],
)
@pytest.mark.parametrize("value", ["-oProxyCommand=x", "", "a\nb", "a b"])
def test_what_becomes_a_word_of_an_argv_cannot_be_an_option(kind: str, key: str, value: str) -> None:
    assert f"'{key}' should be" in complaint({"type": kind, **LEAST.get(kind, {}), key: value})


@pytest.mark.parametrize("host", ["me@host", "host:22", "a/b", "[::1]"])
def test_a_host_is_the_host_alone(host: str) -> None:
    assert "'host' should be the host alone" in complaint({"type": "ssh", "host": host})


@pytest.mark.parametrize("gpus", [True, -1, "", "--all", 1.5, ["A100"]])
def test_gpus_that_are_neither_a_number_nor_a_kind_are_refused(gpus: object) -> None:
    assert "'gpus' should be" in complaint({"type": "docker", "gpus": gpus})


@pytest.mark.parametrize("gpus", [2, "all", "A100", "H100:2"])
def test_gpus_are_a_number_or_a_kind(gpus: object) -> None:
    assert cast("DockerProfile", profile_from_table({"type": "docker", "gpus": gpus}, "p")).gpus == str(gpus)


@pytest.mark.parametrize("time", ["30", "30:00", "02:00:00", "1-12", "1-12:30:00"])
def test_slurm_takes_the_times_that_sbatch_takes(time: str) -> None:
    assert SlurmProfile(time=time).time == time


@pytest.mark.parametrize("time", ["", "2h", "1:2:3:4", "-1", "1-", "02:00:00\n"])
def test_slurm_refuses_other_times(time: str) -> None:
    assert "'time' should be a time" in complaint({"type": "slurm", "time": time})


@pytest.mark.parametrize(
    "table",
    [
        {"type": "docker", "container": "c", "image": "i"},
        {"type": "docker", "reuse": True},
        {"type": "singularity"},
        {"type": "singularity", "image": "i", "instance": "n"},
        {"type": "modal", "sandbox": "s", "image": "i"},
        {"type": "modal", "memory": "2 GiB", "memory_limit": "1 GiB"},
        {"type": "modal", "gpu": "A100", "generation": "v2"},
        {"type": "daytona", "image": "i", "snapshot": "s"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(table: object) -> None:
    assert complaint(table).startswith("profile 'p' in f.toml: ")


@pytest.mark.parametrize("lease", [0, -1.0, float("inf"), float("nan")])
def test_a_lease_is_a_positive_number_of_seconds(lease: float) -> None:
    assert "'lease_s'" in complaint({"type": "local", "lease_s": lease})


def test_sizes_may_have_units() -> None:
    profile = profile_from_table({"type": "docker", "memory": "512m", "max_output": "2 MB"}, "p")
    assert cast("DockerProfile", profile).memory == 512 << 20
    assert profile.max_output == 2_000_000


@pytest.mark.parametrize("size", ["8 potatoes", "", "MiB", "-1", "1e3", "٣ MB", "1,5 GB", "inf"])
def test_what_is_no_size_is_refused(size: str) -> None:
    assert "'max_output' should be a size" in complaint({"type": "local", "max_output": size})


def test_a_size_that_no_machine_has_is_refused() -> None:
    assert "'max_output' should be less than" in complaint({"type": "local", "max_output": "99999999999999 TiB"})


@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_shown_size_reads_as_itself(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a+b", "-a", "a/b", "é"])
def test_a_profile_with_a_name_that_no_target_can_say_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        profiles_from_mapping({name: {"type": "local"}})


def test_the_name_local_means_this_machine() -> None:
    with pytest.raises(ConfigError, match="this machine"):
        profiles_from_mapping({"local": {"type": "ssh", "host": "h"}})


@pytest.mark.parametrize("name", ["A=B", "", "A\0"])
def test_a_variable_that_no_program_can_be_given_is_refused(name: str) -> None:
    assert "'env' names a variable" in complaint({"type": "local", "env": {name: "x"}})
