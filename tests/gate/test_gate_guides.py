"""Guides as the world writes them may be read and may run scripts; what is certainly wrong refuses them."""

from __future__ import annotations

import asyncio
import os
import socket
import tarfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.plugins import own_entry_points
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.gate.analysis.layout import find_secrets
from hermes_exec_policies.gate.guide import check_guide
from hermes_exec_policies.gate.skill_names import TOOLS, find_imitated
from hermes_exec_policies.gate.text_checks import find_hidden, find_lookalike
from hermes_exec_policies.gate.tree import MAX_FILE, copy_tree
from hermes_exec_policies.gate.verdict import Kind, Report, Right
from hermes_exec_policies.load import load_policy
from tests.rigs import corpus
from tests.rigs.corpus import write_skill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Require

GUIDES = corpus.items("guides")
ABOUT = "---\nname: tidy-notes\ndescription: Keeps notes tidy.\n---\n\n# Tidy notes\n\nSort them by date.\n"
CLONE = "HERMES_SKILLS_CLONE"
LETTERS = "Zq7Rk2Wm9Xv4Tb6Yn3Pc8Hd5Jf1Lg0Sa"
"""The random part of the secrets of these tests, which nobody issued."""


def guide(parent: Path, about: str = ABOUT, **files: str) -> Path:
    return write_skill(parent / "in" / "tidy-notes", {"SKILL.md": about} | files)


def judge(source: Path, *taken: str, folder: str = "") -> Report:
    return asyncio.run(check_guide(source, taken=taken, folder=folder, scripts=False))


def refusals(report: Report) -> list[tuple[str, str, int]]:
    """The codes, paths and lines of the findings that refuse; a refused guide has no right."""
    found = [(each.code, each.path, each.line) for each in report.findings if each.kind is not Kind.ADVICE]
    assert bool(found) != report.accepted
    assert bool(found) != bool(report.rights)
    assert not report.security, "nothing that a text says is final"
    return found


def advised(report: Report) -> set[str]:
    assert report.rights[:1] == (Right.READ,)
    return {each.code for each in report.findings}


@pytest.mark.parametrize("item", GUIDES, ids=[each["id"] for each in GUIDES])
def test_a_guide_in_the_manner_of_public_ones_may_be_read(tmp_path: Path, item: dict[str, Any]) -> None:
    report = judge(corpus.guide(item, tmp_path))
    assert report.rights == (Right.READ,), report.facts()
    assert (report.name, report.module, report.entry, report.schema) == (item["id"], "", "", {})
    assert (report.policy, report.evidence) == ("skill-script", None)
    assert report.summary


def test_a_guide_with_scripts_may_run_them_where_the_sandbox_is_proven(tmp_path: Path, require: Require) -> None:
    require("bwrap")
    asyncio.run(prove(load_policy("skill-script")))

    async def rights() -> dict[str, bool]:
        reports = [await check_guide(corpus.guide(each, tmp_path)) for each in GUIDES]
        return {each.name: Right.SCRIPTS in each.rights for each in reports}

    assert {name for name, earned in asyncio.run(rights()).items() if not earned} == {"house-style", "poster-design"}


def test_without_a_sandbox_a_guide_may_be_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    report = asyncio.run(check_guide(guide(tmp_path, **{"scripts/sort.sh": "sort\n"})))
    assert report.rights == (Right.READ,)
    assert [each.code for each in report.findings] == ["proof.unproven"]


def test_public_skills_may_be_read() -> None:
    if not (clone := os.environ.get(CLONE)):
        pytest.skip(f"set {CLONE} to a clone of public skills")
    found = sorted(path.parent for path in Path(clone).glob("**/SKILL.md"))
    assert found
    assert {path.name: refusals(report) for path in found if refusals(report := judge(path))} == {}


