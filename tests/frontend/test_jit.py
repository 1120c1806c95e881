"""JITFunction: parameters, source, cache key, and what Python may do with it."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError
from kernelpack.kernel.callables import JITCallable
from kernelpack.kernel.dependencies import lines_of
from kernelpack.kernel.source import source_of
from kernelpack.kernel.values import ConstexprFunction
from tests.frontend.compiling import define, run


def keep(fn: Any) -> Any:
    return fn


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


YES = tl.constexpr(True)


@keep
@kp.jit(
    noinline=True,
    do_not_specialize=["n", 0],
    do_not_specialize_on_alignment=("q",),
)
@wrapped
def decorated(p, q, n: "tl.int32", FLAG: tl.constexpr = YES, SIZE: "tl.constexpr" = 4):
    """The docstring.
    Less indented than the code.
    """
    tl.store(p, tl.load(q) + n)


def test_parameters() -> None:
    assert decorated.arg_names == ["p", "q", "n", "FLAG", "SIZE"]
    assert [param.name for param in decorated.params if param.is_constexpr] == ["FLAG", "SIZE"]
    assert [param.name for param in decorated.params if param.do_not_specialize] == ["p", "n"]
    assert [param.name for param in decorated.params if param.do_not_specialize_on_alignment] == ["q"]
    # where there is none, host code that completes arguments expects what inspect says
    assert [param.default for param in decorated.params[2:]] == [inspect.Parameter.empty, True, 4]
    assert [param.has_default for param in decorated.params[2:]] == [False, True, True]
    assert decorated.params[2].annotation.strip("'\"") == "tl.int32"
    assert decorated.__name__ == "decorated"
    assert decorated.module == __name__
    assert decorated.__doc__.startswith("The docstring.")
    assert decorated.noinline


def test_source_starts_at_def_under_several_decorators() -> None:
    lines = Path(__file__).read_text().split("\n")
    assert decorated.file == __file__
    assert lines[decorated.starting_line_number - 1].startswith("def decorated(")
    assert decorated.src.startswith("def decorated(p, q, n")
    assert decorated.src.rstrip().endswith("tl.store(p, tl.load(q) + n)")
    assert decorated.parse().lineno == decorated.starting_line_number
    x, y = np.zeros(1, np.int32), np.array([5], np.int32)
    run(decorated, 1, p=x, q=y, n=2)
    assert x[0] == 7


def test_kernels_are_found_in_every_kind_of_statement() -> None:
    names = define(
        """
        class Kernels:
            for _ in range(1):
                with open("/dev/null"):
                    try:
                        raise ValueError
                    except ValueError:
                        match 1:
                            case 1:
                                while True:
                                    def in_body(x):
                                        return x
                                    break
                    finally:
                        if _:
                            pass
                        else:
                            async def outer():
                                def in_finally(x):
                                    return x
                                return in_finally
        """
    )
    outer = names["Kernels"].outer()
    with pytest.raises(StopIteration) as returned:
        outer.send(None)
    for function in (names["Kernels"].in_body, returned.value.value):
        assert source_of(function).text.strip().endswith("return x")


def test_source_of_nested_and_like_named_functions() -> None:
    def make(number: int) -> kp.JITFunction:
        if number == 1:

            @kp.jit
            def fn(p):
                tl.store(p, 1)
        else:

            @kp.jit
            def fn(p):
                tl.store(p, 2)

        return fn

    assert make(1).src == "def fn(p):\n    tl.store(p, 1)\n"
    assert make(2).src == "def fn(p):\n    tl.store(p, 2)\n"


def test_excluding_an_unknown_parameter_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"f has no parameter m \(named in do_not_specialize\)"):
        define("@kp.jit(do_not_specialize=['m'])\ndef f(n):\n    pass")


def test_python_cannot_call_kernels_or_builtins() -> None:
    with pytest.raises(CompilationError, match=r"decorated is a kernel function: Python cannot call it"):
        decorated(1, 2, 3)
    with pytest.raises(
        CompilationError, match=r"load is part of the kernel language and can only be called inside a @jit function"
    ):
        tl.load(None)
    with pytest.raises(CompilationError, match=r"is a kernel function"):
        tl.cdiv(4, 2)


def test_kernels_without_source_are_refused() -> None:
    scope: dict[str, Any] = {"kp": kp}
    exec("@kp.jit\ndef f(n):\n    pass", scope)
    with pytest.raises(CompilationError, match="the source of f cannot be read"):
        scope["f"].parse()
    with pytest.raises(CompilationError, match="or it is a lambda"):
        kp.jit(lambda n: n).parse()
    with pytest.raises(CompilationError, match="is not a Python function"):
        kp.jit(print)


def test_kernels_are_pickled_by_name_and_are_their_own_copies() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated
    assert repr(decorated) == f"JITFunction({__name__}:decorated)"


# ---- cache key ----

PROGRAM = """
import kernelpack as kp
import kernelpack.language as tl

