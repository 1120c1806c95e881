"""Converts what a masked store needs where it is done, if the same tile may leave through a descriptor instead.

    %y = ttg.convert_layout %x                       scf.if %whole {
    scf.if %whole {                                    tt.descriptor_store %d[...], %x
      tt.descriptor_store %d[...], %x       =>       } else {
    } else {                                           %y = ttg.convert_layout %x
      tt.store ..., %y                                 tt.store ..., %y
    }                                                }

A conversion is made right after its tile, so that all users share it; here one of two branches is taken.
"""

from __future__ import annotations

from kernelpack.ir.core import Operation
from kernelpack.ir.dialect import operand
from kernelpack.ir.dialects.descriptors import STORE


def sink_conversions(function: Operation) -> None:
    """Rewrites a ttgir function in place."""
    for store in [op for op in function.walk() if op.name == STORE]:
        branch = store.parent_op
        if branch is None or branch.name != "scf.if":
            continue
        others = [region.block for region in branch.regions if region.blocks and region.block is not store.parent]
        for conversion in operand(store, "src").users():
            users = conversion.result.users() if conversion.name == "ttg.convert_layout" else []
            for block in others:
                if users and all(user.parent is block for user in users):
                    block.insert(0, conversion)
