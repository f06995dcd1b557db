"""Layers: which file, variable or flag decides, and what is said when one of them is wrong."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from hermes_exec.config.load import (
    Overrides,
    Settings,
    check,
    distrust,
    find_project_file,
    is_trusted,
    load_settings,
    resolve,
    trust,
    write_default,
)
from hermes_exec.config.paths import audit_file, state_folder, trust_file, user_file
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = '[backends.{name}]\ntype = "docker"\nimage = "{image}"\n'


@dataclass
class Person:
    """Someone with a home folder and a project, neither of them ours."""

    home: Path
    project: Path
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def environ(self) -> dict[str, str]:
        return {"HOME": str(self.home), **self.variables}

    @property
    def user_file(self) -> Path:
        return self.home / ".config/hermes_exec/hermes.toml"

    @property
    def project_file(self) -> Path:
        return self.project / "hermes.toml"

    def writes(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def trusts(self, text: str) -> None:
        self.writes(self.project_file, text)
        trust(self.project_file, environ=self.environ)

    def settings(self, cwd: Path | None = None, **flags: object) -> Settings:
        overrides = Overrides(**flags)  # type: ignore[arg-type]  # wrong types are what some tests are about
        return load_settings(cwd=cwd or self.project, environ=self.environ, flags=overrides)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    (project / ".git").mkdir(parents=True)
    return Person(home, project)


def test_without_any_configuration_it_is_this_machine(person: Person) -> None:
    settings = person.settings()
    assert [profile.type for profile in resolve(None, settings).chain] == ["local"]
    assert settings.warnings == ()
    assert settings.files == ()


def test_reading_settings_changes_nothing_on_disk(person: Person) -> None:
    person.settings()
    assert list(person.home.iterdir()) == []


def test_each_layer_is_stronger_than_the_one_after_it(person: Person) -> None:
    person.writes(person.user_file, 'default = "docker:user"\n[limits]\ntimeout_s = 1\nmax_output = 11\n')
    assert person.settings().default == "docker:user"
    person.trusts('default = "docker:project"\n[limits]\ntimeout_s = 2\n')
    assert person.settings().default == "docker:project"
    assert person.settings().limits.timeout_s == 2
    assert person.settings().limits.max_output == 11
    person.variables = {"HERMES_EXEC_ON": "docker:variable", "HERMES_EXEC_TIMEOUT": "3"}
    assert person.settings().default == "docker:variable"
    assert person.settings().limits.timeout_s == 3
    settings = person.settings(on="docker:flag", timeout_s=4.0, max_output="1 MiB")
    assert settings.default == "docker:flag"
    assert settings.limits.timeout_s == 4
    assert settings.limits.max_output == 1 << 20


def test_the_origin_of_the_default_target_is_told(person: Person) -> None:
    person.variables = {"HERMES_EXEC_ON": "sandbax"}
    with pytest.raises(ConfigError, match=r"default target \(HERMES_EXEC_ON\): no profile .* 'sandbax'"):
        resolve(None, person.settings())


def test_a_profile_of_the_users_file_is_found_by_its_name(person: Person) -> None:
    person.writes(person.user_file, DOCKER.format(name="sandbox", image="python:3.11"))
    settings = person.settings()
    assert resolve("sandbox", settings).profile.target_text() == "docker:python:3.11"
    assert settings.profiles.entries["sandbox"].origin.layer == "user"
    assert settings.files == (person.user_file,)


def test_the_users_file_is_where_xdg_says(person: Person, tmp_path: Path) -> None:
    person.variables = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    person.writes(tmp_path / "xdg/hermes_exec/hermes.toml", 'default = "docker:xdg"')
    assert person.settings().default == "docker:xdg"


def test_a_relative_xdg_folder_is_ignored_as_its_specification_says(person: Person) -> None:
    environ = {"HOME": str(person.home), "XDG_CONFIG_HOME": "relative", "XDG_STATE_HOME": "./x"}
    assert user_file(environ) == person.user_file
    assert audit_file(environ) == person.home / ".local/state/hermes_exec/audit.jsonl"


def test_a_file_that_was_named_is_read_instead_of_the_users(person: Person, tmp_path: Path) -> None:
    person.writes(person.user_file, 'default = "docker:user"')
    person.writes(tmp_path / "other.toml", 'default = "docker:other"')
    assert person.settings(config=tmp_path / "other.toml").default == "docker:other"
    person.variables = {"HERMES_EXEC_CONFIG": str(tmp_path / "other.toml")}
    assert person.settings().default == "docker:other"


def test_a_file_that_was_named_may_be_the_short_form_in_json(person: Person, tmp_path: Path) -> None:
    person.writes(tmp_path / "seeds.json", '{"sandbox": {"type": "docker", "image": "x"}}')
    assert resolve("sandbox", person.settings(config=tmp_path / "seeds.json")).profile.type == "docker"


def test_a_file_that_was_named_must_be_there(person: Person, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"other\.toml: No such file"):
        person.settings(config=tmp_path / "other.toml")


def test_a_profile_that_is_wrong_is_in_nobodys_way(person: Person) -> None:
    person.writes(person.user_file, '[backends.bad]\ntype = "dokcer"\n[backends.good]\ntype = "local"\n')
    settings = person.settings()
    assert resolve("good", settings).profile.type == "local"
    with pytest.raises(ConfigError, match=r"profile 'bad' in .*hermes.toml: unknown type 'dokcer'"):
        resolve("bad", settings)


def test_checking_tells_every_problem(person: Person) -> None:
    text = 'default = "nowhere"\n[backends.a]\ntype = "ssh"\n[backends.b]\ntype = "docker"\nvia = "a"\n'
    person.writes(person.user_file, text + '[backends.c]\ntype = "local"\nvia = "gone"')
    file = person.user_file
    problems = check(person.settings())
    assert [re.split(r"; |\. Try: ", problem)[0] for problem in problems] == [
        f"profile 'a' in {file}: 'host' is missing",
        f"'b' is inside of 'a': profile 'a' in {file}: 'host' is missing",
        "'c' is inside of 'gone': no profile and no kind of target is called 'gone'",
        f"default target ({file}): no profile and no kind of target is called 'nowhere'",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default = 3", "'default' should be the name"),
        ("backends = 3", "'backends' should be a table"),
        ("limits = 3", "'limits' should be a table"),
        ("defualt = 'x'", "unknown key 'defualt'; the nearest known one is 'default'"),
        (
            "[sandbox]\ntype = 'docker'",
            r"unknown key 'sandbox'; known ones are agent, .*, models\. Try: \[backends.sandbox\]",
        ),
        ("[backend.build]\ntype = 'docker'", r"unknown key 'backend'; the nearest known one is 'backends'$"),
        ("[limits]\ntimeout = 3", r"\[limits\] in .*: unknown key 'timeout'; .* 'timeout_s'"),
        ("[limits]\ntimeout_s = '3'", "'timeout_s' should be a number, not text"),
        ("[audit]\nkeep = -1", "'keep' should be greater than or equal to 0"),
        ("[backends.'a b']\ntype = 'local'", "a profile cannot be called 'a b'"),
        ("[backends.x\n", "at line 1"),
        ("x = 1\nx = 2\n", "at line 2"),
        ("\xff", "hermes.toml: byte 1 is not valid UTF-8. Try: save it as UTF-8"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(person: Person, text: str, said: str) -> None:
    person.user_file.parent.mkdir(parents=True)
    person.user_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=said) as caught:
        person.settings()
    assert str(person.user_file) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TIMEOUT", "soon", "HERMES_EXEC_TIMEOUT: 'timeout_s' should be a number, not text"),
        ("TIMEOUT", "nan", "HERMES_EXEC_TIMEOUT"),
        ("MAX_OUTPUT", "much", "HERMES_EXEC_MAX_OUTPUT: 'max_output' should be a size"),
        ("AUDIT", "maybe", "HERMES_EXEC_AUDIT: 'enabled' should be true or false"),
        ("LOG", "loud", "HERMES_EXEC_LOG: 'level' should be 'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_wrong_variable_is_named(person: Person, name: str, value: str, said: str) -> None:
    person.variables = {f"HERMES_EXEC_{name}": value}
    with pytest.raises(ConfigError, match=said):
        person.settings()


def test_a_wrong_flag_is_named(person: Person) -> None:
    with pytest.raises(ConfigError, match="--log-format: 'format' should be 'text' or 'json'"):
        person.settings(log_format="xml")


def test_a_file_larger_than_any_configuration_is_not_read(person: Person) -> None:
    person.writes(person.user_file, "#" * (1 << 20) + "\n")
    with pytest.raises(ConfigError, match=r"hermes\.toml: larger than 1048576 bytes"):
        person.settings()


def test_an_empty_variable_is_one_that_is_not_set(person: Person) -> None:
    names = ["ON", "CONFIG", "TIMEOUT", "MAX_OUTPUT", "AUDIT", "LOG", "LOG_FORMAT"]
    person.variables = {f"HERMES_EXEC_{name}": "" for name in names}
    assert person.settings().default == "local"


def test_the_audit_can_be_turned_off_and_on_by_variable(person: Person) -> None:
    person.writes(person.user_file, "[audit]\nenabled = false\n")
    assert not person.settings().audit.enabled
    person.variables = {"HERMES_EXEC_AUDIT": "on"}
    assert person.settings().audit.enabled


def test_a_misspelt_variable_is_warned_of_with_the_nearest_one(person: Person) -> None:
    person.variables = {"HERMES_EXEC_TIMEOT": "3", "HERMES_EXEC_LIVE": "1", "HERMES_EXEC_OTHER": "x"}
    assert person.settings().warnings == ("the variable HERMES_EXEC_TIMEOT has no effect. Try: HERMES_EXEC_TIMEOUT",)


def test_a_users_file_that_everybody_can_change_is_warned_of(person: Person) -> None:
    person.writes(person.user_file, "")
    person.user_file.chmod(0o666)
    (warning,) = person.settings().warnings
    assert f"Try: chmod o-w {person.user_file}" in warning


# The project's file


def test_the_nearest_file_up_to_the_repositorys_root_is_the_projects(person: Person) -> None:
    deep = person.project / "a/b/c"
    deep.mkdir(parents=True)
    assert find_project_file(deep) is None
    person.project_file.touch()
    assert find_project_file(deep) == person.project_file
    (person.project / "a/hermes.toml").touch()
    assert find_project_file(deep) == person.project / "a/hermes.toml"


def test_above_the_repositorys_root_nothing_is_looked_for(person: Person) -> None:
    (person.project.parent / "hermes.toml").touch()
    assert find_project_file(person.project) is None


def test_without_a_repository_only_the_folder_itself_is_looked_into(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/hermes.toml").touch()
    assert find_project_file(tmp_path / "a/b") is None
    assert find_project_file(tmp_path / "a") == tmp_path / "a/hermes.toml"


def test_a_worktrees_root_is_a_repositorys_root(person: Person) -> None:
    (person.project / "tree/sub").mkdir(parents=True)
    (person.project / "tree/.git").write_text("gitdir: elsewhere")
    person.project_file.touch()
    assert find_project_file(person.project / "tree/sub") is None


def test_a_removed_working_directory_is_no_error(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = person.project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert load_settings(environ=person.environ).default == "local"


def test_a_project_file_that_is_not_trusted_is_ignored_with_a_line_that_says_how(person: Person) -> None:
    person.writes(person.project_file, 'default = "ssh://evil"\nthis is no toml')
    settings = person.settings()
    assert settings.default == "local"
    (warning,) = settings.warnings
    file = person.project_file
    assert warning == f"{file} is ignored: not trusted. Try: read it, then hermes-exec profile trust {file}"


def test_a_trusted_project_file_counts(person: Person) -> None:
    person.trusts(DOCKER.format(name="dev", image="x") + "dockerfile = 'Dockerfile'\n")
    settings = person.settings()
    assert settings.warnings == ()
    assert settings.profiles.entries["dev"].origin.layer == "project"
    profile = resolve("dev", settings).profile
    assert profile.model_dump()["dockerfile"] == person.project / "Dockerfile"


def test_one_byte_of_change_ends_the_trust(person: Person) -> None:
    person.trusts('default = "docker:x"')
    assert person.settings().default == "docker:x"
    person.writes(person.project_file, 'default = "docker:y"')
    settings = person.settings()
    assert settings.default == "local"
    assert "is ignored: changed since it was trusted. Try: read it, then" in settings.warnings[0]


def test_a_trusted_copy_elsewhere_is_not_trusted(person: Person, tmp_path: Path) -> None:
    person.trusts('default = "docker:x"')
    person.writes(tmp_path / "copy/hermes.toml", 'default = "docker:x"')
    assert person.settings(cwd=tmp_path / "copy").default == "local"


def test_a_project_file_never_shadows_a_users_profile(person: Person) -> None:
    person.writes(person.user_file, DOCKER.format(name="sandbox", image="mine"))
    person.trusts(DOCKER.format(name="sandbox", image="theirs"))
    settings = person.settings()
    assert resolve("sandbox", settings).profile.target_text() == "docker:mine"
    (warning,) = settings.warnings
    assert f"'sandbox' of {person.project_file} is ignored: {person.user_file} has one. Try: " in warning


@pytest.mark.parametrize("section", ["audit", "log"])
def test_a_project_has_no_say_in_the_record_of_what_it_does(person: Person, section: str) -> None:
    person.trusts(f"[{section}]\n")
    with pytest.raises(ConfigError, match=rf"\[{section}\] belongs in your own file"):
        person.settings()


def test_a_project_cannot_name_hooks(person: Person) -> None:
    person.trusts('hooks = ["record"]\n')
    with pytest.raises(ConfigError, match="'hooks' belongs in your own file"):
        person.settings()


def test_a_project_cannot_make_local_another_place(person: Person) -> None:
    person.trusts('[backends.local]\ntype = "ssh"\nhost = "evil"\n')
    with pytest.raises(ConfigError, match="can only be 'local'"):
        person.settings()


def test_the_users_own_file_is_not_a_projects_when_working_beside_it(person: Person) -> None:
    person.writes(person.user_file, 'default = "docker:x"')
    settings = person.settings(cwd=person.user_file.parent)
    assert settings.default == "docker:x"
    assert settings.warnings == ()


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "broken link", "large"])
def test_whatever_lies_under_the_projects_name_neither_blocks_nor_stops_us(person: Person, kind: str) -> None:
    match kind:
        case "fifo":
            os.mkfifo(person.project_file)
        case "device":
            person.project_file.symlink_to("/dev/zero")
        case "folder":
            person.project_file.mkdir()
        case "broken link":
            person.project_file.symlink_to("nowhere")
        case _:
            person.project_file.write_bytes(b"#" * (2 << 20))
    settings = person.settings()
    assert settings.default == "local"
    assert f"{person.project_file} is ignored: " in settings.warnings[0]
    assert settings.warnings[0].count(str(person.project_file)) == 1


def test_a_folders_name_cannot_move_the_terminals_cursor(person: Person) -> None:
    folder = person.project / "\x1b[2J\n"
    folder.mkdir()
    person.writes(folder / "hermes.toml", "")
    (warning,) = person.settings(cwd=folder).warnings
    assert warning.isprintable()


# Trust


def test_trust_is_noted_for_the_user_alone(person: Person) -> None:
    person.trusts("")
    note = trust_file(person.environ)
    assert note.stat().st_mode & 0o777 == 0o600
    assert state_folder(person.environ).stat().st_mode & 0o777 == 0o700
    assert [file.name for file in note.parent.iterdir()] == ["trust.json"]


def test_trust_ends_when_it_is_taken_back(person: Person) -> None:
    person.trusts("")
    assert is_trusted(person.project_file, environ=person.environ)
    assert distrust(person.project_file, environ=person.environ)
    assert not is_trusted(person.project_file, environ=person.environ)
    assert not distrust(person.project_file, environ=person.environ)


def test_a_file_that_changed_while_it_was_shown_is_not_trusted(person: Person) -> None:
    person.writes(person.project_file, "after")
    with pytest.raises(ConfigError, match="changed while you read it"):
        trust(person.project_file, content=b"before", environ=person.environ)
    assert not is_trusted(person.project_file, environ=person.environ)


def test_trust_follows_the_file_and_not_the_way_to_it(person: Person, tmp_path: Path) -> None:
    person.trusts("")
    (tmp_path / "link").symlink_to(person.project)
    assert is_trusted(tmp_path / "link/hermes.toml", environ=person.environ)


def test_a_file_that_is_not_there_cannot_be_trusted(person: Person) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        trust(person.project_file, environ=person.environ)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"files": 3}', "\x00"])
def test_a_damaged_record_of_trust_trusts_nothing_and_says_so(person: Person, damage: str) -> None:
    person.trusts('default = "docker:x"')
    trust_file(person.environ).write_text(damage)
    settings = person.settings()
    assert settings.default == "local"
    assert "trust.json is damaged" in settings.warnings[0]
    with pytest.raises(ConfigError, match="is damaged"):
        trust(person.project_file, environ=person.environ)


def test_a_record_of_trust_that_cannot_be_written_is_an_error(person: Person) -> None:
    person.writes(person.project_file, "")
    (person.home / ".local").symlink_to("/dev/null/nowhere")
    with pytest.raises(ConfigError, match=r"trust\.json cannot be (read|written): .*Try: export XDG_STATE_HOME="):
        trust(person.project_file, environ=person.environ)
    (person.home / ".local").unlink()
    (person.home / ".local").symlink_to(person.home / "nowhere" / "else")
    with pytest.raises(ConfigError, match=r"trust\.json cannot be written: .*Try: export XDG_STATE_HOME="):
        trust(person.project_file, environ=person.environ)


# The file to start from


def test_the_file_to_start_from_is_valid_and_private(person: Person) -> None:
    write_default(person.user_file)
    assert person.user_file.stat().st_mode & 0o777 == 0o600
    assert check(person.settings()) == []


def test_every_example_in_the_file_to_start_from_is_valid(person: Person) -> None:
    write_default(person.user_file)
    lines = person.user_file.read_text().splitlines()
    examples = [line[2:] if line.startswith(("# [", "# ")) and ("=" in line or "[" in line) else line for line in lines]
    person.user_file.write_text("\n".join(examples))
    settings = person.settings()
    assert {"sandbox", "server", "torch", "gpu"} < set(settings.profiles)
    assert check(settings) == []
    assert [profile.type for profile in resolve("torch", settings).chain] == ["singularity", "ssh"]


def test_a_file_that_is_there_is_never_overwritten(person: Person) -> None:
    person.writes(person.user_file, "mine")
    with pytest.raises(ConfigError, match="is there already"):
        write_default(person.user_file)
    assert person.user_file.read_text() == "mine"


def test_a_link_that_leads_nowhere_is_not_written_through(person: Person, tmp_path: Path) -> None:
    person.user_file.parent.mkdir(parents=True)
    person.user_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        write_default(person.user_file)
    assert not (tmp_path / "elsewhere").exists()
