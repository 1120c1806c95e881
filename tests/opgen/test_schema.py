"""What parse_schema accepts torch accepts; what torch refuses, aborts on or cannot call is refused when building."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from kernelpack.errors import KernelpackError, SchemaError
from kernelpack.opgen.build import plan_library
from kernelpack.opgen.stated.schema import parse_schema

GOOD = [
    "mha(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, *, bool is_causal=False, float? scale=None) -> Tensor",
    "f(Tensor x) -> (Tensor low, Tensor high)",
    "f(Tensor(a!) x, Tensor(b!) y, int n=1) -> ()",
    "f(Tensor x, int[2] size=[1, 2], float[] values=[], bool b=True) -> (Tensor, int, float, bool)",
    "f(Tensor x, ScalarType? dtype=None, Device? device=None, SymInt n=-3, float e=1e-05) -> Tensor",
]


@pytest.mark.parametrize("text", GOOD)
def test_schemas_print_as_torch_reads_them(text: str) -> None:
    schema = parse_schema(text)
    assert str(parse_schema(str(schema))) == str(schema)
    assert str(torch._C.parse_schema(str(schema))) == str(torch._C.parse_schema(text))
    out = schema.out_variant()
    if out is not None:
        torch._C.parse_schema(str(out))


BAD = [
    ("f(Tensor x", "expected ','"),
    ("f(Tensor x) -> ", "a result cannot have type 'nothing'"),
    ("f(Tensor x) -> Tensor Tensor", "unexpected 'Tensor' after the schema"),
    ("(Tensor x) -> Tensor", "expected the op's name, found '\\('"),
    ("my::f(Tensor x) -> Tensor", "names a namespace"),
    ("f.out(Tensor x) -> Tensor", "names an overload"),
    ("for(Tensor x) -> Tensor", "a Python keyword"),
    ("f(Tensor in) -> Tensor", "a Python keyword"),
    ("f(Tensor x, Tensor x) -> Tensor", "two arguments are called 'x'"),
    ("f(Tensor x) -> (Tensor a, Tensor a)", "two results are called 'a'"),
    ("f(Tensor x, int n=1, int m) -> Tensor", "without default follows 'n'"),
    ("f(Tensor x, *, *, int m) -> Tensor", "two '\\*'"),
    ("f(Tensor x, *) -> Tensor", "nothing follows '\\*'"),
    ("f(Tensor x, str mode) -> Tensor", "type 'str'(.|\n)*enum.IntEnum"),
    ("f(Tensor x, Scalar s) -> Tensor", "type 'Scalar'(.|\n)*use float"),
    ("f(Tensor x, complex s) -> Tensor", "type 'complex'"),
    ("f(Tensor x, Dict d) -> Tensor", "type 'Dict'"),
    ("f(Tensor x, tensor y) -> Tensor", "type 'tensor'(.|\n)*use one of Tensor"),
    ("f(Tensor[] xs) -> Tensor", "cannot be a list of Tensor"),
    ("f(Tensor x, int?[] n) -> Tensor", "cannot be a list of int\\?"),
    ("f(Tensor x, int[]? n=None) -> Tensor", "cannot be an optional list"),
    ("f(Tensor x, int[0] n) -> Tensor", "length must be a number from 1 to 64"),
    ("f(Tensor x, int[65] n=1) -> Tensor", "length must be a number from 1 to 64"),
    ("f(Tensor x, int n=9223372036854775808) -> Tensor", "default 9223372036854775808 does not fit 64 bits"),
    ("f(Tensor x, float n=-1e999) -> Tensor", "default -1e999 is larger than any float"),
    ("f(Tensor x, int n=1.5) -> Tensor", "'1.5' is not a value of type int"),
    ("f(Tensor x, int n=True) -> Tensor", "True is not a value of type int"),
    ("f(Tensor x, bool b=1) -> Tensor", "'1' is not a value of type bool"),
    ("f(Tensor x, int n=None) -> Tensor", "None needs an optional type"),
    ("f(Tensor x, int[] n=3) -> Tensor", "3 is not a value of type int\\[\\]"),
    ("f(Tensor x, ScalarType t=float) -> Tensor", "default 'float'"),
    ("f(Tensor(a) x) -> Tensor", "an alias that is not written to"),
    ("f(Tensor(a!) x, Tensor(a!) y) -> ()", "share the alias letter"),
    ("f(Tensor(a!) x) -> Tensor(a!)", "a result that is an argument cannot be compiled"),
    ("f(Tensor(a!) x) -> int", "writes to x and returns int: torch.compile cannot call"),
    ("f(int(a!) n, Tensor x) -> ()", "int n cannot be written to"),
    ("f(Tensor x) -> ()", "no result and writes to no argument"),
    ("f(Tensor x) -> Tensor?", "a result cannot have type Tensor\\?"),
    ("f(Tensor x) -> Tensor[]", "(.|\n)*"),
    ("f(int n) -> Tensor", "takes no Tensor"),
    ("f(Tensor? x=None) -> Tensor", "every Tensor of 'f' is optional"),
    ("f(Tensor x; int n) -> Tensor", "';'"),
    ("f(Tensor x) -> Tensor # comment", "'#'"),
    ("", "expected the op's name"),
    ("größe(Tensor x) -> Tensor", "unexpected character|found"),
    ("f(Tensor größe) -> Tensor", "expected ','(.|\n)*|unexpected character"),
    ("f(Tensor x, float n=.) -> Tensor", "default '.' is not a value of type float"),
    (f"f(Tensor x, int n={'1' * 5000}) -> Tensor", "does not fit 64 bits"),
    (f"f(Tensor x, int[{'1' * 5000}] n) -> Tensor", "length must be a number from 1 to 64"),
    (f"f(Tensor x, int[] n={'[' * 5000}", "a list default holds numbers or booleans"),
    ("f(Tensor x, int[\u0661] n) -> Tensor", "unexpected character"),
    ("f(Tensor x, int n=\u0661) -> Tensor", "unexpected character"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_schemas_are_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_schema(text)


def test_what_random_schemas_are_accepted_torch_accepts() -> None:
    """Pieces of schemas in random order: nothing that passes here makes torch refuse, or print another schema."""
    pieces = ["Tensor", "Tensor?", "Tensor(a!)", "int", "int?", "int[]", "int[3]", "float", "bool", "SymInt", "SymInt[]", "float[]",
              "ScalarType", "Device?", "x", "y", "n", "out", "=", "=None", "=1", "=True", "=[1, 2]", "=2.5", ",", ", ", "*", "(", ")"]  # fmt: skip
    chance = random.Random(0)
    accepted = 0
    for _ in range(30000):
        arguments = ", ".join(
            f"{chance.choice(pieces[:14])} {chance.choice(['x', 'y', 'n', 'out', 'self'])}{chance.choice(['', '', *pieces[18:24]])}"
            for _ in range(chance.randint(1, 3))
        )
        if chance.random() < 0.3:
            arguments += chance.choice(pieces)
        text = f"f({'Tensor t, ' * (chance.random() < 0.7)}{arguments}) -> {chance.choice(['Tensor', '(Tensor, Tensor)', '()', 'int'])}"
        try:
            schema = parse_schema(text)
        except SchemaError:
            continue
        accepted += 1
        assert str(torch._C.parse_schema(str(schema))) == str(torch._C.parse_schema(text)), text
        if (out := schema.out_variant()) is not None:
            torch._C.parse_schema(str(out))
    assert accepted > 500


OPS = """
import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))


