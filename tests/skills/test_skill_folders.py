"""A skill sees the folders of the machine that it was granted, as they were granted, and no others."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Refused, Unsupported, UsageError
from hermes_exec_agent.skills.registry.home import default_home
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import clouds, preconditions, runner
from hermes_exec_agent.tools.reader import ask_for_folders
from hermes_exec_agent.tools.tool import ReadDenied
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.canaries.prove import run_attempts
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.folders import SharedFolder, bind_folders, identify_folder, verify_shared, with_folders
from hermes_exec_policies.gate.grants import Grants, Needs, parse_needs
from hermes_exec_policies.load import load_policy, override_policy
from tests.conftest import require_part
from tests.rigs.breadth import thorough
from tests.rigs.layers import LAYERS, QUICK
from tests.rigs.skill_makers import PERSON, home_in, report_of, tree_in
from tests.tools.conftest import Somebody, agent_in

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.skills.registry.home import RegistryHome
    from hermes_exec_agent.skills.run.outcome import SkillOutcome
    from hermes_exec_policies.start_program import SandboxTarget
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)  # the first run of a policy proves it
TEXT = """
import os, shutil, subprocess

def run(a: int, b: int) -> dict:
    read, write = '/app/folders/invoices', '/app/folders/archive'
    def tried(act, *words):
        try:
            return act(*words)
        except OSError as error:
            return error.errno
    def text(path):
        with open(path) as file:
            return file.read()
    def put(path):
        with open(path, 'w') as file:
            return file.write('written')
    def started(path):
        shutil.copy('/bin/echo', path)
        os.chmod(path, 0o755)
        return subprocess.run([path]).returncode
    secret = text(read + '/where')
    return {
        'folders': sorted(os.listdir('/app/folders')),
        'read': tried(text, read + '/one'),
        'new': tried(put, read + '/new'), 'change': tried(put, read + '/one'),
        'remove': tried(os.unlink, read + '/one'),
        'mode': tried(os.chmod, read + '/one', 0o777), 'move': tried(os.rename, read + '/one', write + '/one'),
        'written': tried(put, write + '/new'), 'started': tried(started, write + '/echo'),
        'by link': tried(text, read + '/link'), 'by folder link': tried(os.listdir, read + '/above'),
        'by climbing': tried(text, read + '/../../..' + secret), 'by its path': tried(text, secret),
        'through process 1': tried(text, '/proc/1/root' + secret),
    }
"""
DENIED = {1, 13, 30}
ABSENT = {1, 2, 13}


def granted(home: RegistryHome, folder: Path, *folders: str) -> None:
    """The skill, registered as one that was granted these folders."""
    tree = tree_in(folder, {"scripts/main.py": TEXT})
    report = report_of(tree, grants=Grants(folders=folders).facts())
    Registry(home).register(tree, report, load_policy("skill-run"), author=PERSON, kernel=os.uname().release)


def ran(home: RegistryHome, place: SandboxTarget | Profile | None = None) -> SkillOutcome:
    return asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}, place=place))


@pytest.fixture(scope="module")
def shared() -> Generator[Path]:
    """A folder to be read, one to be written, and a secret beside them to which links lead; all can be passed."""
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as made:
        top = Path(made)
        top.chmod(0o755)
        _fill(top)
        yield top


def _fill(top: Path) -> None:
    for name in ("invoices", "archive", "other"):
        (top / name).mkdir()
    (top / "archive").chmod(0o777)
    (top / "other/secret").write_text("secret")
    (top / "invoices/one").write_text("one")
    (top / "invoices/one").chmod(0o666)
    (top / "invoices/where").write_text(str(top / "other/secret"))
    (top / "invoices/link").symlink_to(top / "other/secret")
    (top / "invoices/above").symlink_to("../other")


@pytest.fixture(scope="module")
def seen(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the skill says that it could do."""
    require_part("bwrap", "makes the sandbox")
    folder = tmp_path_factory.mktemp("granted")
    granted(home_in(folder), folder, f"invoices={shared}/invoices", f"archive={shared}/archive:rw")
    outcome = ran(home_in(folder))
    assert outcome.ok, (outcome.error, outcome.logs)
    found: dict[str, Any] = outcome.result
    return found


@thorough
def test_a_granted_folder_is_read(seen: dict[str, Any]) -> None:
    assert (seen["folders"], seen["read"]) == (["archive", "invoices"], "one")