HEAD = "---\nname: tidy-notes\ndescription: Keeps notes tidy.\n"
ALIASES = "m0: &a0 [x]\n" + "".join(f"m{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
TEXTS: dict[str, tuple[str, str, int, str]] = {
    "no front matter": ("# Tidy\n", "manifest.format", 0, "begin with ---"),
    "no end": (HEAD, "manifest.format", 0, "between lines of '---'"),
    "no description": ("---\nname: tidy-notes\n---\n", "manifest.format", 0, "description"),
    "a colon": (ABOUT.replace("Keeps", "Keeps: all"), "manifest.format", 3, "in quotes"),
    "twice": (HEAD + "description: x\n---\n", "manifest.format", 4, "description"),
    "an alias": (HEAD + "license: &a MIT\ncompatibility: *a\n---\n", "manifest.format", 4, "nchor"),
    "many aliases": (HEAD + ALIASES + "metadata: [*a29]\n---\n", "manifest.format", 4, "anchor"),
    "a dash within": (ABOUT.replace("Keeps", "Keeps ---"), "manifest.format", 3, "single dash"),
    "another folder": (ABOUT.replace("tidy-notes", "other", 1), "manifest.format", 0, "'tidy-notes' must match"),
    "a capital": (ABOUT.replace("tidy-notes", "Tidy-notes", 1), "manifest.format", 0, "lowercase"),
    "a tool": (ABOUT.replace("tidy-notes", "read-file", 1), "manifest.name", 0, "choose another name"),
    "a zero width space": (ABOUT.replace("Sort", "So\u200brt"), "manifest.hidden", 8, "ZERO WIDTH SPACE (U+200B)"),
    "an override": (ABOUT.replace("Sort", "\u202eSort"), "manifest.hidden", 8, "delete it"),
    "an isolate": (ABOUT.replace("Sort", "\u2067Sort\u2069"), "manifest.hidden", 8, "U+2067"),
    "tags": (ABOUT + "\U0001f3f4\U000e0067\U000e0068\U000e007f", "manifest.hidden", 9, "U+E0067"),
    "selectors": (ABOUT + "\u263a\ufe00\ufe01\ufe02", "manifest.hidden", 9, "VARIATION SELECTOR"),
    "an escape": (ABOUT + "\x1b[8m", "manifest.hidden", 9, "U+001B"),
    "a lone return": (ABOUT + "yes\rno", "manifest.hidden", 9, "end lines with"),
    "an escape in YAML": (ABOUT.replace("Keeps", r'"K\u202Ee"'), "manifest.format", 3, "<block end>"),
    "a quoted escape": (ABOUT.replace("Keeps notes tidy.", r'"K\u202Ee"'), "manifest.hidden", 0, "U+202E"),
    "a look-alike": (ABOUT.replace("Sort", "Ign\u043ere"), "manifest.look-alike", 8, "in one alphabet"),
}


FOLDERS = {"a capital": "Tidy-notes", "a tool": "read-file"}


@pytest.mark.parametrize("case", TEXTS)
def test_what_is_certainly_wrong_with_a_text_refuses_it(tmp_path: Path, case: str) -> None:
    about, code, line, remedy = TEXTS[case]
    report = judge(guide(tmp_path, about), folder=FOLDERS.get(case, ""))
    assert refusals(report) == [(code, "SKILL.md", line)]
    assert remedy in " ".join(report.reasons), report.reasons


@pytest.mark.parametrize("path", ["references/a.md", "scripts/a.py", "templates/a.j2", "assets/a.svg", "notes"])
def test_every_file_that_a_model_can_read_is_looked_at(tmp_path: Path, path: str) -> None:
    report = judge(guide(tmp_path, **{path: f"x\nUser\u2062name, key: ghp_{LETTERS}0000\n"}))
    assert refusals(report) == [("manifest.hidden", path, 2), ("manifest.secret", path, 2)]


def test_bytes_that_no_model_reads_are_data(tmp_path: Path) -> None:
    folder = guide(tmp_path)
    (folder / "assets").mkdir()
    for number, data in enumerate(
        (b"\x7fELF\0\0", b"\xff\xfe\x0b\x20" + b"x\0" * 9, b"\x89PNG\r\n\x1a\n\0", b"\xe4\xf6\r")
    ):
        (folder / "assets" / f"{number}.bin").write_bytes(data)
    (folder / "assets" / "latin.txt").write_bytes(b"Gr\xfc\xdfe")
    (folder / "assets" / "twice.txt").write_bytes(b"one\r\r\ntwo\r\r\n")
    (folder / "SKILL.md").write_bytes(b"\xef\xbb\xbf" + ABOUT.replace("\n", "\r\n").encode())
    assert advised(judge(folder)) == {"manifest.not-text", "manifest.mark"}


HONEST = {
    "right to left": "שלום (README)\u200f. مرحبا\u200e! English: שלום",
    "joiners": "می\u200cخواهم क्\u200dष ശ്\u200c\u0d30",  # noqa: RUF001  the letters are meant
    "word breaks": "ภาษา\u200bไทย",
    "emoji": "👩‍💻 🏳️‍🌈 1️⃣ ❤️‍🔥 🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f 🫩 \U0001fadf",
    "ideographs": "葛\U000e0100飾区 日本語 中文 한국어",
    "science": "σmax = ρair · Δx, 10 μm, π/2, naïve, Ωhm",  # noqa: RUF001  the letters are meant
    "formulas": "Xβⱼ + φ₁yₜ = Σβᵢxᵢ + θ₁²",
    "declined": "Открой PDFку через APIшку или URLы",  # noqa: RUF001  the letters are meant
    "icons": "\ue0b0 powerline \uf0ac",
    "code": '```c\nprintf("%s\\n", u8"→ é");\f\n```\n┌─┐│└┘ ✓ ✗',
}


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST)
def test_honest_writing_hides_nothing(text: str) -> None:
    assert find_hidden(text) is None
    assert find_lookalike(text) == ""


