"""A backend of a third party: a stage and an argument fact of its own, the CPU backend's code, a launcher in C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpack.backends.base import CSRC, Backend, Device, LauncherSource, Opened, Stage, Tool
from kernelpack.backends.cpu import CPUBackend
from kernelpack.compiled import CompiledKernel
from kernelpack.context import Context
from kernelpack.errors import TargetError
from kernelpack.facts import DIVISIBLE_BY, EQUAL_TO, ArgumentProperty, Fact, Test, integers
from kernelpack.ir.core import Builder, Operation, Value, entry_function
from kernelpack.options import Options
from kernelpack.target import Target

HERE = Path(__file__).parent / "csrc"
HOST = Target.parse("cpu:x86-64-v3")
POWER_OF_TWO = Test("toy::is_power_of_two({arg})", lambda number, _: number > 0 and number & (number - 1) == 0)


class ToyBackend(Backend):
    """Serves CPU tensors with programs that run last one first."""

    name = "toy"
    image_kind = "toy_object"
    dispatch_key = "CPU"
    machine_code = "asm"
    launcher = LauncherSource(
        "toy::launcher", HERE / "toy_launcher.h", (HERE / "toy_launcher.cpp", CSRC / "kernels" / "cpu.cpp")
    )

    def __init__(self) -> None:
        self.cpu = CPUBackend()

    def resolve_target(self, target: Target) -> Target:
        if str(target) != "toy:one":
            raise TargetError(f"{target} is no toy", cure="use toy:one")
        return target

    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        def on_host(stage: Stage) -> Stage:
            return lambda value, lowered: stage(value, replace(lowered, target=HOST))

        own: dict[str, Stage] = {"parity": fold_parity}
        return own | {name: on_host(stage) for name, stage in self.cpu.stages(HOST, options).items()}

    def properties(self) -> Sequence[ArgumentProperty]:
        return (
            ArgumentProperty("toy.one", 1, EQUAL_TO, integers),
            ArgumentProperty("toy.even", 2, DIVISIBLE_BY, integers),
            ArgumentProperty("toy.power_of_two", 1, POWER_OF_TWO, integers),
        )

    def targets(self) -> Sequence[Target]:
        return (Target("toy", "one"),)

    def tools(self) -> Sequence[Tool]:
        return (Tool("toy assembler", "1.0", True, "no toy compiles", "buy one"),)

    def devices(self) -> Sequence[Device]:
        return (Device("a toy", (Target("toy", "one"),)),)

    def disassemble(self, kernel: CompiledKernel) -> str:
        return self.cpu.disassemble(replace(kernel, target=HOST))

    def open(self, kernel: CompiledKernel) -> Opened:
        return self.cpu.open(replace(kernel, target=HOST))

    def supports(self, op: Operation, target: Target) -> str | None:
        if op.name == "tt.dot":
            return "toys do not multiply matrices"
        return self.cpu.supports(op, HOST)

    def linked_machine(self, target: Target) -> str | None:
        return self.cpu.linked_machine(HOST)

    def tool_versions(self) -> Mapping[str, str]:
        return {"toy": "1.0", **self.cpu.tool_versions()}


def fold_parity(module: Operation, lowered: Context) -> Operation:
    """Of an argument known to be even, the remainder by 2 is 0; of one known to be a power of two, what & n - 1 leaves of n."""
    copy = module.clone()
    function = entry_function(copy)
    facts: Sequence[Mapping[str, Any]] = function.attributes.get("arg_attrs") or [{}] * len(function.body.arguments)
    known = {
        name: {argument for argument, entry in zip(function.body.arguments, facts, strict=True) if name in entry}
        for name in ("toy.even", "toy.power_of_two")
    }
    used = set()
    for op in list(copy.walk()):
        if op.name == "arith.remsi" and op.operands[0] in known["toy.even"] and is_constant(op.operands[1].defining_op, 2):
            used.add(Fact(op.operands[0].name, "toy.even", 2))
        elif op.name == "arith.andi" and op.operands[0] in known["toy.power_of_two"] and is_one_less(*op.operands):
            used.add(Fact(op.operands[0].name, "toy.power_of_two", 1))
        else:
            continue
        op.replace_with(Builder.before(op).constant(0, op.result.type))
    lowered.figures["folded"] = len(used)
    lowered.unused |= {Fact(argument.name, "toy.even", 2) for argument in known["toy.even"]} - used
    lowered.unused |= {Fact(argument.name, "toy.power_of_two", 1) for argument in known["toy.power_of_two"]} - used
    return copy


def is_one_less(number: Value, other: Value) -> bool:
    op = other.defining_op
    return (
        op is not None and op.name == "arith.addi" and op.operands[0] is number and is_constant(op.operands[1].defining_op, -1)
    )


def is_constant(op: Operation | None, value: int) -> bool:
    return op is not None and op.name == "arith.constant" and op.attributes["value"] == value
