"""kernelpack.triton holds names and refusals, and nothing that does anything."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

import kernelpack.triton
from kernelpack.errors import RefusedNameError
from kernelpack.refusals import REFUSED

ROOM = Path(kernelpack.triton.__file__).parent
FILES = sorted(ROOM.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOM.parents[1]).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_allowed(node: ast.stmt) -> bool:
    """Whether a statement hands on names, refuses one, or says what the file is for."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):  # a program
            return True
        case ast.Assign(targets=[ast.Name(id="__path__")], value=ast.List(elts=[])):  # nothing is found within
            return True
        case ast.Assign(targets=[target]):
            return ast.unparse(target) in ("__all__", "__getattr__", "sys.modules[__name__]")
        case ast.Raise(exc=ast.Call(func=ast.Name(id="refusal"))):
            return True
    return False


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_a_file_only_hands_on_names(path: Path) -> None:
    body = ast.parse(path.read_text()).body
    assert [ast.unparse(node) for node in body if not is_allowed(node)] == []


def test_what_is_more_than_a_name_is_found() -> None:
    for text in ("def f(): ...", "class A: ...", "x = 1", "f = lambda: 1", "for i in x: pass", "print()"):
        assert not is_allowed(ast.parse(text).body[0])


@pytest.mark.parametrize("path", [path for path in FILES if "raise refusal(" not in path.read_text()], ids=module_of)
def test_every_module_can_be_imported_and_has_the_names_that_it_states(path: Path) -> None:
    module = importlib.import_module(module_of(path))
    assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == []


@pytest.mark.parametrize("name", [name for name in REFUSED if "gluon" not in name])
def test_what_is_refused_says_why_and_what_to_use(name: str) -> None:
    home, _, last = name.rpartition(".")
    statement = (
        f"from kernelpack.{name} import anything"
        if name.startswith("triton.tools.") or name == "triton._C.libtriton.ir"  # whose modules have some of the names
        else f"from kernelpack.{home} import {last}"
    )
    with pytest.raises(RefusedNameError) as caught:
        exec(statement)
    assert str(caught.value) == f"{name} {REFUSED[name].reason}\n  to fix: {REFUSED[name].cure}"


def test_kernels_of_gluon_can_be_defined_and_not_launched() -> None:
    """Engines define them wherever there is a Triton, and use them on some GPUs only."""
    from kernelpack.triton.experimental import gluon

    gl, extra = gluon.language, gluon.language.extra

    @gluon.jit(do_not_specialize=["n"])
    def kernel(x, n, LAYOUT: gl.constexpr):
        gl.store(x + gl.arange(0, 4, LAYOUT), extra.value(n))

    layout = gl.BlockedLayout([1], [32], [4], [0])
    for use in (lambda: kernel[(1,)](None, 4, layout), lambda: bool(layout), lambda: [*gl.layouts]):
        with pytest.raises(RefusedNameError, match=r"^triton.experimental.gluon(.language)? is for Gluon, the language"):
            use()


def test_who_asks_whether_a_refused_module_is_there_is_told_no() -> None:
    for name in ("experimental.gluon.language", "profiler.language.more"):
        with pytest.raises(ModuleNotFoundError):
            importlib.util.find_spec(f"kernelpack.triton.{name}")
    assert not hasattr(kernelpack.triton.language, "no_such_name")
    with pytest.raises(ImportError, match="cannot import name 'AttrsDescriptor'"):
        exec("from kernelpack.triton.compiler.compiler import AttrsDescriptor")