@kp.op(
    "SCHEMA",
    variants={"x": [tl.float32]},
)
def f(x):
    out = kp.empty_like(x)
    kernel[(1,)](x, out, x.numel(), BLOCK=16)
    return out
"""


def test_the_place_of_a_bad_schema_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "my_ops.py"
    file.write_text(OPS.replace("SCHEMA", "f(Tensor x, str mode) -> Tensor"))
    with pytest.raises(SchemaError) as raised:
        plan_library([file], namespace="mine", targets=["cpu:x86-64-v3"])
    text = str(raised.value)
    assert text.startswith(f"{file}:12:5: an argument cannot have type 'str'\n    f(Tensor x, str mode) -> Tensor\n")
    assert text.splitlines()[2] == "    " + " " * len("f(Tensor x, ") + "^"


GOOD_OP = OPS.replace("SCHEMA", "f(Tensor x) -> Tensor")
VARIANTS = 'variants={"x": [tl.float32]},'


def told(variants: str = VARIANTS, more: str = "") -> str:
    return GOOD_OP.replace(VARIANTS, f"{variants} {more}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (OPS.replace("SCHEMA", "g(Tensor x) -> Tensor"), "11: the schema names 'g', the host function is called 'f'"),
        (OPS.replace("SCHEMA", "f(Tensor y) -> Tensor"), "11: .*'x' lists dtypes, but the schema has no Tensor argument of(.|\n)*are y"),
        (GOOD_OP.replace("def f(x)", "def f(*x)"), "15:1: f takes \\(\\*x\\), its schema \\(x\\)"),
        (told("variants=[tl.float32],"), "11: variants of f: expected dtypes and values by name, found (.|\n)*write variants={"),
        (told(more='configs=kp.Config({"BLOCK": 1}),'), "11: configs of f: expected configs by target(.|\n)*write configs={"),
        (told(more='configs={"cpu": {"BLOCK": 1}},'), "11: configs of f: for 'cpu' it lists {'BLOCK': 1}, which is no kp.Config"),
        (told(more='configs={"cpu": lambda p: {"BLOCK": 1}},'), "13: the config function of kernel.* returned {'BLOCK': 1}(.|\n)*or None"),
        (
            told(more='configs={"cpu": lambda p: p.n_cols},'),
            "13: the config function of kernel.* failed: AttributeError: the point has no attribute 'n_cols', but target, kernel, "
            r"specialized, and point\['x'\]",
        ),
        (told(more='configs={"cpu": lambda p: p.x},'), r"13: .* failed: AttributeError: .*; write point\['x'\]"),
        (told(more='configs={"cpu": lambda p: p["y"]},'), "13: the config function of kernel.* failed: LookupError: the point has no 'y', but x"),
        (told(more='configs={"cuda:sm_91": kp.Config({})},'), "11: configs of f: no target starts with 'cuda:sm_91'; did you mean 'cuda:sm_90'"),
        (told(more='specialize="x",'), "11: specialize of f: expected a list of kp.aligned\\(...\\), found 'x'"),
        (told(more="tune=3,"), "11: tune of f: expected a function that yields calls, found 3"),
        (GOOD_OP + GOOD_OP[GOOD_OP.index("@kp.op") :], "19: op 'f' is defined twice; the other is at .*my_ops.py:11"),
    ],
)  # fmt: skip
def test_ops_whose_parts_do_not_fit_are_refused_with_the_line(tmp_path: Path, source: str, message: str) -> None:
    file = tmp_path / "my_ops.py"
    file.write_text(source)
    with pytest.raises(KernelpackError, match=f"my_ops.py:{message}"):
        plan_library([file], namespace="mine", targets=["cpu:x86-64-v3"])


def test_one_name_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(GOOD_OP)
    with pytest.raises(SchemaError, match=r"two.py:11: op 'f' is defined twice; the other is at .*one.py:11"):
        plan_library([tmp_path], namespace="mine", targets=["cpu:x86-64-v3"])


@pytest.mark.parametrize("namespace", ["1st", "my-ops", "my ops", "", "größe", "class"])
def test_namespaces_that_are_no_identifiers_are_refused(tmp_path: Path, namespace: str) -> None:
    (tmp_path / "one.py").write_text(GOOD_OP)
    with pytest.raises(SchemaError, match="namespace"):
        plan_library([tmp_path], namespace=namespace, targets=["cpu:x86-64-v3"])
