"""Writes docs/functions.md: every function of the language, with its docstring, the types it takes and the backends that have it.

Types and backends are found by asking: an example of each function is compiled for every type of element, and the backends
say what they refuse. Run: make docs.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cuda.machine.features import cpp_header
from kernelpack.backends.installed import backend_of
from kernelpack.compiler.stages import legalise, optimise_ttir
from kernelpack.errors import KernelpackError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.libdevice import FUNCTIONS
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.signatures import parse_type
from kernelpack.language import hopper
from kernelpack.language.extra import cuda
from kernelpack.options import Options
from kernelpack.target import Target

PAGE = Path(__file__).with_name("functions.md")
HEADER = Path(__file__).parents[1] / "csrc" / "kernels" / "cuda_features.h"
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
SMALL_FLOATS = ("fp8e4nv", "fp8e5")

SECTIONS: dict[str, tuple[Any, str]] = {
    "Programs, tiles, memory, products, reductions": (tl.core, "tl"),
    "Reductions, scans and more, written in the language itself": (tl.standard, "tl"),
    "Mathematics": (tl.math, "tl"),
    "Order": (tl.sorting, "tl"),
    "Other operations on tiles": (tl.tile_ops, "tl"),
    "Atomics": (tl.atomics, "tl"),
    "Block pointers": (tl.block_pointers, "tl"),
    "Tensor descriptors": (tl.descriptors, "tl"),
    "Random numbers": (tl.random, "tl"),
    "Prints and assertions": (tl.debugging, "tl"),
    "PTX": (tl.inline_asm, "tl"),
    "GPUs only": (cuda, "tl.extra.cuda"),
    "Below tiles, on sm_90a": (hopper, "hopper"),
}

# x and y are tiles of 16 elements, z one of 16 x 16, i offsets, p where x was loaded from
_PAIR = "{0}(x, y)"
_ALONG = "{0}(x, 0)"
EXAMPLES: dict[str, str] = {
    **dict.fromkeys(
        (
            "maximum",
            "minimum",
            "add",
            "sub",
            "mul",
            "logical_and",
            "logical_or",
            "fdiv",
            "div_rn",
            "umulhi",
            "join",
            "interleave",
            "broadcast",
        ),
        _PAIR,
    ),
    **dict.fromkeys(
        ("sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce_or", "cumsum", "cumprod", "expand_dims"), _ALONG
    ),
    **dict.fromkeys(
        ("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_xchg"), "{0}(p + i, x)"
    ),
    "cdiv": "{0}(x, 4)",
    "fma": "{0}(x, y, x)",
    "clamp": "{0}(x, y, y)",
    "where": "{0}(i > 3, x, y)",
    "cast": "{0}(x, tl.float32)",
    "load": "{0}(p + i)",
    "store": "{0}(p + i, x)",
    "dot": "{0}(z, z)",
    "dot_scaled": "{0}(tl.zeros([128, 64], tl.uint8), tl.zeros([128, 4], tl.uint8), 'e4m3', tl.zeros([64, 128], tl.uint8), None, 'e4m3')",
    "trans": "{0}(z)",
    "permute": "{0}(z, (1, 0))",
    "split": "{0}(tl.join(x, y))",
    "reshape": "{0}(x, [4, 4])",
    "view": "{0}(x, [4, 4])",
    "broadcast_to": "{0}(x[:, None], [16, 16])",
    "squeeze": "{0}(x[:, None], 1)",
    "unsqueeze": "{0}(x, 0)",
    "reduce": "{0}(x, 0, add)",
    "associative_scan": "{0}(x, 0, add)",
    "map_elementwise": "{0}(add, x, y)",
    "gather": "{0}(x, i, 0)",
    "histogram": "{0}(x, 16)",
    "cat": "{0}(x, y, can_reorder=True)",
    "topk": "{0}(x, 4)",
    "atomic_cas": "{0}(p + i, x, y)",
    "multiple_of": "{0}(i, 16)",
    "max_contiguous": "{0}(i, 16)",
    "max_constancy": "{0}(i, 1)",
    "assume": "{0}(n > 0)",
    "arange": "{0}(0, 16)",
    "full": "{0}([16], 1, x.dtype)",
    "zeros": "{0}([16], x.dtype)",
    "program_id": "{0}(0)",
    "num_programs": "{0}(0)",
    "debug_barrier": "{0}()",
    "static_assert": "{0}(True)",
    "to_tensor": "{0}(3)",
    "swizzle2d": "{0}(i, i, 4, 4, 2)",
    "make_block_ptr": "tl.load({0}(p, (16,), (1,), (0,), (16,), (0,)))",
    "advance": "tl.load({0}(tl.make_block_ptr(p, (64,), (1,), (0,), (16,), (0,)), (16,)))",
    "make_tensor_descriptor": "{0}(p, [16], [1], [16]).load([0])",
    "load_tensor_descriptor": "{0}(tl.make_tensor_descriptor(p, [16], [1], [16]), [0])",
    "store_tensor_descriptor": "{0}(tl.make_tensor_descriptor(p, [16], [1], [16]), [0], x)",
    **dict.fromkeys(("rand", "rand4x", "randn", "randn4x", "randint", "randint4x"), "{0}(n, i)"),
    "philox": "{0}(n, i, i, i, i)",
    "philox_impl": "{0}(" + "i.to(tl.uint32), " * 4 + "n.to(tl.uint32), n.to(tl.uint32))",
    "uint_to_uniform_float": "{0}(x)",
    "pair_uniform_to_normal": _PAIR,
    "device_print": "{0}('x', x)",
    "device_assert": "{0}(n > 0)",
    "expect_zero": "{0}(x, i < 4)",
    "inline_asm_elementwise": "{0}('mov.b32 $0, $1;', '=r,r', [i], dtype=tl.int32, is_pure=True, pack=1)",
}
"""How to call what takes more than one tile x, its name for {0}."""


@functools.cache
def _example(call: str) -> JITFunction:
    """Returns a kernel that makes a call."""
    body = f"""
        i = tl.arange(0, 16)
        x = tl.load(p + i)
        y = tl.load(q + i)
        z = tl.load(p + i[:, None] * 16 + i[None, :])
        {call}
    """
    text = "@kp.jit\ndef add(a, b):\n    return a + b\n\n\n@kp.jit\ndef example(p, q, n):" + textwrap.indent(
        textwrap.dedent(body), "    "
    )
    file = f"<example of docs.functions: {call}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"kp": kp, "tl": tl, "__name__": "docs_example"}
    exec(compile(text, file, "exec"), names)
    kernel = names["example"]
    assert isinstance(kernel, JITFunction)
    return kernel


def compiled(call: str, dtype: str) -> Operation | None:
    """Returns ttir of a call on elements of a type, or None where the language refuses it."""
    kind = dtype.replace("uint", "u").replace("int", "i")
    try:
        return ast_to_ttir(_example(call), {"p": f"*{kind}", "q": f"*{kind}", "n": "i32"}, {}, options=Options(debug=True))
    except KernelpackError:
        return None


TARGETS = {"CPU": "cpu:x86-64-v3", "CUDA": "cuda:sm_80", "sm_90a": "cuda:sm_90a"}


def backends_of(module: Operation) -> list[str]:
    """Returns the targets that take a module: `CUDA` stands for every GPU, `sm_90a` for those alone."""
    found = []
    for name, text in TARGETS.items():
        target = Target.parse(text)
        try:
            legalise(optimise_ttir(module.clone()), backend_of(target), target)
        except KernelpackError:
            continue
        found.append(name)
    return found[:2] if "CUDA" in found else found


def accepted(call: str) -> tuple[list[str], list[str]]:
    """Returns which element types a call takes, and the backends that have it."""
    known = {dtype: compiled(call, dtype) for dtype in (*INTEGERS, *FLOATS, *SMALL_FLOATS)}
    modules = {dtype: module for dtype, module in known.items() if module is not None}
    first = next((modules[dtype] for dtype in ("fp32", "int32", *modules) if dtype in modules), None)
    return list(modules), backends_of(first) if first is not None else []


def in_words(dtypes: list[str]) -> str:
    """Returns types in few words: integers, floats (8 bits included or not), or by name."""
    parts, left = [], list(dtypes)
    for name, group in (
        ("all integers", INTEGERS),
        ("all floats", (*FLOATS, *SMALL_FLOATS)),
        ("floats of 16 bits and more", FLOATS),
    ):
        if set(group) <= set(left):
            parts.append(name)
            left = [dtype for dtype in left if dtype not in group]
    return ", ".join([*parts, *left])


# ---- the page ----


def functions_of(module: Any) -> Iterator[tuple[str, Any]]:
    """Yields the functions that a module gives to kernels, in order of their names; classes and types stand elsewhere."""
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if name in ("range", "static_range") or (callable(value) and not inspect.isclass(value)):
            yield name, value


def signature_of(value: Any) -> str:
    """Returns parameters as a person writes them."""
    if isinstance(value, JITFunction):
        signature = value.signature
    elif inspect.isclass(value):
        signature = inspect.signature(value.__init__)
    else:
        signature = inspect.signature(value)
    hidden = ("self", "_generator")
    parameters = [entry.replace(annotation=entry.empty) for entry in signature.parameters.values() if entry.name not in hidden]
    return re.sub(
        r"constexpr\[(.*?)\]", r"\1", str(inspect.Signature(parameters)).replace("<PropagateNan.NONE: 0>", "PropagateNan.NONE")
    )


def entry(prefix: str, name: str, value: Any) -> str:
    """Returns what the page says of a function."""
    text = textwrap.dedent(inspect.getdoc(value) or "").strip()
    lines = [f"### `{prefix}.{name}{signature_of(value)}`", "", text]
    call = example_of(prefix, name)
    if call is not None:
        dtypes, where = accepted(call)
        takes = f"Elements: {in_words(dtypes)}. " if "x" in call and set(dtypes) != {*INTEGERS, *FLOATS, *SMALL_FLOATS} else ""
        lines += ["", f"{takes}Backends: {', '.join(where) if where else 'see above'}."]
    return "\n".join(lines)


def example_of(prefix: str, name: str) -> str | None:
    """Returns a call of a function, None where there is nothing to ask: what happens while compiling, and what other pages explain."""
    if prefix == "hopper" or name in ("range", "static_range", "static_print", "static_assert"):
        return None
    default = "{0}()" if prefix == "tl.extra.cuda" else "{0}(x)"
    return EXAMPLES.get(name, default).format(f"{prefix}.{name}")


def library() -> str:
    """Returns the table of libdevice's functions."""
    rows = ["| function | types | backends |", "|-|-|-|"]
    for name, variants in sorted(FUNCTIONS.items()):
        types = ", ".join(f"{' '.join(variant.arguments)} -> {variant.result}" for variant in variants)
        arguments = [f"x.to(tl.{parse_type(kind).name.replace('fp', 'float')})" for kind in variants[0].arguments]
        module = compiled(f"tl.extra.libdevice.{name}({', '.join(arguments)})", "fp32")
        assert module is not None, name
        rows.append(f"| `{name}` | {types} | {', '.join(backends_of(module))} |")
    return "\n".join(rows)


