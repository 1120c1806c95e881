"""PTX -> cubin: ptxas, or nvJitLink where there is none; reads registers and spills, fails on messages that mean wrong code."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack.backends.base import Stage
from kernelpack.backends.cuda.assemble.cubin import without_embedded_ptx
from kernelpack.backends.cuda.assemble.objects import link, split_ptx
from kernelpack.backends.cuda.assemble.ptxas import Ptxas
from kernelpack.backends.cuda.assemble.toolchain import find_ptxas, nvjitlink_version
from kernelpack.backends.cuda.context import CudaContext
from kernelpack.errors import BuildError, OutOfResources, SourceLocation
from kernelpack.knobs import CHECK_PTXAS

_REGISTERS = "lower BLOCK_N or BLOCK_M, or raise num_warps (now {num_warps}): each warp then holds less of the accumulator"
_ORDER = (
    "wait for a product before its accumulator is used, and write operands in registers before it is issued; in a kernel without "
    "explicit asynchronous products this is a defect of kernelpack, which num_stages=1 (now {num_stages}) may avoid"
)
_INJECTED_WAIT = r"\(C7517\)|wait\w* is injected"
_RUNS_ON = re.compile(r"wgmma\.commit_group\.sync\.aligned;(?!(?:\s|//.*|\.loc.*)*wgmma\.wait_group\.sync\.aligned 0;)")
"""A group of products that is not waited for at once."""
LOSSES = {
    r"\(C7504\)|'setmaxnreg' ignored": (
        "setmaxnreg was ignored",
        "assemble with ptxas, which keeps it: pip install nvidia-cuda-nvcc",
    ),
    r"\(C751[12]\)|insufficient register": ("products of wgmma wait for each other, for want of registers", _REGISTERS),
    _INJECTED_WAIT: ("a wait for wgmma was inserted", _ORDER),
    r"\(C7519\)|is injected": ("a fence for wgmma was inserted", _ORDER),
    r"Potential Performance Loss": ("products of wgmma wait for each other", _ORDER),
}
"""Messages of the assembler that are no errors to it, but mean that the code is not what was written: what they say, and which
option of the kernel to change."""
_MAY_BE_LOST = re.compile(r"\b(?:wgmma|setmaxnreg)\.")
"""The instructions that they are about."""


_REGISTER_FILE, _MOST_REGISTERS = 65536, 255
"""Registers of a multiprocessor, and of a thread at most (CUDA C++ Programming Guide, compute capabilities 8.0 to 9.0)."""


@dataclass(frozen=True)
class Assembled:
    """A cubin with what the assembler said about it."""

    image: bytes
    log: str
    tool: str


def while_ptxas_starts(stage: Stage) -> Stage:
    """Returns the stage ahead of `ptx_to_cubin`, during which a ptxas starts that will be given what the stage returns."""

    def run(value: Any, context: CudaContext) -> Any:
        program = find_ptxas()
        with contextlib.ExitStack() as unless_made:
            if program is not None:
                context.assembler = unless_made.enter_context(Ptxas(program, context.target.arch))
            made = stage(value, context)
            unless_made.pop_all()
        return made

    return run


def ptx_to_cubin(ptx: str, context: CudaContext) -> bytes:
    """Returns the cubin of a kernel and notes its resources. Raises BuildError, or OutOfResources, where
    the code would not be what was written."""
    modules, arch = split_ptx(ptx), context.target.arch
    with context.assembler or contextlib.nullcontext() as started:
        if len(modules) > 1:
            assembled = assemble_objects(modules, context)
        else:
            assembled = _with_room(assemble(ptx, arch, started), ptx, context)
            refuse_losses(assembled, ptx, context)
    if CHECK_PTXAS.get():
        other = Path(CHECK_PTXAS.get())
        if not other.is_file():
            raise BuildError(f"{CHECK_PTXAS.name}={other}: there is no such file", cure="name a ptxas, or unset it")
        context.is_checked = True
        more = ("-c",) if len(modules) > 1 else ()
        for module in filter(_MAY_BE_LOST.search, modules):
            refuse_losses(assemble_with_ptxas(module, arch, other, *more), module, context)
    context.figures.update(resources(assembled.log))
    context.figures["assembler"] = assembled.tool
    return assembled.image


def _with_room(assembled: Assembled, ptx: str, context: CudaContext) -> Assembled:
    """Assembles again where values went to memory although a thread may have more registers.

    Once ptxas cannot avoid spilling it aims at many blocks a multiprocessor instead, and may spill ten times as much: it is told
    that one block will do. Said of every kernel, that takes more registers from kernels that are better off with many blocks.
    """
    first = resources(assembled.log)
    threads = context.figures.get("threads", 0)
    limit = context.options.maxnreg or min(_MOST_REGISTERS, _REGISTER_FILE // threads if threads else 0)
    if not first["spills"] or first["registers"] >= limit or ".minnctapersm" in ptx:
        return assembled
    again = assemble(re.sub(r"(\.reqntid \d+)", r"\1 .minnctapersm 1", ptx), context.target.arch)
    return again if resources(again.log)["spills"] < first["spills"] else assembled


def assemble_objects(modules: Sequence[str], context: CudaContext) -> Assembled:
    """Assembles a kernel and its functions that have objects of their own, and links them."""
    ptxas, arch, threads = find_ptxas(), context.target.arch, context.figures.get("threads", 0)
    if ptxas is None:
        linked = _without_ptxas(arch, *modules)
        refuse_losses(linked, modules[0], context)
        return linked
    # the kernel says how many threads a block has, a function does not know it
    limit = context.options.maxnreg or min(_MOST_REGISTERS, _REGISTER_FILE // threads if threads else _MOST_REGISTERS)
    kernel, *functions = modules
    objects = [assemble_with_ptxas(kernel, arch, ptxas, "-c")]
    objects += [_object_of(function, arch, ptxas, limit // 8 * 8) for function in functions]
    for made, module in zip(objects, modules, strict=True):
        refuse_losses(made, module, context)
    image, log = link([made.image for made in objects], arch, ptxas)
    return Assembled(image, "\n".join([*(made.log for made in objects), log]), objects[0].tool)


@functools.lru_cache(maxsize=256)
def _object_of(ptx: str, arch: str, ptxas: Path, registers: int) -> Assembled:
    """Returns a function's object, which all kernels share that this process compiles."""
    return assemble_with_ptxas(ptx, arch, ptxas, "-c", f"-maxrregcount={registers}")


