"""What is sent to a place is whole, and in the order of its imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hermes_exec.transport import bootstrap
from hermes_exec.transport.bootstrap import minify

GUEST = Path(bootstrap.__file__).parent.parent / "guest"
CORE: tuple[str, ...] = bootstrap.CORE
NOT_SENT_AS_MODULES = {"core.loader", "core.bridge"}
PARTS: dict[str, tuple[str, ...]] = bootstrap.PARTS


def path_of(module: str) -> Path:
    return GUEST.joinpath(*module.split(".")).with_suffix(".py")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(GUEST).with_suffix("").parts)


def imports(module: str) -> set[str]:
    """The guest's modules that a module imports when it is run."""
    names: set[str] = set()
    package = module.split(".")[:-1]
    for node in ast.parse(path_of(module).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
            if path_of(".".join(base)).exists():
                names.add(".".join(base))
            else:
                names |= {".".join([*base, alias.name]) for alias in node.names}
    return names


@pytest.mark.parametrize("part", ["", *PARTS])
def test_each_module_comes_after_those_that_it_imports(part: str) -> None:
    there = set(CORE) if part else set[str]()
    if part != bootstrap.WORK:
        there |= set(PARTS[bootstrap.WORK]) if part else set()
    for module in PARTS[part] if part else CORE:
        assert imports(module) <= there, f"{module} needs {imports(module) - there} before it"
        there.add(module)


def test_every_module_of_the_guest_is_sent() -> None:
    sent = set(CORE).union(*PARTS.values())
    modules = {name_of(path) for path in GUEST.rglob("*.py") if path.name != "__init__.py"}
    assert sent == modules - NOT_SENT_AS_MODULES


def test_a_package_of_the_guest_has_nothing_but_a_docstring_beside_its_modules() -> None:
    for path in GUEST.rglob("__init__.py"):  # it is not sent, so no module may rely on it
        assert [type(node) for node in ast.parse(path.read_text()).body] == [ast.Expr], path


def test_no_module_is_sent_twice() -> None:
    modules = [*CORE, *(module for part in PARTS.values() for module in part)]
    assert len(modules) == len(set(modules))


@pytest.mark.parametrize("name", [*CORE, *(module for part in PARTS.values() for module in part)])
def test_what_is_left_out_on_the_way_to_a_far_place_is_not_code(name: str) -> None:
    source = path_of(name).read_bytes()
    assert code_of(minify(source)) == code_of(source)


def code_of(source: bytes) -> str:
    """What is in a module but its annotations and its texts that stand for themselves, with the lines."""
    return "\n".join(f"{node.lineno}: {ast.dump(node)}" for node in Code().visit(ast.parse(source)).body)


class Code(ast.NodeTransformer):
    """Drops what does nothing."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return None if names == ["TYPE_CHECKING"] else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node


def test_the_core_goes_to_a_far_place_in_one_round_trip() -> None:
    argv, core = bootstrap.guest_command("<hx 000000000000000000000000>", "source")
    assert len(core) + len(" ".join(argv)) < 13_200  # of 10 segments of 1448 bytes