def page() -> str:
    """Returns the whole page."""
    parts = [HEAD]
    for title, (module, prefix) in SECTIONS.items():
        parts.append(f"## {title}")
        parts += [entry(prefix, name, value) for name, value in functions_of(module)]
    parts += ["## libdevice", LIBRARY, library()]
    return "\n\n".join(parts) + "\n"


HEAD = """# Functions of the kernel language

What each does, which elements its tiles may have, and where it runs. [language.md](language.md) explains values, operators and
statements, [accuracy.md](accuracy.md) how exact elementary functions are. This page is made from docstrings, and by compiling a call of each
function for every type (`make docs`). `CUDA` is sm_80 and later; every function is also known to the interpreter, unless it runs on
GPUs only.

## What differs from Triton

- Kernels are compiled for CPUs as well: programs of a launch are shared among torch's threads, a program runs as vector code in one
  thread. `num_warps`, `num_stages`, cache modifiers and eviction policies have no meaning there, and no effect.
- On CPUs as many programs run at a time as torch has threads: one that waits for another's flag may wait forever.
- `tl.dot` of float32 is TF32 by default on GPUs, as in Triton; a CPU computes the exact float32 product.
- On CPUs products of float16, bfloat16 and 8-bit floats are summed in float32; with `out_dtype=tl.float16` the sum is rounded once.
- A kernel is compiled anew where a `tl.constexpr` global or a variable that it closes over has changed, instead of refusing to run.
- On CPUs `/`, `tl.sqrt` and `tl.fdiv` are correctly rounded, and functions do not flush small results to zero. On GPUs `tl.exp` and
  `tl.exp2` do in float32, unless the launch says `enable_reflect_ftz=False`.
- `tl.dot_scaled` is expanded into conversions and an ordinary product, on every target.
- Tensor descriptors made in a kernel need no memory from `set_allocator`: on sm_90a the launcher encodes them, or the kernel in
  memory of its own, elsewhere they are masked accesses.
- `num_ctas` above 1 is one block that computes what the cluster would. `flatten`, `warp_specialize` and `disallow_acc_multi_buffer` of
  `tl.range` change no result.
- A `tl.device_assert` that fails on a CPU ends its program, and the launch raises when the others are done; on a GPU the next call that
  waits for it raises, the interpreter and the emulator raise at once. With `debug=True` integers that overflow stop a
  kernel, too (`sanitize_overflow=False` leaves that out); the sums inside the language's own functions are not checked.
- Options of Triton's other backends (`waves_per_eu`, `matrix_instr_nonkdim`, `kpack`, `extern_libs` ...) are taken and ignored; unknown ones are refused.
- `autotune` with an `early_config_prune` chooses anew for other compile-time values, also where `key` does not name them: a config that the
  function refuses for a call never runs in it.
- On a CPU `testing.do_bench` times calls one by one: one that outlasts `warmup` and `rep` is made twice, in a search once. A search times
  configs once that differ only in what only GPUs use (`num_warps`, `num_stages`, ...), unless it has a `do_bench` of its own.
- `knobs`: kernels are kept in `~/.cache/kernelpack` where no variable says otherwise (`TRITON_CACHE_DIR`, `TRITON_HOME`); the assembler is that of
  `KERNELPACK_PTXAS_PATH`, as torch.compile sets `TRITON_PTXAS_PATH` to one of its own. Switches of what
  kernelpack does not have (`knobs.compilation.override` and `use_ir_loc`, `knobs.nvidia.mock_ptx_version`, `knobs.proton`, ...) do not exist;
  those of `knobs.amd` hold what they are set to, and change nothing.
- Code written for Triton finds its modules in `kernelpack.triton`: `import kernelpack.triton as triton`. What has no meaning here is refused when
  it is imported, with the reason: the C++ of MLIR (`_C.libtriton.passes`), `tools.compile`, `tools.link`, files of IR. Kernels of Gluon
  (`experimental.gluon`) can be defined, and are refused when they are launched.
- Stages that `knobs.runtime.add_stages_inspection_hook` sees are those of `kernelpack inspect`. Their `ttir` gives the module as the passes
  over ttir left it.
- `tools.ragged_tma` says at each access which axis has the segments.
- `cache_key` covers what a function means, not where its file and lines are. `@constexpr_function` gives a Python function, without a
  key of its own.
- A CPU kernel assumes less of integer arguments: it is not compiled anew for multiples of 16.
- Vendors' language extensions are not here; below tiles there is `kernelpack.language.hopper`. Of Proton
  `kernelpack.profiler` has sessions, scopes and the viewer; it looks at whole kernels, not into them.
- Errors name the user's line and a cure; their texts are not Triton's."""


LIBRARY = """`tl.extra.libdevice.NAME`, elementwise: what NVIDIA's library of that name has. Arguments of other types are promoted together. float32 is `fp32`,
int32 `i32`, uint32 `u32`."""


if __name__ == "__main__":
    PAGE.write_text(page())
    HEADER.write_text(cpp_header())
