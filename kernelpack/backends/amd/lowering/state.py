"""Where a thread is, and how threads wait for each other and exchange values, by LLVM's intrinsics for amdgcn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kernelpack.backends.gpu.lowering.linear_code import I32, i32
from kernelpack.backends.gpu.lowering.state import Lowering
from kernelpack.llvm.text import Val

_AXES = {"x": 0, "y": 1, "z": 2}
_CONSTANT = "ptr addrspace(4)"


class AmdLowering(Lowering):
    """The state of lowering one function for amdgcn."""

    scopes: ClassVar[Mapping[str, str]] = {"gpu": ' syncscope("agent")', "cta": ' syncscope("workgroup")', "sys": ""}

    def thread(self) -> Val:
        return self.emit.call(I32, "llvm.amdgcn.workitem.id.x", [])

    def program(self, axis: str) -> Val:
        return self.emit.call(I32, f"llvm.amdgcn.workgroup.id.{axis}", [])

    def programs(self, axis: str) -> Val:
        """hidden_block_count_x, _y and _z are the first hidden arguments, four bytes each (LLVM's user guide, "Code Object V5 Metadata")."""
        hidden = self.emit.call(_CONSTANT, "llvm.amdgcn.implicitarg.ptr", [])
        return self.emit.load(I32, self.emit.offset(hidden, 4 * _AXES[axis]), 4)

    def barrier(self) -> None:
        """The fences make LLVM wait for what each wavefront has under way: s_barrier itself does not (LLVM's user guide, "Memory Model")."""
        self.emit.line('fence syncscope("workgroup") release')
        self.emit.call("void", "llvm.amdgcn.s.barrier", [])
        self.emit.line('fence syncscope("workgroup") acquire')

    def shuffle_word(self, mode: str, word: Val, lane: Val) -> Val:
        """ds_bpermute takes four times the number of a lane, of which it looks at the low bits alone: the thread's index in its block
        serves as its lane's."""
        emit = self.emit
        opcode = {"idx": None, "bfly": "xor", "up": "sub", "down": "add"}[mode]
        source = lane if opcode is None else emit.binary(opcode, self.tid, lane)
        return emit.call(I32, "llvm.amdgcn.ds.bpermute", [emit.binary("shl", source, i32(2)), word])
