"""One-line targets, and the chains that profiles make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hermes_exec.config import registry
from hermes_exec.config.targets import format_target, parse_target
from hermes_exec.errors import ConfigError, Unsupported
from hermes_exec_backends.profiles import (
    DockerProfile,
    LocalProfile,
    ModalProfile,
    SingularityProfile,
    SlurmProfile,
    SshProfile,
)

if TYPE_CHECKING:
    from hermes_exec.config.profile import Profile

CLUSTER: dict[str, Profile] = {
    "login": SshProfile(host="login.cluster.example"),
    "gpu_node": SlurmProfile(via="login", partition="gpu", gpus="1", time="02:00:00"),
    "torch": SingularityProfile(via="gpu_node", image="torch.sif"),
}

words = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1).filter(
    lambda text: not text.startswith(("-", "@"))
)
hosts = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.%+-]{0,20}", fullmatch=True)
users = st.none() | st.from_regex(r"[A-Za-z_][A-Za-z0-9_.@+%-]{0,10}", fullmatch=True)
profiles = st.one_of(
    st.just(LocalProfile()),
    st.builds(DockerProfile, image=words),
    st.builds(DockerProfile, container=words),
    st.builds(SingularityProfile, image=words | st.just("/a folder/x.sif")),
    st.builds(ModalProfile, image=words),
    st.builds(
        SshProfile,
        host=hosts | st.sampled_from(["::1", "fe80::1%eth0"]),
        user=users,
        port=st.none() | st.integers(1, 65535),
    ),
)


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_target(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("local", LocalProfile()),
        ("shell", LocalProfile()),
        ("docker", DockerProfile()),
        ("docker:python:3.11", DockerProfile(image="python:3.11")),
        ("docker:localhost:5000/a/b@sha256:00ff", DockerProfile(image="localhost:5000/a/b@sha256:00ff")),
        ("docker:@web", DockerProfile(container="web")),
        ("ssh://host", SshProfile(host="host")),
        ("ssh://me@host:2222", SshProfile(host="host", user="me", port=2222)),
        ("ssh://me@corp.example@host", SshProfile(host="host", user="me@corp.example")),
        ("ssh://[::1]:22", SshProfile(host="::1", port=22)),
        ("singularity:torch.sif", SingularityProfile(image="torch.sif")),
        ("apptainer:/a b/torch%2Bcu.sif", SingularityProfile(image="/a b/torch+cu.sif")),
        ("singularity:docker://python:3.11", SingularityProfile(image="docker://python:3.11")),
        ("modal", ModalProfile()),
        ("modal:@sb-1", ModalProfile(sandbox="sb-1")),
        ("  local ", LocalProfile()),
    ],
)
def test_a_one_line_target_stands_for_its_profile(text: str, profile: Profile) -> None:
    assert parse_target(text).chain == (profile,)


def test_a_plus_puts_the_first_place_inside_of_the_second() -> None:
    target = parse_target("docker:python:3.11+ssh://me@host")
    assert target.chain == (DockerProfile(image="python:3.11"), SshProfile(host="host", user="me"))
    assert target.profile is target.chain[0]


def test_a_profile_is_found_by_its_name() -> None:
    assert parse_target("login", CLUSTER).chain == (CLUSTER["login"],)


def test_a_profile_goes_before_a_type_of_the_same_name() -> None:
    mine = DockerProfile(image="mine")
    assert parse_target("docker", {"docker": mine}).chain == (mine,)


def test_via_is_followed_to_its_end() -> None:
    assert parse_target("torch", CLUSTER).chain == (CLUSTER["torch"], CLUSTER["gpu_node"], CLUSTER["login"])


def test_via_may_be_a_one_line_target() -> None:
    profile = DockerProfile(via="docker:dind+ssh://host")
    assert parse_target("x", {"x": profile}).chain == (
        profile,
        DockerProfile(image="dind"),
        SshProfile(host="host"),
    )


def test_a_named_place_can_be_the_outer_one() -> None:
    target = parse_target("docker:alpine+torch", CLUSTER)
    assert [profile.type for profile in target.chain] == ["docker", "singularity", "slurm", "ssh"]


def test_a_place_that_is_inside_of_one_already_cannot_be_put_into_another() -> None:
    with pytest.raises(ConfigError, match="'torch' is already inside of 'gpu_node'"):
        parse_target("torch+ssh://host", CLUSTER)


def test_a_place_inside_of_itself_is_refused() -> None:
    circle: dict[str, Profile] = {"a": LocalProfile(via="b"), "b": LocalProfile(via="docker+a")}
    with pytest.raises(ConfigError, match="'a' is inside of itself: a in b in a"):
        parse_target("a", circle)


def test_a_chain_without_an_end_in_sight_is_refused() -> None:
    deep: dict[str, Profile] = {f"p{n}": LocalProfile(via=f"p{n + 1}") for n in range(5000)}
    with pytest.raises(ConfigError, match="more than 8 targets"):
        parse_target("p0", deep)
    with pytest.raises(ConfigError, match="more than 8 targets"):
        parse_target("+".join(["local"] * 2000)[:4000])


def test_an_unknown_name_is_told_with_the_nearest_profile() -> None:
    with pytest.raises(ConfigError, match="called 'torhc'; the nearest is 'torch'"):
        parse_target("torhc", CLUSTER)


def test_an_unknown_type_is_told_with_the_nearest_one() -> None:
    assert "unknown type 'dokcer'; the nearest known one is 'docker'" in refused("dokcer:x")
    assert "unknown type 'podman'; its containers are of the type 'docker'" in refused("podman:x")


@pytest.mark.parametrize("text", ["nope", "nope:x"])
def test_a_word_that_is_like_no_known_one_is_told_without_a_guess(text: str) -> None:
    said = refused(text)
    assert "'nope'" in said
    assert "nearest" not in said


def test_a_type_that_is_known_but_not_there_is_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    row = registry.BuiltInType("hermes_exec_backends.profiles.attic:AtticProfile", "hermes_exec_backends.attic:Attic")
    monkeypatch.setitem(registry.BUILT_INS, "attic", row)
    with pytest.raises(Unsupported, match="this version has no backend for it"):
        parse_target("attic")


@pytest.mark.parametrize(
    "text",
    ["", "  ", "+", "local+", "+local", "docker:", ":x", "local:x", "ssh:host", "ssh://", "ssh://h:0",
     "ssh://h:99999", "ssh://h:x", "ssh://h/path", "ssh://a@", "docker:a b", "docker:-x", "a\nb", "a\0",
     "%ff", "%00", "docker:%0a", "x" * 5000, "slurm:x", "ssh", "singularity", "modal:@", "docker:@-x"],
)  # fmt: skip
def test_what_is_no_target_is_refused_in_one_line(text: str) -> None:
    said = refused(text)
    assert "\n" not in said
    assert said.isprintable()


@pytest.mark.parametrize(
    "text",
    ["ssh://me:hunter2@host", "ssh://me:hun+hunter2@host", "docker:x+ssh://me:hunter2@host",
     "ssh://me:p@hunter2@host", "ssh:me:hunter2@host", "ssh://me:hunter2+hunter2@host:22", "ssh://me:22+hunter2@host"],
)  # fmt: skip
def test_a_password_in_a_target_is_refused_and_not_repeated(text: str) -> None:
    assert "hunter2" not in refused(text)


def test_signs_that_a_target_gives_a_meaning_can_be_parts_of_a_name() -> None:
    profile = SingularityProfile(image="/a%2Bb+c@d/x y.sif")
    assert format_target(profile) == "singularity:/a%252Bb%2Bc@d/x y.sif"
    assert parse_target(format_target(profile)).chain == (profile,)


@settings(deadline=None)  # the first call imports, and machines may be busy
@given(st.text() | st.from_regex(r"(docker|ssh|local|singularity|modal|x)(:|://)?.*(\+.*)?"))
def test_any_text_is_a_target_or_is_refused_by_name(text: str) -> None:
    try:
        target = parse_target(text, CLUSTER)
    except (ConfigError, Unsupported) as error:
        said = str(error)
        assert said.isprintable()
        return
    assert parse_target(target.text, CLUSTER) == target


@given(st.lists(profiles, min_size=1, max_size=8))
def test_a_chain_of_profiles_reads_back_from_its_targets(chain: list[Profile]) -> None:
    text = "+".join(map(format_target, chain))
    assume(len(text) <= 4096)
    target = parse_target(text)
    assert target.chain == tuple(chain)
    assert target.text == text
