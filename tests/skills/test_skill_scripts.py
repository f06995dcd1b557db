"""A script of a skill runs in a sandbox of its own, with the arguments, files and packages that it is given."""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.registry.content import ContentChanged
from hermes_exec_agent.skills.registry.record import Origin, ScriptGrants
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run.scripts import ScriptOutcome, run_script
from hermes_exec_policies.gate.analysis.requirements import collect_script_requirements
from hermes_exec_policies.gate.guide import check_guide
from hermes_exec_policies.gate.tree import copy_tree
from hermes_exec_policies.load import load_policy
from tests.rigs.breadth import thorough
from tests.rigs.skill_makers import PERSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from hermes_exec_agent.skills.registry.record import Version
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)  # the first run of a policy proves it
GUIDE = "---\nname: fill-forms\ndescription: Fills forms.\n---\nRun scripts/fill.py.\n"


@pytest.fixture
def sandboxes(require: Require) -> None:
    require("bwrap", "makes the sandbox")


def register(home: RegistryHome, folder: Path, files: Mapping[str, str], guide: str = GUIDE) -> Version:
    """Register a guide with scripts, as an import does."""
    source = folder / "source"
    for path, text in {"SKILL.md": guide, **files}.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    tree = copy_tree(source, folder / "fill-forms")
    report = asyncio.run(check_guide(tree))
    assert report.rights == ("read", "scripts"), report.findings
    return Registry(home).register(
        tree,
        report,
        load_policy("skill-script"),
        author=PERSON,
        kernel=platform.release(),
        origin=Origin(kind="imported"),
    )


def run(home: RegistryHome, *args: str, script: str = "scripts/fill.py", **options: Any) -> ScriptOutcome:
    return asyncio.run(run_script(Registry(home), "fill-forms", script, args, **options))


