"""Each example runs on the target ``local`` and prints what it promises."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "run_and_stream": ["42", "$((6 * 7))", "3 oops", "raised: 4", "True begun", "got two"],
    "sessions": ["hello from demo in /tmp", "other in /", "127", "5 restored", "again from demo in /tmp"],
    "files_and_sync": ["b'two\\n'", "missing: 2", "sent: 1", "sent: 0", "['main.py']", "hello", "False"],
    "jobs": ["the starter was ended by signal 9", "step 1", "step 3", "the job ended with exit code 4"],
    "ports": ["hello from the target"],
    "pool": ["task 0: clean", "task 5: clean"],
    "sandbox": ["write to the system: denied", "open a connection: denied", "write to its own /tmp: possible"],
    "scripted_agent": ["[tool] read_file: ok", "The report is in sales/report.csv", "[answered] 2 calls in 3 replies"],
}
NOTEBOOK = """
import sys, tempfile, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
with tempfile.TemporaryDirectory(prefix="nb") as folder:  # the path of a socket has to be short
    client = NotebookClient(notebook, kernel_name="python3", timeout=60)
    client.create_kernel_manager()
    client.km.transport, client.km.ip = "ipc", f"{folder}/kernel"
    client.execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text") or output.get("data", {}).get("text/plain"))
"""


def environment(home: Path) -> dict[str, str]:
    """The variables of an example: a home of its own, and no way to a network's proxy."""
    names = {"PATH", "LANG", "TMPDIR"}
    return {name: value for name, value in os.environ.items() if name in names} | {
        "HOME": str(home),
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def printed(argv: list[str], home: Path) -> list[str]:
    """The lines on standard output of a program that has to succeed without a word on standard error."""
    done = subprocess.run(
        [sys.executable, *argv],
        check=False,
        capture_output=True,
        text=True,
        cwd=home,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_every_example_is_run_by_a_test() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTED)


def test_the_readme_of_the_examples_names_each_of_them() -> None:
    text = (EXAMPLES / "README.md").read_text()
    others = [path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb"}]
    assert [name for name in others if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_begins_with_what_it_shows(name: str) -> None:
    text = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    assert f"python examples/{name}.py" in text
    assert text.splitlines()[0].endswith((".", ":"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    if name == "sandbox" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed. Try: ./dev test --provision")
    lines = printed([str(EXAMPLES / f"{name}.py")], tmp_path)
    if name == "sandbox" and lines[0].startswith("no sandbox here:"):
        pytest.skip(lines[0])
    missing = [text for text in PRINTED[name] if not any(line.startswith(text) for line in lines)]
    assert not missing, lines


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    lines = printed(["-W", "ignore", "-c", NOTEBOOK, str(EXAMPLES / "tour.ipynb")], tmp_path)
    assert "'local'" in lines
    assert "2 in /tmp" in lines
    assert "step 3" in lines
    assert "0 1 2" in lines


def test_the_notebook_is_stored_without_output() -> None:
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text())
    assert [cell for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")] == []
