"""What the lowering of one kernel for NVIDIA's GPUs carries beside what GPUs share: features, roles, tensor maps, messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.machine.features import LANES, Features
from kernelpack.backends.gpu.lowering.linear_code import I32, i32
from kernelpack.backends.gpu.lowering.shared_memory import TileAccess
from kernelpack.backends.gpu.lowering.state import GLOBAL, Lowering
from kernelpack.ir.core import Location, Operation
from kernelpack.ir.types import I32 as I32_TYPE
from kernelpack.llvm.text import Val
from kernelpack.options import Options

if TYPE_CHECKING:
    from kernelpack.backends.cuda.lowering.tensor_map import Place


_FROM_MEMORY = ("tt.load", "tt.atomic_rmw", "tt.atomic_cas", "tt.reduce")
"""What gives numbers of which the assembler does not know that a warp's threads all have the same."""


class CudaLowering(Lowering):
    """The state of lowering one function for NVPTX."""

    scopes: ClassVar[Mapping[str, str]] = {"gpu": ' syncscope("device")', "cta": ' syncscope("block")', "sys": ""}

    def __init__(
        self,
        features: Features,
        options: Options,
        facts: AxisInfoAnalysis,
        table: Mapping[str, Callable[[CudaLowering, Operation], None]],
        tiles: TileAccess,
        attachment: Callable[[Location], str],
    ) -> None:
        super().__init__(options, LANES, facts, table, tiles, attachment)
        self.features = features
        self.barrier_number = i32(0)
        """The barrier of the block at which the warps that run the code wait for each other."""
        self.messages: dict[str, str] = {}
        """Texts that the kernel shows, by the names of the constants that hold them: of the whole module."""
        self.place: Place | None = None
        """Where a kernel keeps the tensor maps that it makes."""
        self.warpgroups: dict[Val, Val] = {}
        """The number of the thread's warpgroup by the thread's index that it was computed from."""

    def operation(self, op: Operation) -> None:
        """In roles, numbers pass through a shuffle, so that the assembler knows that a warp's threads have the same. It keeps what depends on
        them in registers of the warp then: loops end for all threads at once, copies and products begin without a loop over threads."""
        super().operation(op)
        if op.name in _FROM_MEMORY and any(outer.name == "ttg.role" for outer in op.ancestors()):
            for result in op.results:
                if result.type == I32_TYPE:
                    self[result] = [self.shuffle_word("idx", self.scalar(result), i32(0))]

    def thread(self) -> Val:
        return self.emit.call(I32, "llvm.nvvm.read.ptx.sreg.tid.x", [])

    def first_thread(self) -> Val:
        """A role of one warp elects the thread: the assembler then knows that what it does is done once, and needs no loop over threads."""
        if self.num_warps > 1 or self.barrier_number == i32(0):
            return super().first_thread()
        text = "{\n.reg .pred p;\nelect.sync _|p, -1;\nselp.b32 $0, 1, 0, p;\n}"
        return self.emit.compare("icmp", "ne", self.asm(I32, text, "=r", [], convergent=True), i32(0))

    def program(self, axis: str) -> Val:
        return self.emit.call(I32, f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}", [])

    def programs(self, axis: str) -> Val:
        return self.emit.call(I32, f"llvm.nvvm.read.ptx.sreg.nctaid.{axis}", [])

    def barrier(self) -> None:
        if self.num_warps == 1:
            self.emit.call("void", "llvm.nvvm.bar.warp.sync", [i32(-1)])
        elif self.barrier_number == i32(0):
            self.emit.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", [i32(0)])
        else:
            count = i32(LANES * self.num_warps)
            self.emit.call("void", "llvm.nvvm.barrier.cta.sync.aligned.count", [self.barrier_number, count])

    def shuffle_word(self, mode: str, word: Val, lane: Val) -> Val:
        """PTX ISA, shfl.sync."""
        clamp = i32(0 if mode == "up" else LANES - 1)
        return self.emit.call(I32, f"llvm.nvvm.shfl.sync.{mode}.i32", [i32(-1), word, lane, clamp])

    def keeps_loop(self, loop: Operation) -> bool:
        """ptxas would unroll a loop whose loads run ahead, or that waits for barriers, and spill."""
        return any(inner.name == "ttg.async_wait" or inner.name.startswith("ttng.") for inner in loop.walk())

    def warpgroup(self) -> Val:
        """Returns the number of the thread's warpgroup, in a register that the assembler knows to be the same in a warp. Call it
        once where the thread's index is defined: later calls reuse that."""
        if self.tid not in self.warpgroups:
            number = self.emit.binary("lshr", self.tid, i32(7))
            self.warpgroups[self.tid] = self.shuffle_word("idx", number, i32(0))
        return self.warpgroups[self.tid]

    def message(self, text: str) -> Val:
        """Returns the address of a text, which ends in a zero byte."""
        name = self.messages.setdefault(text, f"@message{len(self.messages)}")
        return self.emit.cast("addrspacecast", Val(GLOBAL, name), "ptr")
