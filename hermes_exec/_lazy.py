"""Load the public names of a package on first use, so that importing the package stays cheap."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_loader(package: str, modules: "Mapping[str, str]") -> "Callable[[str], object]":
    """Return the ``__getattr__`` of a package, given the module of each public name."""

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{package}.{module}"), name)

    return load