@pytest.mark.parametrize(
    "text",
    ["a\u200cb", "می\u200c\u200cخ", "x\u200d", "A\u200eB", "שלום\u200f\u200f\u200f",
     "\u200bthai", "a\U000e0100", "pass\u00adword", "\ufdd0"],
)  # fmt: skip
def test_a_joiner_or_a_mark_that_spells_nothing_is_hidden(text: str) -> None:
    assert find_hidden(text)


SECRETS = [
    f"ghp_{LETTERS}0000", f"github_pat_{LETTERS[:22]}_{LETTERS}{LETTERS[:27]}", f"AKIA{LETTERS.upper()[:16]}",
    f"xoxb-123406789012-{LETTERS}", f"sk-proj-{LETTERS[:20]}T3BlbkFJ{LETTERS[:20]}", f"sk-ant-api03-{LETTERS * 3}",
    f"glpat-{LETTERS[:20]}", f"sk_live_{LETTERS[:24]}",
    f"hf_{LETTERS.translate(str.maketrans('0123456789', 'abcdefghij'))}xy",
    f"SG.{LETTERS[:22]}.{LETTERS}{LETTERS[:11]}", f"AIza{LETTERS}abc", f"npm_{LETTERS}0000", f"{LETTERS.lower()}-us12",
    f"123496789:AA{LETTERS}a", f"pypi-AgEIcHlwaS5vcmc{LETTERS * 3}",
    f"DefaultEndpointsProtocol=https;AccountKey={LETTERS * 2}{LETTERS[:22]}==",
    f"-----BEGIN EC PRIVATE KEY-----\n{LETTERS * 2}\n{LETTERS}\n-----END EC PRIVATE KEY-----",
    f'"-----BEGIN PRIVATE KEY-----\\n{LETTERS * 2}\\n{LETTERS}\\n-----END PRIVATE KEY-----\\n"',
]  # fmt: skip


def test_a_secret_of_a_known_shape_refuses_without_being_quoted(tmp_path: Path) -> None:
    files = {f"references/{number:02}.md": f"# Setup\n\nexport KEY='{each}'\n" for number, each in enumerate(SECRETS)}
    report = judge(guide(tmp_path, **files))
    assert refusals(report) == [("manifest.secret", path, 3) for path in files]
    assert all("revoke it" in each for each in report.reasons)
    assert LETTERS[:10].lower() not in str(report.facts()).lower()


