"""``skill import``: skills from folders, archives and repositories, and nothing from hostile ones."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.skills.registry.git_source import GitAddress
from hermes_exec_agent.skills.registry.home import RegistryHome, default_home
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.registry.sources import open_source
from tests.rigs.git_server import commit_files, run_git, serve_repositories
from tests.rigs.skill_makers import FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.conftest import Require

SkillCommand = Any
"""Runs ``hermes-exec skill …`` in folders of one test."""


def guide(name: str, body: str = "Read the log first.") -> str:
    return f"---\nname: {name}\ndescription: Finds errors in logs of {name}.\n---\n{body}\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.fixture
def skill(environ: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*argv: str, stdin: int = subprocess.DEVNULL, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-m", "hermes_exec", "skill", *argv]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=stdin, env={**environ, **more}, cwd=tmp_path
        )

    return run


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def registered(environ: dict[str, str]) -> dict[str, int]:
    """The number of versions of each skill."""
    home = default_home(environ)
    return {name: len(each.versions) for name, each in Registry(home).skills().items()} if home.log.exists() else {}


def refused(home: RegistryHome, source: str, work: Path, name: str = "") -> HermesError:
    """The error of an import, after which nothing is in its folder but what git fetched."""
    (into := work / "into").mkdir(parents=True)

    def copy() -> None:
        opened = open_source(source, work, Registry(home))
        opened.copy(name or opened.choose([], everything=False)[0], into)

    with pytest.raises(HermesError) as caught:
        copy()
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def test_a_repository_is_imported_and_its_update_is_asked_for(
    skill: SkillCommand, environ: dict[str, str], tmp_path: Path
) -> None:
    (root := tmp_path / "served").mkdir()
    commit = commit_files(root / "repo", {"skills/logs/SKILL.md": guide("logs"), "skills/mail/SKILL.md": guide("mail")})
    with serve_repositories(root) as server:
        trusting = {"GIT_SSL_CAINFO": str(server.certificate)}
        url = f"{server.url}/repo"
        several = skill("import", url, **trusting)
        assert (several.returncode, several.stdout) == (2, "")
        assert several.stderr.splitlines() == [
            "hermes-exec: the source has 2 skills: logs, mail. Try: their names, or --all"
        ]
        assert registered(environ) == {}
        assert skill("import", url, "logs", **trusting).returncode == 0
        shown = json.loads(skill("show", "logs", "--json").stdout)
        assert (shown["origin"]["source"], shown["origin"]["revision"]) == (url, commit)
        assert (shown["origin"]["digest"], shown["rights"], shown["trusted"]) == (shown["digest"], ["read"], False)
        assert skill("trust", "logs").returncode == 0
        again = skill("import", url, "logs", **trusting)
        assert (again.returncode, registered(environ)) == (0, {"logs": 1})

        commit_files(root / "repo", {"skills/logs/SKILL.md": guide("logs", "Delete the log first.")})
        unasked = skill("import", f"{url}@main#subdirectory=skills/logs", **trusting)
        assert (unasked.returncode, registered(environ)) == (2, {"logs": 1})
        assert "+Delete the log first." in unasked.stdout.splitlines()
        assert "Try: --yes" in unasked.stderr
        assert skill("import", url, "logs", "--yes", **trusting).returncode == 0
        shown = json.loads(skill("show", "logs", "--json").stdout)
        assert (shown["number"], shown["trusted"]) == (2, False)
        old = skill("import", f"{url}@{commit}", "mail", "logs", "--yes", **trusting)
        assert (old.returncode, registered(environ)) == (0, {"logs": 3, "mail": 1}), old.stderr


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("git+https://me:secret-word@example.org/repo", "a password"),
        ("git+https://secret-word@example.org/repo", "a password"),
        ("git+ext://sh -c true", "is not read"),
        ("https://example.org/repo", "is not read"),
        ("git+https://example.org", "incomplete"),
        ("git+https://example.org/repo?token=secret-word", "query"),
        ("git+ssh://-oProxyCommand=true/repo", "unsafe"),
        ("git+https://example.org/repo@--upload-pack=true", "not a branch"),
        ("git+https://example.org/repo@a..b", "not a branch"),
        ("git+https://example.org/repo#subdirectory=../x", "does not name a folder"),
        ("git+https://example.org:x/repo", "invalid"),
    ],
)
def test_an_unsafe_address_is_refused_without_its_password(
    home: RegistryHome, tmp_path: Path, address: str, why: str
) -> None:
    error = refused(home, address, tmp_path / "work")
    assert isinstance(error, UsageError)
    assert why in str(error)
    assert "secret-word" not in str(error)


def test_an_address_is_parsed() -> None:
    found = GitAddress.parse("git+ssh://git@example.org/a/repo.git@feature/x#subdirectory=skills/one")
    assert (found.url, found.revision) == ("ssh://git@example.org/a/repo.git", "feature/x")
    assert (found.subdirectory, found.name) == ("skills/one", "one")


def test_a_redirect_to_another_protocol_is_refused(
    home: RegistryHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root := tmp_path / "served").mkdir()
    commit_files(root / "repo", {"SKILL.md": guide("logs")})
    with serve_repositories(root, redirect=f"file://{root}") as server:
        monkeypatch.setenv("GIT_SSL_CAINFO", str(server.certificate))
        assert isinstance(refused(home, f"{server.url}/redirect/repo", tmp_path / "one"), UsageError)
        assert [path.split("/")[1] for path in server.requests] == ["redirect"]
        assert "no revision 'nothing'" in str(refused(home, f"{server.url}/repo@nothing", tmp_path / "two"))


def test_nothing_of_a_repository_runs_or_is_followed(home: RegistryHome, tmp_path: Path) -> None:
    repository, ran = tmp_path / "repo", tmp_path / "ran"
    commit_files(tmp_path / "inner", {"file": "x"})
    commit_files(
        repository,
        {
            "logs/SKILL.md": guide("logs"),
            "logs/data.txt": "$Id$\r\n",
            ".gitattributes": "*.txt ident filter=evil export-ignore\n",
            "linked/SKILL.md": guide("linked"),
            "nested/SKILL.md": guide("nested"),
        },
    )
    (repository / "linked/secret").symlink_to("/etc/passwd")
    run_git(
        repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"{tmp_path}/inner", "nested/in"
    )
    commit_files(repository, {})
    run_git(repository, "config", "filter.evil.smudge", f"touch {ran}")
    for hook in ("post-checkout", "post-upload-pack", "reference-transaction"):
        (repository / ".git/hooks" / hook).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (repository / ".git/hooks" / hook).chmod(0o755)
    source = f"git+file://{repository}"
    (into := tmp_path / "into").mkdir()
    tree = open_source(source, tmp_path, Registry(home)).copy("logs", into)
    assert tree.read("data.txt") == b"$Id$\r\n"
    assert "a link" in str(refused(home, source, tmp_path / "one", "linked"))
    assert "a submodule" in str(refused(home, source, tmp_path / "two", "nested"))
    assert not ran.exists()


def test_a_bomb_in_a_repository_is_refused_unread(home: RegistryHome, tmp_path: Path) -> None:
    commit_files(tmp_path / "repo", {"logs/SKILL.md": guide("logs"), "logs/big": bytes(40 << 20)})
    assert "MiB" in str(refused(home, f"git+file://{tmp_path}/repo", tmp_path / "work"))


def tar_with(*members: tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        text = guide("logs").encode()
        first = tarfile.TarInfo("logs/SKILL.md")
        first.size = len(text)
        archive.addfile(first, io.BytesIO(text))
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return stream.getvalue()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, *, mode: int = 0o644, link: str = "", size: int = 0
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.linkname, made.size = kind, mode, link, size
    return made


HOSTILE: dict[str, Callable[[], bytes]] = {
    "parent": lambda: tar_with(member("logs/../../escaped")),
    "absolute": lambda: tar_with(member("/tmp/escaped")),
    "link": lambda: tar_with(member("logs/x", tarfile.SYMTYPE, link="/etc/passwd")),
    "hard-link": lambda: tar_with(member("logs/x", tarfile.LNKTYPE, link="logs/SKILL.md")),
    "device": lambda: tar_with(member("logs/x", tarfile.CHRTYPE)),
    "fifo": lambda: tar_with(member("logs/x", tarfile.FIFOTYPE)),
    "set-id": lambda: tar_with(member("logs/x", mode=0o4755)),
    "twice": lambda: tar_with(member("logs/SKILL.md")),
    "bomb": lambda: tar_with(*(member(f"logs/{number}", size=30 << 20) for number in range(6))),
    "half": lambda: tar_with()[:-20],
    "nonsense": lambda: b"no archive",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_leaves_nothing(home: RegistryHome, tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.tar.gz").write_bytes(HOSTILE[kind]())
    refused(home, str(tmp_path / "x.tar.gz"), tmp_path / "work")
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "SKILL.md"]
    assert left == [tmp_path / "x.tar.gz"]


def test_of_two_imports_at_once_one_is_no_update_of_the_other(skill: SkillCommand, tmp_path: Path) -> None:
    for number in "12":
        write(tmp_path / number, {"logs/SKILL.md": f"{guide('logs')}{number}\n"})
    with ThreadPoolExecutor(2) as threads:
        codes = [each.returncode for each in threads.map(skill, ("import", "import"), ("1/logs", "2/logs"))]
    assert sorted(codes) in ([0, 2], [0, 125])  # asked for, or changed meanwhile
    assert json.loads(skill("show", "logs", "--json").stdout)["number"] == 1


def test_archives_and_folders_are_imported_whole_or_not_at_all(
    skill: SkillCommand, environ: dict[str, str], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as archive:
        archive.writestr("pack-main/README.md", "x")
        archive.writestr("pack-main/logs/SKILL.md", guide("logs"))
        archive.writestr("pack-main/logs/.skillignore", "secret.txt\n")
        archive.writestr("pack-main/logs/secret.txt", "x")
    assert skill("import", "pack.zip").returncode == 0
    shown = json.loads(skill("show", "logs", "--json").stdout)
    assert {each["path"] for each in shown["files"]} == {"SKILL.md", ".skillignore", "secret.txt"}

    write(tmp_path / "some", {"mail/SKILL.md": guide("mail"), "other/SKILL.md": guide("another")})
    wrong = skill("import", "./some", "--all")
    assert (wrong.returncode, registered(environ)) == (1, {"logs": 1})
    (line,) = [line for line in wrong.stderr.splitlines() if "another" in line]
    assert "other" in line
    assert skill("import", "./some", "mail").returncode == 0
    unknown = skill("import", "./some", "nail")
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (2, 1)
    assert "'mail'" in unknown.stderr
    (tmp_path / "empty").mkdir()
    assert skill("import", "./empty").returncode == 2
    assert registered(environ) == {"logs": 1, "mail": 1}


@pytest.mark.timeout(300)
def test_a_function_that_does_not_pass_is_a_guide(skill: SkillCommand, tmp_path: Path, require: Require) -> None:
    require("bwrap", "makes the sandbox")
    tests = (
        "import pathlib\nimport sys\n\n"
        "sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'scripts'))\nimport main\n\n\n"
        "def test_adds():\n    assert (main.run(1, 2), main.run(-4, 9), main.run(5, 0)) == (%d, 5, 5)\n"
    )
    write(tmp_path / "add-numbers", {**FILES, "tests/test_main.py": tests % 4})
    done = skill("import", "./add-numbers")
    assert done.returncode == 0, done.stderr
    assert "it cannot be called as a function" in done.stderr
    shown = json.loads(skill("show", "add-numbers", "--json").stdout)
    assert shown["rights"] == ["read", "scripts"]
    assert "it cannot be called" in skill("show", "add-numbers").stdout
    write(tmp_path / "add-numbers", {**FILES, "tests/test_main.py": tests % 3})
    assert skill("import", "./add-numbers", "--yes").returncode == 0
    shown = json.loads(skill("show", "add-numbers", "--json").stdout)
    assert (shown["rights"], shown["origin"]["kind"]) == (["read", "scripts", "call"], "imported")
    exported = skill("export", "add-numbers", "--bundle", "add.tar.gz")
    assert exported.returncode == 0
    again = skill("import", "add.tar.gz")
    assert (again.returncode, "signed by" in again.stderr) == (0, True)
