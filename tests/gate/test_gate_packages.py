"""The packages of a skill: what may be asked for, and that nothing of them runs before it is in a sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import os
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_policies.gate.analysis.requirements import collect_requirements, find_known_bad
from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.environments import (
    Environments,
    Index,
    environment_digest,
    refuse_startup_files,
)
from hermes_exec_policies.gate.tree import copy_tree
from hermes_exec_policies.gate.verdict import Report, SkillRefused
from tests.rigs import manifests
from tests.rigs.breadth import leave_out
from tests.rigs.corpus import write_skill

if TYPE_CHECKING:
    from tests.conftest import Require

leave_out("takes long")

MAIN = "import hello_table\ndef run(n: int) -> str:\n    '''Say it.'''\n    return hello_table.say(n)\n"
TEST = """import sys, pathlib
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import main
def test_say():
    assert main.run(2) == "22"
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, str], needs: str = "") -> Path:
    """A wheel of these files, made by hand."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    texts = files | {
        f"{info}/METADATA": about,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{path},sha256={urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}"
        for path, text in texts.items()
    ]
    folder.mkdir(exist_ok=True)
    made = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as file:
        for path, text in (texts | {f"{info}/RECORD": "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"}).items():
            file.writestr(path, text)
    return made


def asked(tmp_path: Path, **files: str) -> tuple[list[str], set[str]]:
    texts = {"scripts/main.py": "def run() -> None: pass\n", "tests/test_main.py": TEST} | files
    tree = copy_tree(write_skill(tmp_path / "say-hello", texts), tmp_path / "copy")
    manifest = asyncio.run(manifests.read(tree, "say-hello"))
    found, wrong = collect_requirements(tree, manifest.needs.packages)
    return [str(each) for each in found], {each.code for each in wrong}


def test_packages_are_named_in_three_places(tmp_path: Path) -> None:
    about = "---\nname: say-hello\ndescription: d\nmetadata:\n  needs-packages: numpy\n---\nx\n"
    script = '# /// script\n# dependencies = ["pandas>=2"]\n# ///\nimport pandas\ndef run() -> None: pass\n'
    listed = "rich==15.0  # tables\nattrs ; python_version >= '3.8'\npillow>=11,<13\n"
    files = {"SKILL.md": about, "requirements.txt": listed, "scripts/main.py": script}
    names = ["numpy", "rich==15.0", 'attrs; python_version >= "3.8"', "pillow<13,>=11", "pandas>=2"]
    assert asked(tmp_path, **files) == (names, set())


def test_packages_that_nothing_imports_are_refused(tmp_path: Path) -> None:
    assert asked(tmp_path, **{"requirements.txt": "numpy\n"})[1] == {"dependencies.unused"}
    script = "import json, main, numpy.linalg\ndef run() -> None: pass\n"
    assert asked(tmp_path / "used", **{"requirements.txt": "numpy\n", "scripts/main.py": script})[1] == set()


def test_what_was_chosen_is_compared_with_what_is_known() -> None:
    pins = ("pyyaml==5.3", "numpy==2.3.1", "hermes-exec==1.0")
    lock = "".join(f"{each} \\\n    --hash=sha256:00\n" for each in pins)
    assert [each.code for each in find_known_bad(lock)] == ["dependencies.known-bad", "dependencies.ours"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("evil @ https://192.0.2.1/evil-1.0-py3-none-any.whl", "dependencies.source"),
        ("evil @ file:///app/data/evil.whl", "dependencies.source"),
        ("git+https://192.0.2.1/evil", "dependencies.source"),
        (".", "dependencies.source"),
        ("-e ./vendored", "dependencies.option"),
        ("--extra-index-url http://192.0.2.1/simple", "dependencies.option"),
        ("-r other.txt", "dependencies.option"),
        ("os==1.0", "dependencies.standard"),
        ("reqeusts==1.0", "dependencies.look-alike"),
        ("hermes-exec==1.0", "dependencies.ours"),
        ("Hermes_Exec.policies", "dependencies.ours"),
        ("hermes-exce", "dependencies.look-alike"),
        ("pyyaml==5.3", "dependencies.known-bad"),
        ("\n".join(f"pkg-{number}==1.0" for number in range(60)), "dependencies.many"),
        ("a b", "dependencies.syntax"),
    ],
)
def test_anything_but_names_and_versions_is_refused(tmp_path: Path, line: str, code: str) -> None:
    assert code in asked(tmp_path, **{"requirements.txt": line + "\n"})[1]


def test_inline_dependencies_go_through_the_same_rules(tmp_path: Path) -> None:
    script = '# /// script\n# dependencies = ["reqeusts"]\n# ///\ndef run() -> None: pass\n'
    assert "dependencies.look-alike" in asked(tmp_path, **{"scripts/main.py": script})[1]


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize/__init__.py", "x.pth"])
def test_packages_that_start_by_themselves_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("import os\n")
    with pytest.raises(SkillRefused):
        refuse_startup_files(tmp_path)


def test_what_cannot_be_had_is_one_clean_refusal(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    store = Environments(tmp_path / "store", Index(tmp_path / "index"))
    with pytest.raises(SkillRefused, match="cannot be installed"):
        asyncio.run(store.lock(["absent-package==9999.0"], "3.11"))
    for text in ("--index-url=https://packages.example", "six @ https://packages.example/six.whl"):
        with pytest.raises(SkillRefused, match="is not a requirement"):
            asyncio.run(store.lock([text], "3.11"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_skill_gets_its_packages_and_the_next_one_shares_them_offline(
    require: Require, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("bwrap", "makes the sandbox")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    index = tmp_path / "index"
    wheel(index, "hello-table", "1.0", {"hello_table.py": "import hello_core\nsay = hello_core.say\n"}, "hello-core>=2")
    wheel(index, "hello-core", "2.1", {"hello_core.py": "def say(n): return str(n) * n\n"})
    marker = tmp_path / "ran"
    with zipfile.ZipFile(index / "hello_core-2.2.zip", "w") as file:  # a source release, whose building would be seen
        file.writestr("hello_core-2.2/setup.py", f"open({str(marker)!r}, 'w')\n")
    store = Environments(tmp_path / "store", Index(index))
    about = "---\nname: {}\ndescription: d\nmetadata:\n  needs-packages: hello-table\n---\nx\n"
    reports: list[Report] = []
    for name in ("say-hello", "say-again"):
        files = {"SKILL.md": about.format(name), "scripts/main.py": MAIN, "tests/test_main.py": TEST}
        reports.append(asyncio.run(check(write_skill(tmp_path / name, files), store=store)))
        assert reports[-1].accepted, reports[-1].findings
        for each in index.glob("*.whl"):  # all that is needed is kept, what to choose included
            each.unlink()
    assert reports[0].environment == reports[1].environment == environment_digest(Path(reports[0].environment_folder))
    assert not marker.exists()
    names = {each.name for each in Path(reports[0].environment_folder).iterdir()}
    assert {"hello_table.py", "hello_core.py"} <= names
    assert store.collect_garbage({reports[0].environment}) == []
    assert store.collect_garbage(set()) == [reports[0].environment]
    assert not os.path.exists(reports[0].environment_folder)