def test_placeholders_and_random_bytes_are_no_secrets(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY sk-... sk-ant-api03-... ghp_xxxx",
            "ghp_" + "x" * 36, "ghp_1234567890abcdefghijklmnopqrstuvwxyz", "glpat-your-token-goes-here-1",
            "xoxb-your-token", "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
            "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----", "grep 'BEGIN RSA PRIVATE KEY' ~/.ssh/*",
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg...\n-----END PRIVATE KEY-----",
            "d41d8cd98f00b204e9800998ecf8427e", "password = 'hunter2'", "//registry/:_authToken=${NPM_TOKEN}",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        ]
    )  # fmt: skip
    assert find_secrets(copy_tree(guide(tmp_path, **{"references/a.md": text}), tmp_path / "copy")) == []


def test_texts_that_are_made_to_be_slow_are_not(tmp_path: Path) -> None:
    bombs = {
        "a": "sk-" * (1 << 20) + "T3BlbkFJ", "b": "T3BlbkFJ" * (1 << 19), "c": "\u05d0" + "\u200ea" * (1 << 20),
        "d": "-----BEGIN PRIVATE KEY-----\n" * (1 << 16), "e": "AKIA" * (1 << 20), "f": "a\u0430b " * (1 << 18),
    }  # fmt: skip
    folder = guide(tmp_path, **bombs)
    began = time.process_time()
    assert not judge(folder).accepted
    assert time.process_time() - began < 10


def test_a_name_that_is_easily_taken_for_another_is_shown(tmp_path: Path) -> None:
    report = judge(guide(tmp_path), "tidy-note", "else")
    assert [(each.kind, each.code) for each in report.findings] == [(Kind.ADVICE, "manifest.imitates")]
    assert refusals(judge(guide(tmp_path), "tidy-notes")) == [("manifest.taken", "SKILL.md", 0)]
    for one in ("tidynotes", "tidy-nodes", "tdiy-notes", "tidy-notess", "t1dy-n0tes", "tldy-notes"):
        assert find_imitated(one, {"tidy-notes"}), one
    for one, other in (("pdf", "pdb"), ("docx", "pptx"), ("tidy-notes", "tidy-lists")):
        assert not find_imitated(one, {other})


def test_the_names_of_all_tools_are_kept_from_guides() -> None:
    assert {name.replace("_", "-") for name in own_entry_points("hermes_exec.tools")} <= TOOLS


@pytest.mark.parametrize("name", ["3d-print", "json", "class", "conftest", "a"])
def test_a_guide_may_have_a_name_that_no_module_can(tmp_path: Path, name: str) -> None:
    about = ABOUT.replace("tidy-notes", name, 1)
    assert judge(write_skill(tmp_path / name, {"SKILL.md": about})).name == name


@pytest.mark.parametrize(
    "front",
    [
        "triggers:\n  - tidy\nversion: 1.0\nauthor: A\n", "tags: [a, b]\n", "metadata: {a: {b: [1, 2]}, c: x}\n",
        "metadata:\n  hermes:\n    tags: [a, {b: c}]\n", "allowed-tools: [Read, Bash]\n", "allowed-tools:\n  - Read\n",
        "license:\n", "metadata: []\nhooks: {a: 1, a: 2}\n",
        f"homepage: x\ncompatibility: {'x' * 600}\n",
    ],
)  # fmt: skip
def test_fields_and_values_that_the_format_lacks_refuse_nothing(tmp_path: Path, front: str) -> None:
    report = judge(guide(tmp_path, ABOUT.replace("---\n\n", front + "---\n\n", 1)))
    assert (report.rights, report.summary) == ((Right.READ,), "Keeps notes tidy."), report.reasons


def test_a_longer_description_than_the_format_allows_is_advice(tmp_path: Path) -> None:
    report = judge(guide(tmp_path, ABOUT.replace("Keeps", "Keeps " * 200)))
    assert advised(report) == {"manifest.long"}
    assert len(report.summary) > 1024