SCALE = tl.constexpr(3)
unrelated = 5

@kp.constexpr_function
def size(n):
    return n * 2

@kp.jit
def helper(x):
    return x * SCALE

@kp.jit
def kernel(p, N: tl.constexpr = SCALE):
    tl.store(p, helper(tl.load(p)) + size(2))
"""


def key(program: str, folder: Path, name: str = "program") -> str:
    """Returns the cache key of a program's kernel, in a file of its own."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(program)
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, str(folder / f"{name}.py"), "exec"), scope)
    return str(scope["kernel"].cache_key)


def test_cache_key_depends_on_meaning_not_on_place(tmp_path: Path) -> None:
    base = key(PROGRAM, tmp_path)
    assert len(base) == 64
    assert key(PROGRAM, tmp_path / "elsewhere") == base
    assert key("# moved\n\n" + PROGRAM, tmp_path, "moved") == base
    assert key(PROGRAM.replace("unrelated = 5", "unrelated = 6"), tmp_path, "unrelated") == base
    for number, (old, new) in enumerate(
        [
            ("x * SCALE", "x + SCALE"),
            ("constexpr(3)", "constexpr(4)"),
            ("constexpr(3)", "constexpr(3.0)"),
            ("n * 2", "n * 3"),
            ("size(2)", "size(3)"),
            ("@kp.jit\ndef helper", "@kp.jit(noinline=True)\ndef helper"),
        ]
    ):
        assert key(PROGRAM.replace(old, new), tmp_path, f"variant{number}") != base, (old, new)


SEARCHED = """
import kernelpack as kp
import kernelpack.language as tl

SIZES, LEFT = [16, 32], tl.constexpr(5)

@kp.autotune([kp.Config({"B": LEFT}) for LEFT in SIZES], key=["n"])
@kp.jit
def searched(p, n, B: tl.constexpr):
    tl.store(p, LEFT)

kernel = searched.fn
"""


def test_cache_key_leaves_out_what_decorators_read(tmp_path: Path) -> None:
    """Packages search other configs where they find no GPU. A variable of a decorator hides no name that the kernel reads."""
    base = key(SEARCHED, tmp_path)
    assert key(SEARCHED.replace("[16, 32]", "[64]"), tmp_path, "sizes") == base
    assert key(SEARCHED.replace("constexpr(5)", "constexpr(6)"), tmp_path, "left") != base


CHOICES = """
import kernelpack as kp
import kernelpack.language as tl

@kp.jit
def helper(x):
    return x * 2

CHOICES = tl.constexpr({"a": (helper, 3)})

@kp.jit
def kernel(p):
    tl.store(p, CHOICES["a"][0](tl.load(p)) + CHOICES["a"][1])
"""


def test_cache_key_covers_what_containers_hold(tmp_path: Path) -> None:
    base = key(CHOICES, tmp_path)
    for number, (old, new) in enumerate([("(helper, 3)", "(helper, 4)"), ("x * 2", "x * 3")]):
        assert key(CHOICES.replace(old, new), tmp_path, f"variant{number}") != base, (old, new)


