"""The code that is sent to a target does not depend on import hooks of this process."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import importlib.machinery, sys

class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        raise RuntimeError("a hook changed " + name)

    def exec_module(self, module):
        exec(compile(open(self.path).read(), self.path, "exec"), module.__dict__)

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target)
        if name.startswith("hermes_exec") and spec is not None and isinstance(
            spec.loader, importlib.machinery.SourceFileLoader
        ):
            spec.loader = Loader(name, spec.origin)
        return spec

sys.meta_path.insert(0, Finder)
import hermes_exec.sync

with hermes_exec.sync.open("local", audit=False) as terminal:
    print(terminal.run("echo opened").stdout_text)
"""


def test_a_terminal_opens_next_to_a_hook_that_changes_modules() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "opened"), done.stderr