def refuse_losses(assembled: Assembled, ptx: str, context: CudaContext) -> None:
    """Raises BuildError, with the user's line and the option to change, where the assembler changed what was written; it is
    OutOfResources where registers were too few, as configurations may be."""
    for message in assembled.log.splitlines():
        meaning, cure = next((LOSSES[pattern] for pattern in LOSSES if re.search(pattern, message)), (None, ""))
        if meaning is None:
            continue
        if re.search(_INJECTED_WAIT, message) and not _RUNS_ON.search(ptx):
            continue  # each product is waited for at once: ptxas read one's result before that wait, and waits there too
        line = re.search(r"line (\d+)", message)
        raise (OutOfResources if cure is _REGISTERS else BuildError)(
            f"{context.entry}: {meaning}. {assembled.tool} reports {message.strip()}",
            location=_source_of(ptx, int(line[1]), context.sources) if line is not None else None,
            cure=cure.format(**vars(context.options)),
        )


def _source_of(ptx: str, line: int, sources: Mapping[str, str]) -> SourceLocation | None:
    """Returns the line of Python that a line of PTX comes from; `sources` are files by their names in PTX."""
    lines = ptx.splitlines()
    files = dict(re.findall(r'^\t\.file\t(\d+) "(.*)"', ptx, re.MULTILINE))
    for text in reversed(lines[:line]):
        place = re.match(r"\t\.loc\t(\d+) ([1-9]\d*) (\d+)", text)
        if place is not None and place[1] in files:
            file = files[place[1]]
            return SourceLocation(sources.get(file, file), int(place[2]), int(place[3]))
    return None