def test_cache_key_covers_what_compile_time_functions_close_over() -> None:
    make = define(
        """
        def make(n):
            @kp.constexpr_function
            def size(more=n):
                return n + more

            @kp.jit
            def kernel(p):
                tl.store(p, size())

            return kernel
        """
    )["make"]
    assert make(1).cache_key == make(1).cache_key != make(2).cache_key


HELPERS = """
import kernelpack as kp
import kernelpack.language as tl

STEP = 2

def twice(n):
    return n * STEP

@kp.constexpr_function
def size(n):
    return twice(n) + 1

@kp.jit
def kernel(p):
    tl.store(p, size(2))
"""


def test_cache_key_of_functions_that_call_functions_a_thousand_deep() -> None:
    first = "@kp.jit\ndef call_0(x):\n    return x\n"
    others = (f"@kp.jit\ndef call_{n}(x):\n    return call_{n - 1}(x)\n" for n in range(1, 1500))
    last = define("\n".join([first, *others]))["call_1499"]
    assert len(last.cache_key) == 64


def test_cache_key_covers_the_plain_functions_that_compile_time_functions_call(tmp_path: Path) -> None:
    base = key(HELPERS, tmp_path)
    for number, (old, new) in enumerate([("n * STEP", "n + STEP"), ("STEP = 2", "STEP = 3"), ("+ 1", "+ 2")]):
        assert key(HELPERS.replace(old, new), tmp_path, f"variant{number}") != base, (old, new)


def test_compile_time_functions_show_what_kernels_do() -> None:
    size = define(HELPERS.partition("language as tl")[2])["size"]
    assert isinstance(size, ConstexprFunction)
    assert isinstance(size, JITCallable)
    assert not isinstance(size, kp.JITFunction)
    assert size.src == "def size(n):\n    return twice(n) + 1\n"
    assert size.raw_src[0] == "@kp.constexpr_function\n"
    assert size.parse().name == size.__name__ == size.__wrapped__.__name__ == "size"
    assert list(size.signature.parameters) == ["n"]
    assert size.fn(3) == size(tl.constexpr(3)) == 7
    before = size.cache_key
    size._unsafe_update_src("def size(n):\n    return n\n")
    assert len(size.cache_key) == len(before) == 64
    assert size.cache_key != before
    assert size(3) == 3


def test_lines_of_a_function_are_its_place_and_those_it_reaches(tmp_path: Path) -> None:
    def lines(program: str, folder: str, name: str = "program") -> str:
        path = tmp_path / folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(program)
        scope: dict[str, Any] = {"__name__": "program"}
        exec(compile(program, str(path), "exec"), scope)
        return lines_of(scope["kernel"])

    base = lines(PROGRAM, "a")
    assert [place.split(":")[0] for place in base.split()] == ["program.py"] * 3  # the language's own functions do not count
    assert lines(PROGRAM, "b") == base
    assert lines(PROGRAM, "a", "other") == base.replace("program.py", "other.py")
    assert lines("# moved\n" + PROGRAM, "c") != base
    assert lines(PROGRAM + "# after\n", "d") == base


