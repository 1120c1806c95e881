"""Compiles a kernel's llir for the host, and runs its grid."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import torch

from kernelpack.errors import EmulationError, SourceLocation, UnsupportedError
from kernelpack.simt.memory import Memory, storage_of
from kernelpack.simt.native import host_machine, runtime_library
from kernelpack.simt.tensor_maps import tensor_map
from kernelpack.simt.translate import ENTRY, Removable, translate


@dataclass(frozen=True)
class Schedule:
    """How a run resolves what is open: the order in which threads are picked, and whether asynchronous operations complete as
    early as they may, or as late."""

    order: int = 0
    early: bool = False


SCHEDULES = (Schedule(0, False), Schedule(1, True))

_CURES = {
    "out of bounds": "mask the access, or pass a tensor as large as the kernel takes it to be",
    "race": "let one thread write each element, put tl.debug_barrier() between the two, or use an atomic",
    "endless": "wait only for what programs of smaller numbers do",
}
"""What to do about findings that the author of a kernel brings about; others are the compiler's, or of kernelpack.language.hopper."""


class Program:
    """A kernel compiled for the host.

    `threads` and `shared` (bytes) are those of a block, `names` the parameters' names, `tensor_maps` what the launcher
    encodes for the parameters after them. Raises UnsupportedError for machine operations that are not modelled.
    """

    def __init__(
        self, llir: str, threads: int, shared: int, names: Sequence[str] = (), tensor_maps: Sequence[str] = ()
    ) -> None:
        self.llir = llir
        self.threads = threads
        self.shared = shared
        self.names = names
        self.tensor_maps = tensor_maps
        translated = translate(llir)
        self.parameters = translated.parameters
        self.debug = translated.debug
        self.removable: tuple[Removable, ...] = translated.removable
        self._runtime = runtime_library()
        for name in translated.functions:  # LLVM would end the process
            if not hasattr(self._runtime, name):
                raise UnsupportedError(f"the emulator has no function {name}", cure="write it in csrc/simt/arithmetic.cpp")
        module = llvm.parse_assembly(translated.text)
        module.verify()
        machine = host_machine()
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._entry = self._engine.get_function_address(ENTRY)
        self._own = [
            (own, ctypes.create_string_buffer(own.name.encode()), self._engine.get_global_value_address(own.name))
            for own in translated.memory
        ]

    def run(
        self,
        grid: Sequence[int],
        arguments: Sequence[Any],
        *,
        schedule: Schedule = SCHEDULES[0],
        without: Removable | None = None,
        reachable: Sequence[Any] = (),
    ) -> None:
        """Runs a grid. Tensors (on the CPU) are changed in place, numbers go by value.

        `without` is an operation that is left out: a planted fault. `reachable` are further tensors, whose addresses the kernel
        finds in memory. Raises EmulationError for the first thing that is wrong.
        """
        self._runtime.simt_regions_clear()
        with contextlib.ExitStack() as stack:
            memory = self._place(arguments, reachable, stack)
            values = [
                memory[storage_of(argument)].address_of(argument) if hasattr(argument, "data_ptr") else _bits(argument, kind)
                for kind, argument in zip(self._given, arguments, strict=True)
            ]
            maps = self._encode_tensor_maps(arguments, values)
            slots = (ctypes.c_uint64 * max(1, len(self.parameters)))(*values, *map(ctypes.addressof, maps))
            self._clear_own_memory()
            self._run(grid, slots, schedule, without)
            for region in memory.values():
                region.copy_back()

    @property
    def _given(self) -> Sequence[str]:
        """The kinds of the parameters that a launch gives; tensor maps are after them."""
        return self.parameters[: len(self.parameters) - len(self.tensor_maps)]

    def _place(self, arguments: Sequence[Any], reachable: Sequence[Any], stack: contextlib.ExitStack) -> dict[int, Memory]:
        """Returns the memory in which tensors lie until the stack unwinds, by their storages."""
        names = [*self.names, *(f"argument {index}" for index in range(len(self.names), len(arguments)))]
        named = [(name, argument) for name, argument in zip(names, arguments, strict=False) if hasattr(argument, "data_ptr")]
        named += [("a tensor that an address in memory leads to", tensor) for tensor in reachable]
        storages: dict[int, list[tuple[str, torch.Tensor]]] = {}
        for name, tensor in named:
            storages.setdefault(storage_of(tensor), []).append((name, tensor))
        found_in_memory = {storage_of(tensor) for tensor in reachable}
        memory = {}
        for number, (storage, tensors) in enumerate(storages.items()):
            memory[storage] = Memory(self._runtime, tensors, None if storage in found_in_memory else number)
            stack.callback(memory[storage].free)
        return memory

    def _encode_tensor_maps(self, arguments: Sequence[Any], values: Sequence[int]) -> list[ctypes.Array[ctypes.c_uint8]]:
        named = {
            name: value if kind == "ptr" else argument
            for name, kind, argument, value in zip(self.names, self._given, arguments, values, strict=False)
        }
        return [_aligned(tensor_map(text, named).encode()) for text in self.tensor_maps]

    def _clear_own_memory(self) -> None:
        """Makes the memory that the kernel itself declares known, with zeros in what is not constant."""
        for own, name, address in self._own:
            self._runtime.simt_region(ctypes.c_uint64(address), ctypes.c_uint64(own.bytes), name, None, 1)
            if not own.constant:
                ctypes.memset(address, 0, own.bytes)

    def _run(self, grid: Sequence[int], slots: Any, schedule: Schedule, without: Removable | None) -> None:
        runtime = self._runtime
        size = (ctypes.c_int * 3)(*grid, *[1] * (3 - len(grid)))
        off = (ctypes.c_uint8 * (1 << 20)).in_dll(runtime, "simt_off")
        for site in without.sites if without is not None else ():
            off[site] = 1
        try:
            runtime.simt_run(
                ctypes.c_void_p(self._entry), slots, self.threads, ctypes.c_uint64(self.shared), size, schedule.order,
                int(schedule.early),
            )  # fmt: skip
        finally:
            for site in without.sites if without is not None else ():
                off[site] = 0
        if runtime.simt_found():
            raise self._error()

    # ---- reports ----

    def _error(self) -> EmulationError:
        runtime = self._runtime
        site, other = runtime.simt_site(), runtime.simt_other_site()
        text = runtime.simt_text().decode()
        text = re.sub(r"\{site (\d+)\}", lambda match: self.describe(int(match[1])), text)
        block = tuple(runtime.simt_block(axis) for axis in range(3))
        kind, thread, place = runtime.simt_kind().decode(), runtime.simt_thread(), self.location(other)
        if other:
            text += f"\n  the other: {self.describe(other)}{place.excerpt() if place else ''}"
        message = f"{kind}: {text}\n  block {block}, thread {thread}: {self.describe(site)}"
        return EmulationError(message, location=self.location(site), cure=_CURES.get(kind), kind=kind, site=site)

    def describe(self, site: int) -> str:
        """Returns a site as its source line, where that is known, and the instruction."""
        if not 0 < site <= len(self.llir.splitlines()):
            return "an unknown place"
        line = re.sub(r",? !dbg !\d+", "", self.llir.splitlines()[site - 1]).strip()
        place = self.location(site)
        return f"{place}: `{line[:110]}`" if place else f"llir line {site}: `{line[:110]}`"

    def location(self, site: int) -> SourceLocation | None:
        """Returns where in the Python source an instruction comes from."""
        number = self.debug.get(site)
        return self._locations.get(number) if number is not None else None

    @functools.cached_property
    def _locations(self) -> dict[int, SourceLocation]:
        metadata = dict(re.findall(r"^!(\d+) = (?:distinct )?(!DI.*)$", self.llir, re.M))

        def file_of(number: str) -> str:
            text = metadata.get(number, "")
            if match := re.search(r'filename: "([^"]*)"', text):
                return match[1]
            match = re.search(r"file: !(\d+)", text) or re.search(r"scope: !(\d+)", text)
            return file_of(match[1]) if match else "?"

        found = {}
        for number, text in metadata.items():
            if match := re.match(r"!DILocation\(line: (\d+), column: (\d+), scope: !(\d+)", text):
                found[int(number)] = SourceLocation(file_of(match[3]), int(match[1]), int(match[2]))
        return found


def _aligned(data: bytes) -> ctypes.Array[ctypes.c_uint8]:
    buffer = (ctypes.c_uint8 * (len(data) + 64))()
    shift = -ctypes.addressof(buffer) % 64
    view = (ctypes.c_uint8 * len(data)).from_buffer(buffer, shift)
    ctypes.memmove(view, data, len(data))
    return view


def _bits(value: Any, kind: str) -> int:
    if kind == "float":
        return ctypes.c_uint32.from_buffer(ctypes.c_float(value)).value
    if kind == "double":
        return ctypes.c_uint64.from_buffer(ctypes.c_double(value)).value
    return int(value) & (1 << 64) - 1