@thorough
@pytest.mark.parametrize("act", ["new", "change", "remove", "mode", "move"])
def test_a_folder_that_was_granted_for_reading_stays_as_it_is(seen: dict[str, Any], shared: Path, act: str) -> None:
    assert seen[act] in {*DENIED, 18}, seen
    assert (sorted(os.listdir(shared / "invoices")), (shared / "invoices/one").read_text()) == (
        ["above", "link", "one", "where"],
        "one",
    )


@thorough
def test_a_folder_that_was_granted_for_writing_is_written_and_nothing_is_started_from_it(
    seen: dict[str, Any], shared: Path
) -> None:
    assert (seen["written"], (shared / "archive/new").read_text()) == (len("written"), "written")
    assert seen["started"] in DENIED


@thorough
@pytest.mark.parametrize("way", ["by link", "by folder link", "by climbing", "by its path", "through process 1"])
def test_nothing_leads_to_a_folder_that_was_not_granted(seen: dict[str, Any], way: str) -> None:
    assert seen[way] in ABSENT, seen


@pytest.mark.parametrize(
    "word",
    ["x=srv/x", "x=./x", "x=", "x", "x=/", "x=/srv/../etc", "x=/srv/./x", "x=/srv//x", "x=/srv/x/", "x=/proc/1",
     "x=/sys", "x=/dev/shm", "../x=/srv/x", "X=/srv/x", "=/srv/x", "x=/srv/\x1bx"],
    ids=range(16),
)  # fmt: skip
def test_what_is_no_absolute_path_without_dots_is_refused_in_one_line(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        SharedFolder.parse_grant(word)
    assert str(caught.value).isprintable()


def test_a_link_is_refused_and_says_where_it_leads(shared: Path) -> None:
    with pytest.raises(Refused, match="is a link or below one") as caught:
        identify_folder(SharedFolder("x", str(shared / "invoices/above")))
    assert str(shared / "other") in str(caught.value)


def test_what_is_not_there_or_no_folder_is_refused(shared: Path) -> None:
    for name in ("nothing", "other/secret"):
        with pytest.raises(Refused, match=name):
            identify_folder(SharedFolder("x", str(shared / name)))


def test_a_folder_that_the_sandboxs_user_may_not_read_or_write_is_refused(shared: Path) -> None:
    identify_folder(SharedFolder("x", str(shared / "invoices")), -1)
    with pytest.raises(Refused, match="lacks the permission to read and write") as caught:
        identify_folder(SharedFolder("x", str(shared / "invoices"), writable=True), -1)
    assert f"chmod o+rxw {shared}/invoices" in str(caught.value)


def test_a_folder_below_one_that_the_sandboxs_user_may_not_pass_is_refused_and_names_that(shared: Path) -> None:
    (shared / "private/below").mkdir(parents=True)
    (shared / "private").chmod(0o700)
    with pytest.raises(Refused, match=f"chmod o\\+x {shared}/private$"):
        identify_folder(SharedFolder("x", str(shared / "private/below")), -1)


def test_the_registry_is_never_granted(home: RegistryHome) -> None:
    registry = Registry(home)
    for folder in (home.folder, home.folder.parent, home.content):
        with pytest.raises(Refused, match="holds the registry"):
            preconditions.check_folder(registry, SharedFolder("x", str(folder)))


@thorough
def test_a_folder_that_is_gone_refuses_the_run_and_keeps_nothing_back(
    require: Require, home: RegistryHome, tmp_path: Path
) -> None:
    require("bwrap", "makes the sandbox")
    (tmp_path / "gone").mkdir()
    granted(home, tmp_path, f"invoices={tmp_path}/gone", f"archive={tmp_path}/gone:rw")
    (tmp_path / "gone").rmdir()
    with pytest.raises(Refused, match="gone cannot be shared: No such file"):
        ran(home)
    assert Registry(home).skill("add-numbers").kept_back == {}


def test_a_folder_that_took_anothers_place_is_noticed_before_anything_runs(require: Require, shared: Path) -> None:
    require("bwrap", "makes the sandbox")
    folder = SharedFolder("invoices", str(shared / "invoices"))
    policy = with_folders(load_policy("skill-run"), [folder])
    specification, limits = build_confinement(policy, this_machine())

    async def main() -> None:
        made = bind_folders(specification, [folder])
        async with await start(made, ["/bin/true"], limits=limits) as run:
            verify_shared(folder, identify_folder(folder), run.facts.pid)
            with pytest.raises(Refused, match="was replaced while it was shared"):
                verify_shared(folder, identify_folder(SharedFolder("x", str(shared / "other"))), run.facts.pid)

    asyncio.run(main())


@thorough
@pytest.mark.parametrize("layer", ["", "landlock"])
def test_the_attempt_to_write_where_reading_was_granted_fails_by_landlock_alone(require: Require, layer: str) -> None:
    require("bwrap", "makes the sandbox")
    require_part("Landlock", "it is the layer", usable=this_machine().landlock_abi > 0)
    policy = with_folders(
        override_policy(load_policy("skill-run"), QUICK),
        [SharedFolder("invoices"), SharedFolder("archive", writable=True)],
    )
    specification, _ = build_confinement(policy, this_machine())
    specification = LAYERS[layer][0](specification) if layer else specification
    proof = asyncio.run(run_attempts(policy, specification, this_machine()))
    verdicts = {each.name: each.verdict.value for each in proof.judged}
    assert verdicts["files-folders"] == ("broken" if layer else "held")
    assert layer or set(verdicts.values()) == {"held"}


@pytest.mark.parametrize("kind", ["modal", "daytona"])
def test_a_vendors_sandbox_has_no_folder_of_this_machine(kind: str) -> None:
    with pytest.raises(Unsupported, match="no folder of this machine is there, so not /app/folders/invoices"):
        clouds.find_declared_rules(with_folders(load_policy("skill-run"), [SharedFolder("invoices")]), kind)


def test_a_manifest_names_folders_and_says_which_it_writes_to() -> None:
    needs, wrong = parse_needs({"needs-folders": "invoices archive:rw"})
    assert (needs.folders, wrong) == (("invoices", "archive:rw"), [])
    for bad in ("../x", "/srv/x", "a:ro", "A", "a a", "a a:rw", "a=/srv"):
        needs, (found, *_) = parse_needs({"needs-folders": bad})
        assert (found.code, needs.folders) == ("manifest.needs", ()), bad


@pytest.mark.parametrize(
    ("asked", "given", "lacking", "shared_"),
    [
        ("a", "a=/srv/a", [], ["a=/srv/a"]),
        ("a:rw", "a=/srv/a:rw", [], ["a=/srv/a:rw"]),
        ("a", "a=/srv/a:rw", [], ["a=/srv/a"]),
        ("a:rw", "a=/srv/a", ["the folder a is asked for to be written to, and was granted for reading"], None),
        ("a", "b=/srv/b", ["the folder a is asked for and was not granted"], []),
    ],
    ids=["read", "write", "granted more", "granted less", "another"],
)
def test_a_folder_is_given_as_it_is_declared_and_granted(
    asked: str, given: str, lacking: list[str], shared_: list[str] | None
) -> None:
    needs, grants = Needs(folders=(asked,)), Grants(folders=(given,))
    assert [each.operator for each in grants.find_lacking(needs)] == lacking
    assert shared_ is None or list(map(str, grants.select_folders(needs))) == shared_


def test_what_was_recorded_of_grants_is_what_was_granted() -> None:
    grants = Grants(folders=("a=/srv/a",), hosts=("a.example",), limits={"limit-seconds": 5})
    assert Grants.from_facts(json.loads(json.dumps(grants.facts()))) == grants
    assert Grants.from_facts(json.loads(json.dumps(Grants().facts()))) == Grants()


def test_a_granted_folder_with_a_secret_in_it_is_asked_for_at_each_run_whatever_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_EXEC_SKILLS", str(tmp_path / "registry"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "given" / "sub").mkdir(parents=True)
    granted(default_home(), tmp_path / "tree", f"in={tmp_path}/given")
    version = Registry(default_home()).version("add-numbers")
    no = Somebody(says=False)

    async def here() -> None:
        async with agent_in("local", no) as agent:
            await ask_for_folders("skill_run", version, agent.context)
            assert not no.asked
            (tmp_path / "given" / "sub" / ".env").write_text("TOKEN=x", encoding="utf-8")
            with pytest.raises(ReadDenied):
                await ask_for_folders("skill_run", version, agent.context)

    asyncio.run(here())
    assert [line for _, line in no.asked] == [
        f"let add-numbers 1 read {tmp_path}/given, in which is a secret: {tmp_path}/given/sub/.env"
    ]