def test_cache_key_covers_the_language_and_is_the_same_in_every_process(tmp_path: Path) -> None:
    program = PROGRAM.replace("tl.load(p)", "tl.sum(tl.load(p + tl.arange(0, 4)))")
    script = tmp_path / "script.py"
    script.write_text(program + "print(kernel.cache_key)\n")
    keys = {
        subprocess.run(
            [sys.executable, str(script)], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert keys != {key(PROGRAM, tmp_path)}
    assert len(keys) == 1


def test_functions_that_call_each_other_have_keys(tmp_path: Path) -> None:
    program = """
    import kernelpack as kp
    import kernelpack.language as tl

    @kp.jit
    def kernel(p, N: tl.constexpr):
        if N > 0:
            other(p, N - 1)

    @kp.jit
    def other(p, N: tl.constexpr):
        kernel(p, N)
    """
    base = key(textwrap.dedent(program), tmp_path)
    assert key(textwrap.dedent(program).replace("kernel(p, N)\n", "kernel(p, N - 1)\n"), tmp_path, "changed") != base


def test_constexpr_functions_work_in_python_too() -> None:
    assert kp.cdiv(7, 2) == 4
    assert kp.cdiv(tl.constexpr(8), 2) == 4
    assert [kp.next_power_of_2(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]


def test_what_is_not_specialized_may_be_named_by_any_iterable() -> None:
    fn = kp.jit(do_not_specialize=(name for name in ["n"]), do_not_specialize_on_alignment=iter([0]))(decorated.fn)
    assert [param.name for param in fn.params if param.do_not_specialize] == ["n"]
    assert [param.name for param in fn.params if param.do_not_specialize_on_alignment] == [fn.arg_names[0]]


def test_a_function_may_be_given_another_text() -> None:
    scale = tl.constexpr(3)

    @kp.jit
    def grow(x, n):
        tl.store(x, n + scale)

    x = np.zeros(1, np.int32)
    first = grow.cache_key
    assert grow.get_capture_scope()["scale"] is scale
    grow._unsafe_update_src("def other(x, n):\n    tl.store(x, n * scale)\n")
    run(grow, 1, x=x, n=5)
    assert x[0] == 15
    assert grow.__name__ == "grow"
    assert (grow.src, grow.cache_key == first) == ("def other(x, n):\n    tl.store(x, n * scale)\n", False)
    grow._unsafe_update_src("def grow(x, n):\n    tl.store(x, nothing)\n")
    with pytest.raises(
        CompilationError, match=r"<test_a_function_.*grow, \w+>:2:17: nothing is not defined(.|\n)*tl.store\(x, nothing\)"
    ):
        run(grow, 1, x=x, n=5)
    with pytest.raises(CompilationError, match=r"the new text of grow has no `def`"):
        grow._unsafe_update_src("grow = 3")


def test_a_launched_function_that_is_given_another_text_is_compiled_again() -> None:
    @kp.jit
    def put(x):
        tl.store(x, 1.0)

    x = torch.zeros(1)
    put[(1,)](x)
    put._unsafe_update_src("def put(x):\n    tl.store(x, 2.0)\n")
    put[(1,)](x)
    assert x.item() == 2.0


def test_a_function_of_given_text_may_take_the_place_of_its_template() -> None:
    @kp.jit
    def template(x):
        tl.store(x, 1.0)

    made = kp.jit(lambda x: None)
    made._unsafe_update_src("def made(x):\n    tl.store(x, 2.0)\n")
    assert not template.is_gluon()
    for name in ("raw_src", "starting_line_number", "def_file_line_number", "def_file_col_number"):
        setattr(made, name, getattr(template, name))
    assert (made.starting_line_number, made.def_file_col_number) == (template.source.line, 5)
    place = template.fn.__code__
    made.fn.__code__ = made.fn.__code__.replace(co_filename=place.co_filename, co_firstlineno=place.co_firstlineno)
    x = torch.zeros(1)
    made[(1,)](x)
    assert x.item() == 2.0


class Functions:
    """A namespace: what kernels call as `module.Functions.double`."""

    @staticmethod
    @kp.jit
    def double(x):
        return x * Functions_factor

    @staticmethod
    def plain(x):
        return x


Functions_factor = tl.constexpr(2)


def test_classes_are_namespaces_of_static_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = define("@kp.jit\ndef f(p):\n    tl.store(p, here.Functions.double(tl.load(p)))", here=sys.modules[__name__])["f"]
    x = torch.full((1,), 3.0)
    fn[(1,)](x)
    assert x.item() == 6.0
    monkeypatch.setattr(sys.modules[__name__], "Functions_factor", tl.constexpr(5))
    fn[(1,)](x)
    assert x.item() == 30.0
    fn = define("@kp.jit\ndef f(p):\n    tl.store(p, here.Functions.plain(tl.load(p)))", here=sys.modules[__name__])["f"]
    fn[(1,)](x)
    assert x.item() == 30.0, "a plain function is called while the kernel is compiled, as Triton does"