def test_files_and_folders_of_any_name_are_allowed(tmp_path: Path) -> None:
    paths = [
        ".gitignore", ".github/workflows/a.yml", "CLAUDE.md", "src/json.py", "My Notes/a b.md", "größe/日本.md",
        "node_modules.txt", "sub/SKILL.md", "a/b/c/d/e/f/g/h/i/j/k.md", "pytest.ini", "tests/conftest.py",
    ]  # fmt: skip
    assert advised(judge(guide(tmp_path, **dict.fromkeys(paths, "x\n")))) == {"manifest.agent-file", "manifest.nested"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a\u200bb.md", "manifest.file-name"), ("p\u0430ge.md", "manifest.file-name"),
        ("a\nb.md", "manifest.file-name"), ("con.md", "manifest.file-name"), ("a.md ", "manifest.file-name"),
        ("a\\b", "manifest.path"),
        ("skill.md", "manifest.collision"), ("/".join("abcdefghijklmn"), "manifest.path"),
    ],
)  # fmt: skip
def test_a_name_of_a_file_that_deceives_is_refused(tmp_path: Path, path: str, code: str) -> None:
    assert [each[0] for each in refusals(judge(guide(tmp_path, **{path: "x"})))] == [code]


def _listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        here = os.getcwd()
        os.chdir(path.parent)
        unix.bind(path.name)
        os.chdir(here)


MAKERS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "link": (lambda path: path.symlink_to("SKILL.md"), "manifest.link", "put a copy"),
    "link to a folder": (lambda path: path.symlink_to("."), "manifest.link", "put a copy"),
    "pipe": (os.mkfifo, "manifest.special", "remove it"),
    "socket": (_listen, "manifest.special", "remove it"),
    "second name": (lambda path: path.hardlink_to(path.parent / "SKILL.md"), "manifest.hard-link", "copy the folder"),
    "set-user-id": (lambda path: path.touch(0o4755), "manifest.set-id", "chmod a-s"),
    "large": (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), MAX_FILE + 1), "manifest.size", "8 MiB"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_file_that_is_no_plain_file_is_refused_with_a_remedy(tmp_path: Path, kind: str) -> None:
    make, code, remedy = MAKERS[kind]
    folder = guide(tmp_path)
    make(folder / "zz")
    report = judge(folder)
    assert [each[0] for each in refusals(report)] == [code]
    assert remedy in report.reasons[0]


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    report = judge(guide(tmp_path, **{f"a/{number}": "" for number in range(1001)}))
    assert [each[0] for each in refusals(report)] == ["manifest.files"]


def test_an_archive_is_judged_as_its_folder_is(tmp_path: Path) -> None:
    folder = guide(tmp_path, **{"references/a b.md": "x\n"})
    with zipfile.ZipFile(tmp_path / "whatever-1.0.zip", "w") as packed:
        for path in folder.rglob("*.md"):
            packed.write(path, path.relative_to(folder))
    report = judge(tmp_path / "whatever-1.0.zip")
    assert (report.name, report.digest) == ("tidy-notes", judge(folder).digest)
    with tarfile.open(tmp_path / "out.tar", "w") as tar:
        tar.add(folder / "SKILL.md", "../SKILL.md")
    assert [each[0] for each in refusals(judge(tmp_path / "out.tar"))] == ["manifest.path"]


def test_a_folder_of_skills_is_none(tmp_path: Path) -> None:
    report = judge(guide(tmp_path).parent)
    assert refusals(report) == [("manifest.missing", "", 0)]
    assert "the folder of tidy-notes/SKILL.md" in report.reasons[-1]


def test_a_manifest_in_small_letters_is_kept_in_capitals(tmp_path: Path) -> None:
    folder = guide(tmp_path)
    (folder / "SKILL.md").rename(folder / "skill.md")
    assert judge(folder).digest == judge(guide(tmp_path / "other")).digest


def test_a_small_guide_takes_less_than_a_second(tmp_path: Path) -> None:
    folder = guide(tmp_path)
    before = os.times()
    assert judge(folder).accepted
    after = os.times()
    assert sum(after[:4]) - sum(before[:4]) < 1
