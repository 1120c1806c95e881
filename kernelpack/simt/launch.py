"""Compiles a kernel's llir for the host, lays out its arguments in memory of their own, and runs its grid."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from kernelpack.errors import EmulationError, SourceLocation, UnsupportedError
from kernelpack.simt.native import host_machine, runtime_library
from kernelpack.simt.tensor_maps import tensor_map
from kernelpack.simt.translate import ENTRY, Removable, translate

if TYPE_CHECKING:
    import torch

GLOBAL_WINDOW = 1 << 44
"""Where tensors lie, SPACING apart: csrc/simt/simt.h. A wrong address then meets nothing, not another tensor."""
SPACING = 1 << 36
_HEADROOM = 4096


@dataclass(frozen=True)
class Schedule:
    """How a run resolves what is open: the order in which threads are picked, and whether asynchronous operations complete as
    early as they may, or as late."""

    order: int = 0
    early: bool = False


_CURES = {
    "out of bounds": "mask the access, or pass a tensor as large as the kernel takes it to be",
    "race": "let one thread write each element, put tl.debug_barrier() between the two, or use an atomic",
}
"""What to do about findings that the author of a kernel brings about; others are the compiler's, or of kernelpack.language.hopper."""

SCHEDULES = (Schedule(0, False), Schedule(1, True))


class Program:
    """A kernel compiled for the host.

    `threads` and `shared` (bytes) are those of a block, `names` the parameters' names, `tensor_maps` what the launcher
    encodes for the parameters behind them. Raises UnsupportedError for machine operations that are not modelled.
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
        self._own = [(memory, self._engine.get_global_value_address(memory.name)) for memory in translated.memory]

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
        runtime = self._runtime
        runtime.simt_regions_clear()
        slots = (ctypes.c_uint64 * max(1, len(self.parameters)))()
        memory: dict[int, _Memory] = {}
        keep: list[Any] = []
        try:
            given = self.parameters[: len(self.parameters) - len(self.tensor_maps)]
            storages: dict[int, list[tuple[str, torch.Tensor]]] = {}
            for index, argument in enumerate(arguments):
                if hasattr(argument, "data_ptr"):
                    name = self.names[index] if index < len(self.names) else f"argument {index}"
                    storages.setdefault(_storage_of(argument), []).append((name, argument))
            found_in_memory = {_storage_of(tensor) for tensor in reachable}
            for tensor in reachable:
                storages.setdefault(_storage_of(tensor), []).append(("a tensor that an address in memory leads to", tensor))
            for number, (storage, tensors) in enumerate(storages.items()):
                memory[storage] = _Memory(runtime, tensors, None if storage in found_in_memory else number)
            for index, (kind, argument) in enumerate(zip(given, arguments, strict=True)):
                if hasattr(argument, "data_ptr"):
                    slots[index] = memory[_storage_of(argument)].address_of(argument)
                else:
                    slots[index] = _bits(argument, kind)
            if self.tensor_maps:
                values = {
                    name: slots[index] if kind == "ptr" else arguments[index]
                    for index, (name, kind) in enumerate(zip(self.names, given, strict=False))
                }
                for index, text in enumerate(self.tensor_maps, len(given)):
                    keep.append(_aligned(tensor_map(text, values).encode()))
                    slots[index] = ctypes.addressof(keep[-1])
            for own, address in self._own:
                keep.append(ctypes.create_string_buffer(own.name.encode()))
                runtime.simt_region(ctypes.c_uint64(address), ctypes.c_uint64(own.bytes), keep[-1], None, 1)
                if not own.constant:
                    ctypes.memset(address, 0, own.bytes)
            self._run(grid, slots, schedule, without)
            for region in memory.values():
                region.copy_back()
        finally:
            for region in memory.values():
                region.free()

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


# ---- memory ----


class _Memory:
    """What tensors of one storage, by their names, span in memory. Only their elements may be accessed.

    It is copied to an address of its own, as far from an alignment of 64 bytes as it is; where `number`, which says to which, is
    None, kernels find its own address in memory, and it stays where it is.
    """

    def __init__(self, runtime: ctypes.CDLL, tensors: Sequence[tuple[str, torch.Tensor]], number: int | None) -> None:
        import torch

        self.runtime = runtime
        spans = [(tensor.data_ptr(), tensor.data_ptr() + _span(tensor)) for _, tensor in tensors]
        self.low = min(low for low, _ in spans)
        self.bytes = max(high for _, high in spans) - self.low
        self.address = self.low
        if number is not None:
            window = GLOBAL_WINDOW + number * SPACING
            self.start = window - _HEADROOM
            self.mapped = (_HEADROOM + 64 + self.bytes + 8191) & ~4095
            if not runtime.simt_map(ctypes.c_uint64(self.start), ctypes.c_uint64(self.mapped)):
                raise EmulationError(f"no memory at address {self.start:#x}", kind="memory")
            self.address = window + self.low % 64
            ctypes.memmove(self.address, self.low, self.bytes)
        self.name = ctypes.create_string_buffer(" and ".join(name for name, _ in tensors).encode())
        self.inside = None
        if all(self.bytes > tensor.numel() * tensor.element_size() for _, tensor in tensors):
            self.inside = torch.zeros(self.bytes, dtype=torch.uint8)
            for _, tensor in tensors:
                item = tensor.element_size()
                strides = [stride * item for stride in tensor.stride()]
                self.inside.as_strided((*tensor.shape, item), (*strides, 1), tensor.data_ptr() - self.low).fill_(1)
        inside = ctypes.c_void_p(self.inside.data_ptr() if self.inside is not None else None)
        runtime.simt_region(ctypes.c_uint64(self.address), ctypes.c_uint64(self.bytes), self.name, inside, 0)

    def address_of(self, tensor: torch.Tensor) -> int:
        return self.address + tensor.data_ptr() - self.low

    def copy_back(self) -> None:
        ctypes.memmove(self.low, self.address, self.bytes)

    def free(self) -> None:
        if self.address != self.low:
            self.runtime.simt_unmap(ctypes.c_uint64(self.start), ctypes.c_uint64(self.mapped))


def _storage_of(tensor: torch.Tensor) -> int:
    """Returns what tensors that share memory have in common. An empty one shares none."""
    return tensor.untyped_storage().data_ptr() if tensor.numel() else -id(tensor)


def _span(tensor: torch.Tensor) -> int:
    """Returns how many bytes lie from a tensor's first element to behind its last."""
    if not tensor.numel():
        return 0
    return (1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))) * tensor.element_size()


def _aligned(data: bytes) -> Any:
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