def assemble(ptx: str, arch: str, started: Ptxas | None = None) -> Assembled:
    """Assembles with the ptxas that has `started`, or the first tool there is: ptxas of the wheel, ptxas on PATH, nvJitLink."""
    if started is not None:
        return _by_ptxas(started, ptx)
    ptxas = find_ptxas()
    if ptxas is not None:
        return assemble_with_ptxas(ptx, arch, ptxas)
    return _without_ptxas(arch, ptx)


def _without_ptxas(arch: str, *modules: str) -> Assembled:
    if nvjitlink_version() is not None:
        return assemble_with_nvjitlink(arch, *modules)
    raise BuildError(
        "no assembler for PTX was found",
        cure="pip install nvidia-cuda-nvcc (ptxas), or pip install cuda-python nvidia-nvjitlink",
    )


def assemble_with_ptxas(ptx: str, arch: str, ptxas: Path, *more: str) -> Assembled:
    with Ptxas(ptxas, arch, *more) as started:
        return _by_ptxas(started, ptx)


def _by_ptxas(ptxas: Ptxas, ptx: str) -> Assembled:
    image, log = ptxas.assemble(ptx)
    if image is None:
        raise BuildError(
            f"{ptxas.name} failed:\n{log.strip()}\n{_excerpt(ptx, log)}",
            location=next((_source_of(ptx, line, {}) for line in _lines_in(log)), None),
            cure="mend the kernel's inline assembly there; if it has none this is a defect of kernelpack",
        )
    return Assembled(image, log, ptxas.name)


def _excerpt(ptx: str, log: str) -> str:
    """Returns the PTX lines that the messages name."""
    lines = ptx.splitlines()
    return "\n".join(f"{number}: {lines[number - 1]}" for number in _lines_in(log) if 0 < number <= len(lines))


def _lines_in(log: str) -> list[int]:
    """Returns the first lines of PTX that messages name."""
    return sorted({int(number) for number in re.findall(r"line (\d+)", log)})[:5]


def assemble_with_nvjitlink(arch: str, *modules: str) -> Assembled:
    from cuda.bindings import nvjitlink

    tool = f"nvJitLink {nvjitlink_version()}"
    options = [f"-arch={arch}", "-O3", "-verbose", "-lineinfo"]
    handle = nvjitlink.create(len(options), options)
    try:
        try:
            for module in modules:
                data = module.encode()
                nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "kernel.ptx")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as problem:
            size = nvjitlink.get_error_log_size(handle)
            message = bytearray(size)
            nvjitlink.get_error_log(handle, message)
            raise BuildError(f"{tool} failed: {problem}\n{_text(message)}", cure="this is a defect of kernelpack") from None
        log = bytearray(nvjitlink.get_info_log_size(handle))
        if log:
            nvjitlink.get_info_log(handle, log)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        return Assembled(without_embedded_ptx(bytes(image)), _text(log), tool)
    finally:
        nvjitlink.destroy(handle)


def _text(buffer: bytearray) -> str:
    return buffer.decode(errors="replace").strip("\0\n ")


def resources(log: str) -> dict[str, int]:
    """Returns registers a thread, bytes spilled (stores and loads), and bytes of stack from the reports of assembler and linker."""

    def numbers(pattern: str) -> list[int]:
        return [int(number) for number in re.findall(pattern, log)]

    return {
        "registers": max(numbers(r"[Uu]sed (\d+) registers"), default=0),  # the linker's are those of the functions, too
        "spills": sum(numbers(r"(\d+) bytes spill (?:stores|loads)")),
        "stack": sum(numbers(r"(\d+) bytes stack frame")),
    }
