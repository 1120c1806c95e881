"""Writes docs/tour.md: softmax, its kernel and its host function, through every stage. Run: make docs.

The prose is docs/tour.md.in; the stages that fill it are those of the compiler as it is. Long ones are cut to the lines that tell
most; `...` stands for the others.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from kernelpack.backends.installed import backend_of
from kernelpack.compiled import CompiledKernel
from kernelpack.opgen.build import library_plan, plan_library
from kernelpack.opgen.emit.cpp_library import op_file
from kernelpack.opgen.emit.print_fake import print_fakes
from kernelpack.opgen.host.slice_fake import slice_fake
from kernelpack.opgen.workers.compile import compile_stages, compile_variants
from kernelpack.pack.format import KernelPack
from kernelpack.pack.lock import lock_line

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("tour.md")
PROSE = Path(__file__).with_name("tour.md.in")
SOURCE = ROOT / "ops" / "softmax.py"
GPU = ("cuda:sm_90a", "softmax_kernel-f32-WHOLE1024-HEAD0.aligned")
CPU = ("cpu:x86-64-v3", "softmax_kernel-f32-WHOLE0-HEAD0.any")
WIDEST = 132
"""Characters of a line; what is longer is cut."""


@dataclass(frozen=True)
class Softmax:
    """What compiling softmax for two targets gives: the stages and the pack of a kernel for each, and what the host function becomes."""

    stages: dict[str, dict[str, str]]
    """By target: the text of each stage."""
    packs: dict[str, KernelPack]
    cpp: str
    fakes: str
    variants: int
    host: tuple[str, str]
    """The host IR, and the part of it from which the fake kernel is made: a statement a line."""


@functools.cache
def softmax() -> Softmax:
    plan = plan_library([SOURCE], namespace="kernelpack", targets=[GPU[0], CPU[0]])
    chosen = [variant for variant in plan.variants if (str(variant.target), variant.name) in (GPU, CPU)]
    assert len(chosen) == 2, "the tour's variants are no longer built"
    kernels = {str(kernel.target): kernel for kernel in compile_stages(chosen, jobs=1).values()}
    packs, _ = compile_variants(chosen, jobs=1)
    library = library_plan(plan, packs)
    (op,) = library.ops
    return Softmax(
        {target: _texts(kernel) for target, kernel in kernels.items()},
        {str(pack.target): pack for pack in packs.values()},
        op_file(library, op),
        print_fakes([op], "kernelpack"),
        len(plan.variants),
        (_listed(op.host.body), _listed(slice_fake(op.host))),
    )


def _texts(kernel: CompiledKernel) -> dict[str, str]:
    backend = backend_of(kernel.target)
    texts = {name: value for name, value in kernel.stages.items() if isinstance(value, str)}
    return {**texts, backend.machine_code: backend.disassemble(kernel)}


def _listed(statements: tuple[object, ...]) -> str:
    """Returns the kinds of statements in their order, equal neighbours counted."""
    found: list[tuple[str, int]] = []
    for statement in statements:
        name = type(statement).__name__
        count = found.pop()[1] + 1 if found and found[-1][0] == name else 1
        found.append((name, count))
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in found)


# -- excerpts ---------------------------------------------------------------------------------------------------------------


def telling(text: str, *patterns: str, most: int = 3) -> str:
    """Returns the first `most` lines in which each pattern is found, with `...` where others stood between them."""
    left = dict.fromkeys(map(re.compile, patterns), most)
    kept: list[str] = []
    gap = False
    for line in _clean(text).split("\n"):
        found = next((pattern for pattern, count in left.items() if count and pattern.search(line)), None)
        if found is not None:
            kept += [_indent(line) + "..."] if gap else []
            kept.append(line)
            left[found] -= 1
            gap = False
        elif line.strip():
            gap = True
    return "\n".join([*kept, "..."] if gap else kept)


def between(text: str, first: str, last: str, most: int = 40) -> str:
    """Returns the lines from the first one with `first` to the next one with `last`, whole up to `most` lines."""
    lines = _clean(text).split("\n")
    start = next(index for index, line in enumerate(lines) if first in line)
    end = next(index for index, line in enumerate(lines) if index >= start and last in line)
    found = lines[start : end + 1]
    return "\n".join(found if len(found) <= most else [*found[:most], "..."])


def _clean(text: str) -> str:
    """Returns lines without what points to the source, none longer than WIDEST."""
    text = re.sub(r",? !dbg !\d+", "", text)
    lines = (line.replace("\t", "    ").rstrip() for line in text.split("\n"))
    return "\n".join(line if len(line) <= WIDEST else line[: WIDEST - 4].rstrip() + " ..." for line in lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def function(name: str) -> str:
    """Returns the source of a function of ops/softmax.py, with its decorator."""
    text = SOURCE.read_text()
    found = re.search(rf"^(?:@[^\n]*\n(?:[ )][^\n]*\n)*)?def {name}\(.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[0].rstrip()


# -- the page ---------------------------------------------------------------------------------------------------------------


def parts() -> dict[str, str]:
    """Returns what fills the places `@NAME@` of the prose."""
    made = softmax()
    gpu, cpu = made.stages[GPU[0]], made.stages[CPU[0]]
    pack = made.packs[GPU[0]]
    header = str(pack).partition("image:\n")[0]
    return {
        "gpu target": GPU[0],
        "gpu variant": GPU[1],
        "cpu target": CPU[0],
        "cpu variant": CPU[1],
        "variants": str(made.variants),
        "kernel": function("softmax_row"),
        "ttir": telling(gpu["ttir"], "tt.func", r"%offsets = ", r"%inside = ", "tt.load", "tt.reduce", "maxnumf", "exp2", "divf", "tt.store"),
        "ttgir": telling(
            gpu["ttgir"], "^#linear =", "ttg.num-warps", "tt.load", "axis = 1", "local_alloc", "gpu.barrier", "local_load", "axis = 0",
            "exp2", most=1,
        ),
        "llir": telling(
            gpu["llir"], "define ptx_kernel", r"call .*tid\.x\(\)", "ld.global.v4", r"shfl.sync.bfly.i32\(i32 -1", "st.shared",
            "call .*barrier.cta", "call .*ex2", "call .*div.full", "st.global", most=2,
        ),
        "ptx": telling(gpu["ptx"], r"\.loc\s+1 3\d", "ld.global", "shfl", "bar.sync", "ex2", "st.global", most=2),
        "sass": telling(gpu["sass"], "LDG", "SHFL", "BAR", "MUFU.EX2", "STG", "EXIT", most=2),
        "cpu_ttir": between(cpu["cpu_ttir"], "scf.for %begin", "} else {", most=24),
        "tiles": between(cpu["tiles"], "nest 64", "reduce axis 0"),
        "cpu llir": telling(cpu["llir"], "^define void @kernelpack", "load <8 x float>, ptr", "fcmp.*<8 x float>", "store <8 x float>.*, ptr %v", most=2),
        "asm": telling(cpu["asm"], r"vmaskmov|vmovups.*\(%r", r"vcmp\w*ps|vmaxps|vblendv", "vfmadd", "vaddps", most=2),
        "host": function("softmax"),
        "host ir": made.host[0],
        "fake ir": made.host[1],
        "cpp": between(made.cpp, "operator()", "per_program ="),
        "launch": between(made.cpp, "if (out.has_elements())", "return out", most=60),
        "fake": between(made.fakes, "def softmax(", "return out"),
        "pack name": pack.file_name,
        "pack": telling(
            header, "^kernelpack kernel pack", "^op:", "^variant", "^target", "^parameter: (x|out|rows_columns) ", "^constexpr",
            "^option: num_(warps|stages)", "^fact: (x|rows_columns)", "^figure: (registers|shared|spills|threads)", most=9,
        ),
        "lock": str(lock_line(pack)),
    }  # fmt: skip


def page() -> str:
    """Returns the whole page."""
    found = parts()
    return re.sub(r"@([a-z_ ]+)@", lambda place: found[place[1]], PROSE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