def test_arguments_input_and_exit_code_pass_unchanged(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    text = "import sys\nprint(sys.argv[1:], sys.stdin.read())\nprint('bad', file=sys.stderr)\nsys.exit(3)\n"
    register(home, tmp_path, {"scripts/fill.py": text})
    outcome = run(home, "a b", "$(id)", "'\"\n;", "-x", stdin="é".encode())
    assert outcome.stdout.decode() == f"{['a b', '$(id)', chr(39) + chr(34) + chr(10) + ';', '-x']} é\n"
    assert (outcome.stderr, outcome.exit_code, outcome.reason, outcome.ok) == (b"bad\n", 3, "exit code 3", False)


def test_a_script_works_on_copies_of_files_and_leaves_new_ones(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    text = "import sys\nopen('out.txt', 'w').write(open(sys.argv[1]).read().upper())\nopen('b/c', 'a').write('!')\n"
    register(home, tmp_path, {"scripts/fill.py": text})
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c").write_text("c")
    (tmp_path / "form.txt").write_text("form")
    inputs = [tmp_path / "form.txt", tmp_path / "b"]
    outcome = run(home, "form.txt", given=inputs, files=tmp_path / "files")
    assert outcome.ok, outcome.stderr
    assert outcome.files == ("b/c", "out.txt")
    assert ((tmp_path / "files/out.txt").read_text(), (tmp_path / "b/c").read_text()) == ("FORM", "c")
    assert not (tmp_path / "files/form.txt").exists()


def test_scripts_import_their_neighbours_and_shells_run_too(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    files = {
        "scripts/fill.py": "from office.helpers import merge\nimport common\nprint(merge(common.NAME))\n",
        "scripts/common.py": "NAME = 'x'\n",
        "scripts/office/__init__.py": "",
        "scripts/office/helpers/__init__.py": "def merge(name):\n    return name * 2\n",
        "run": "#!/usr/bin/env bash\n[[ -r $(dirname $0)/SKILL.md ]] && echo bash $1\n",
    }
    register(home, tmp_path, files)
    assert run(home).stdout == b"xx\n"
    assert run(home, "1", script="run").stdout == b"bash 1\n"


def test_a_script_reaches_nothing_outside_its_sandbox(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    text = """
import os, socket
def attempt(act):
    try:
        act()
    except OSError as error:
        return error.errno
    return "done"
print([attempt(act) for act in (
    lambda: open('/app/skills/fill-forms/SKILL.md', 'a'),
    lambda: open('/etc/shadow'),
    lambda: socket.create_connection(('192.0.2.1', 80), 1),
    lambda: os.listdir(%r),
)], sorted(set(os.environ) & {'SECRET_TOKEN'}))
"""
    register(home, tmp_path, {"scripts/fill.py": text % str(home.folder)})
    outcome = run(home)
    assert b"done" not in outcome.stdout
    assert outcome.stdout.endswith(b" []\n")


def test_a_script_that_wants_the_network_is_told_how_a_person_grants_it(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    text = "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)\n"
    register(home, tmp_path, {"scripts/fill.py": text})
    outcome = run(home)
    assert (outcome.exit_code, outcome.denied) == (1, "")
    assert b"Network is unreachable" in outcome.stderr
    assert "skill grant fill-forms --host HOST" in outcome.hint
    assert Registry(home).skill("fill-forms").state == "ready"


def test_a_script_talks_to_a_server_that_it_starts(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    text = """
import os, pathlib, subprocess, sys, time, urllib.request
pathlib.Path("page.txt").write_text("from the server")
server = [sys.executable, "-m", "http.server", "8000"]
subprocess.Popen(server, stderr=subprocess.DEVNULL, env={**os.environ, "MARK": sys.argv[1]}, start_new_session=True)
for _ in range(600):
    try:
        answer = urllib.request.urlopen("http://localhost:8000/page.txt")
        break
    except OSError:
        time.sleep(0.05)
print(answer.read().decode())
"""
    register(home, tmp_path, {"scripts/fill.py": text})
    mark = f"mark-{os.urandom(8).hex()}"
    outcome = run(home, mark)
    assert (outcome.stdout, outcome.hint, outcome.denied) == (b"from the server\n", "", ""), outcome.stderr
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if mark in read_environment(pid)]


def read_environment(pid: Path) -> str:
    try:
        return (pid / "environ").read_text(errors="replace")
    except OSError:
        return ""  # it ended


def test_a_lookup_that_fails_a_script_tells_how_a_person_grants_hosts(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    text = """
import socket, sys
try:
    socket.getaddrinfo("a.example", 80)
except OSError:
    sys.exit(int(sys.argv[1]))
"""
    register(home, tmp_path, {"scripts/fill.py": text})
    assert ["--host HOST" in run(home, code).hint for code in ("1", "0")] == [True, False]


def test_a_missing_module_is_told_with_what_declares_its_package(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    register(home, tmp_path, {"scripts/fill.py": "import fits_of_stars\n"})
    assert "no module fits_of_stars" in (outcome := run(home)).hint
    assert "needs-packages" in outcome.hint


def test_a_time_limit_ends_every_process(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    text = "import subprocess, time\nsubprocess.Popen(['sleep', '914532'], start_new_session=True)\ntime.sleep(600)\n"
    register(home, tmp_path, {"scripts/fill.py": text})
    outcome = run(home, time_limit_s=1.0)
    assert (outcome.exit_code, outcome.reason) == (None, "limit: wall")
    cmdlines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(b"914532" in each for each in cmdlines)


@thorough
def test_a_script_gets_the_packages_of_its_block(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    block = '# /// script\n# dependencies = ["six==1.17.0"]\n# [tool.uv]\n# x = 1\n# ///\n'
    text = f"{block}import six\nprint(six.__version__)\n"
    register(home, tmp_path, {"scripts/fill.py": text})
    outcome = run(home)
    assert (outcome.stdout, outcome.packages) == (b"1.17.0\n", ("six==1.17.0",)), outcome.stderr


def test_well_known_packages_are_found_by_imports_of_scripts_that_declare_none(tmp_path: Path) -> None:
    files = {
        "SKILL.md": GUIDE,
        "scripts/fill.py": "import helpers.merge, json, unknown_module\nfrom PIL import Image\nimport scripts.check\n",
        "scripts/check.py": "import yaml\n",
        "scripts/other.py": "import torch\n",
        "scripts/helpers/merge.py": "def f():\n    import defusedxml.minidom\n",
    }
    for path, text in files.items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_text(text)
    tree = copy_tree(tmp_path / "in", tmp_path / "copy")
    found, wrong = collect_script_requirements(tree, "scripts/fill.py", {"scripts": "lxml>=5 scripts/other.py"})
    assert (sorted(map(str, found)), wrong) == (["defusedxml", "lxml>=5", "pillow", "pyyaml"], [])


def test_another_interpreter_needs_a_grant(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    register(home, tmp_path, {"scripts/fill.py": "", "scripts/fill.pl": 'print "perl\\n";\n'})
    with pytest.raises(Refused, match=r"needs perl, which was not granted.*--interpreter perl"):
        run(home, script="scripts/fill.pl")
    Registry(home).grant_scripts("fill-forms", ScriptGrants(interpreters=("perl",)))
    assert run(home, script="scripts/fill.pl").stdout == b"perl\n"


def test_changed_files_do_not_run(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    version = register(home, tmp_path, {"scripts/fill.py": "print('ran')\n"})
    (home.content / version.digest / "scripts/fill.py").write_text("print('evil')\n")
    with pytest.raises(ContentChanged):
        run(home)
    assert Registry(home).skill("fill-forms").state == "quarantined"


def test_what_cannot_run_is_one_clear_line(sandboxes: None, home: RegistryHome, tmp_path: Path) -> None:
    register(home, tmp_path, {"scripts/fill.py": "", "scripts/data.txt": "x"})
    with pytest.raises(UsageError, match=r"has no script fil\.py.*scripts/data\.txt, scripts/fill\.py"):
        run(home, script="fil.py")
    with pytest.raises(UsageError, match="neither a known ending nor a #! line"):
        run(home, script="scripts/data.txt")
    with pytest.raises(UsageError, match="none.pdf cannot be given to the script: No such file"):
        run(home, given=[tmp_path / "none.pdf"])


def test_python_is_the_interpreter_of_scripts_by_either_name(
    sandboxes: None, home: RegistryHome, tmp_path: Path
) -> None:
    files = {
        "scripts/fill.sh": "python -c 'import sys; print(sys.version_info[0])'\n",
        "scripts/named": "#!/usr/bin/env python\nprint('by env')\n",
    }
    register(home, tmp_path, files)
    assert run(home, script="scripts/fill.sh").stdout == b"3\n"
    assert run(home, script="scripts/named").stdout == b"by env\n"
