"""Loads the modules that arrive through the channel into the package ``hermes_guest``.

The loader itself is sent as source and run as ``__main__``. The modules are a marshalled tuple of the sender's magic
number and, for each module, its name, compiled code and source. The compiled code is used if the magic number is this
interpreter's, and the source otherwise.
"""

import _frozen_importlib_external as _external
import marshal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

PACKAGE = "hermes_guest"


def _package(name: str) -> "ModuleType":
    package = sys.modules.get(name)
    if package is None:
        package = sys.modules[name] = type(sys)(name)
        package.__path__ = []  # makes the module a package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(_package(parent), last, package)
    return package


def load(blob: bytes) -> "ModuleType":
    """Create the modules in their order, and return the last one."""
    if blob[:1] == b"z":
        import zlib

        blob = zlib.decompress(blob[1:])
    magic, modules = marshal.loads(blob)
    same = magic == _external.MAGIC_NUMBER
    kind = type(sys)  # pyright: ignore[reportUnknownVariableType]  the class of all modules
    module = _package(PACKAGE)
    for name, code, source in modules:
        full = PACKAGE + "." + name
        package = _package(full.rpartition(".")[0])
        module = sys.modules[full] = kind(full)
        module.__package__ = package.__name__
        setattr(package, full.rpartition(".")[2], module)
        exec(marshal.loads(code) if same else compile(source, full, "exec"), module.__dict__)
    return module
