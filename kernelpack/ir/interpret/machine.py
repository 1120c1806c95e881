"""Runs functions of ttir: blocks, control flow, calls, and the grid of programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kernelpack.errors import LaunchError, RunTimeAssertionFailure, StepLimitError
from kernelpack.ir.core import Block, Operation, Value, entry_function, functions
from kernelpack.ir.dialect import Trait, attribute, definition, is_pure, operand
from kernelpack.ir.dialects.descriptors import atomic_of, block_of
from kernelpack.ir.dialects.tt import AXES
from kernelpack.ir.formats import Array, carrier, encode, normal
from kernelpack.ir.interpret.descriptors import Descriptor, padding_of
from kernelpack.ir.interpret.elementwise import ELEMENTWISE
from kernelpack.ir.interpret.memory import Memory
from kernelpack.ir.interpret.tiles import TILES, constant, reduce, scan, split
from kernelpack.ir.types import IntegerType, PointerType, Type, bit_width, element_of, is_float, is_pointer, shape_of

Environment = dict[Value, Any]
"""What the values of a running function hold; regions share it with what encloses them."""


def launch(
    module: Operation,
    grid: int | Sequence[int],
    arguments: Sequence[Any],
    *,
    order: Iterable[int] | None = None,
    steps: float = math.inf,
) -> None:
    """Runs the module's public function for every program of a grid of one to three extents, x fastest.

    `arguments` are NumPy arrays or CPU torch tensors for pointers (bf16 and fp8 also as integers of their width, None for a
    null pointer) and numbers for scalars. Kernels work on the arrays' own memory. `order` gives the numbers of the programs
    to run, in that order, counted x fastest from 0; by default all, ascending. `steps` is how many operations all programs
    together may run. Raises LaunchError for arguments that do not fit the parameters and, with the user's line, MemoryAccessError
    for an access outside the arguments and StepLimitError after so many steps.
    """
    extents = (grid,) if isinstance(grid, int) else tuple(int(extent) for extent in grid)
    if not 1 <= len(extents) <= 3 or min(extents) < 0:
        raise LaunchError(f"a grid has one to three extents of 0 or more, this is {grid}")
    width, height, depth = (*extents, 1, 1)[:3]
    kernel = entry_function(module)
    parameters = kernel.body.arguments
    if len(arguments) != len(parameters):
        raise LaunchError(f"{kernel.attributes['sym_name']} takes {len(parameters)} arguments, got {len(arguments)}")
    machine = _Machine(functions(module), (width, height, depth), steps)
    values = [
        _argument(parameter.name or f"#{parameter.index}", argument, parameter.type, machine.memory)
        for parameter, argument in zip(parameters, arguments, strict=True)
    ]
    for number in range(math.prod(machine.grid)) if order is None else order:
        machine.program = (number % width, number // width % height, number // (width * height))
        try:
            with np.errstate(all="ignore"):
                machine.block(kernel.body, values, {})
        except LaunchError as error:
            message = f"program {machine.program}: {error.message}"
            raise type(error)(message, location=error.location, cure=error.cure) from None


def evaluate(op: Operation, operands: Sequence[Any]) -> list[Any]:
    """Returns the results of one pure operation on carrier values.

    An elementwise operation may be given scalars in place of tensors. Raises ValueError for an operation that does more than
    compute on its operands, or depends on the program.
    """
    if not is_pure(op) or op.name in ("tt.get_program_id", "tt.get_num_programs"):
        raise ValueError(f"{op.name} does more than compute on its operands")
    with np.errstate(all="ignore"):
        return _Machine((), (1, 1, 1)).results(op, operands, {})


def _argument(name: str, value: Any, kind: Type, memory: Memory) -> Any:
    """Returns an argument as the value of a parameter. Raises LaunchError where it does not fit."""
    if isinstance(kind, PointerType):
        if value is None or isinstance(value, (int, np.integer)):
            return np.int64(value or 0)
        return memory.add(name, value, kind)
    integral = isinstance(value, (bool, int, np.bool_, np.integer))
    if isinstance(kind, IntegerType):
        if integral and -(1 << kind.width - 1) <= int(value) < 1 << kind.width:
            return constant(normal(int(value), kind), kind)[()]
    elif integral or isinstance(value, (float, np.floating)):
        return constant(normal(float(value), kind), kind)[()]
    raise LaunchError(f"argument {name} must be a number for {kind}, is {value!r}")


def _shown(value: Any, kind: Type, signed: bool, hexadecimal: bool) -> str:
    """Returns a value as a kernel prints it."""
    if is_float(kind) and not hexadecimal:
        return f"{float(value):f}"
    bits = int(encode(np.asarray(value).reshape(1), element_of(kind))[0])
    if is_pointer(kind) or hexadecimal:
        return f"0x{bits:0{max(1, bit_width(kind) // 4)}x}"
    return str(int(value) if signed else bits)


class _Machine:
    """One launch. `results` gives the results of an operation, `block` what a block's terminator passes on."""

    def __init__(self, callees: Sequence[Operation], grid: tuple[int, int, int], steps: float = math.inf) -> None:
        self.functions = {function.attributes["sym_name"]: function for function in callees}
        self.memory = Memory()
        self.grid = grid
        self.program = (0, 0, 0)
        self.steps = self.steps_left = steps
        self.known_vectorisable: dict[Block, bool] = {}

    def block(self, block: Block, arguments: Sequence[Any], env: Environment) -> list[Any]:
        env.update(zip(block.arguments, arguments, strict=True))
        *body, terminator = block.operations
        self.steps_left -= len(block.operations)
        if self.steps_left < 0:
            raise StepLimitError(
                f"no end after {self.steps} operations",
                location=block.operations[0].location.source,
                cure="end the loops sooner",
            )
        for op in body:
            values = self.results(op, [env[operand] for operand in op.operands], env)
            env.update(zip(op.results, values, strict=True))
        return [env[operand] for operand in terminator.operands]

    def results(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        function = ELEMENTWISE.get(op.name) or TILES.get(op.name)
        if function is not None:
            return [function(op, *operands)]
        return _OTHERS[op.name](self, op, operands, env)

    # ---- programs, memory, calls ----

    def program_id(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        return [np.int32(self.program[AXES.index(op.attributes["axis"])])]

    def num_programs(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        return [np.int32(self.grid[AXES.index(op.attributes["axis"])])]

    def load(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        pointers, mask, other = (*operands, None, None)[:3]
        return [self.memory.load(op, element_of(op.result.type), pointers, mask, other)]

    def store(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        pointers, values, mask = (*operands, None)[:3]
        self.memory.store(op, element_of(operand(op, "value").type), pointers, values, mask)
        return []

    def atomic(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        pointers, values, mask = (*operands, None)[:3]
        return [self.memory.atomic(op, op.attributes["atomic_rmw_op"], element_of(op.result.type), pointers, values, mask)]

    def compare_and_swap(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        return [self.memory.compare_and_swap(op, element_of(op.result.type), *operands)]

    # ---- descriptors ----

    def make_descriptor(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        rank = block_of(op.result.type).rank
        return [Descriptor(block_of(op.result.type), operands[0], operands[1 : 1 + rank], operands[1 + rank :], padding_of(op))]

    def descriptor_load(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        desc, *indices = operands
        pointers, inside = desc.block_at(indices)
        tile = self.memory.load(op, desc.element, pointers, inside, desc.padding)
        return [tile.reshape(shape_of(op.result.type))]

    def descriptor_store(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        desc, values, *indices = operands
        pointers, inside = desc.block_at(indices)
        self.memory.store(op, desc.element, pointers, values.reshape(pointers.shape), inside)
        return []

    def descriptor_reduce(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        desc, values, *indices = operands
        pointers, inside = desc.block_at(indices)
        what = atomic_of(op.attributes["kind"], desc.element)
        self.memory.atomic(op, what, desc.element, pointers, values.reshape(pointers.shape), inside)
        return []

    def descriptor_gather(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        desc, rows, column = operands
        pointers, inside = desc.rows_at(rows, column)
        return [self.memory.load(op, desc.element, pointers, inside, desc.padding)]

    def descriptor_scatter(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        desc, rows, column, values = operands
        pointers, inside = desc.rows_at(rows, column)
        self.memory.store(op, desc.element, pointers, values, inside)
        return []

    def call(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        return self.block(self.functions[op.attributes["callee"]].body, operands, {})

    # ---- reductions ----

    def split(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        return split(operands[0])

    def reduce(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        return reduce(operands, op.attributes["axis"], lambda left, right: self.combine(op.body, left, right, env))

    def scan(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        axis, reverse = op.attributes["axis"], attribute(op, "reverse")
        return scan(operands, axis, reverse, lambda left, right: self.combine(op.body, left, right, env))

    def map_elementwise(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        """Runs the region on `pack` neighbours of each operand at a time, in row-major order."""
        pack, shape = op.attributes["pack"], operands[0].shape
        rows = [np.ascontiguousarray(values).reshape(-1, pack) for values in operands]
        given = self.each(op.body, [row[:, at] for row in rows for at in range(pack)], env)
        groups = [given[at : at + pack] for at in range(0, len(given), pack)]
        return [np.stack(group, axis=-1).reshape(shape) for group in groups]

    def each(self, block: Block, arguments: Sequence[Array], env: Environment) -> list[Array]:
        """Runs a region element by element on rows of one length."""
        results = [self.block(block, values, env) for values in zip(*arguments, strict=True)]
        kinds = [carrier(value.type) for value in block.terminator.operands]
        return [np.array(column, kind) for column, kind in zip(zip(*results, strict=True), kinds, strict=True)]

    def print_(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        """Prints element by element: the program, the place in the tile, the prefix and the value."""
        shape = np.shape(operands[0]) if operands else ()
        signs = attribute(op, "is_signed")
        for place in np.ndindex(shape):
            where = ", ".join(f"{at:{len(str(extent - 1))}}" for at, extent in zip(place, shape, strict=True))
            head = f"pid ({', '.join(map(str, self.program))}) idx ({where}) {op.attributes['prefix']}"
            if not operands:
                print(head)
            for number, (values, source) in enumerate(zip(operands, op.operands, strict=True)):
                which = f"(operand {number}) " if len(operands) > 1 else ""
                shown = _shown(np.asarray(values)[place], source.type, bool(signs[number]), bool(attribute(op, "hex")))
                print(f"{head}{which}{shown}")
        return []

    def assert_(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        if not np.all(operands[0]):
            raise RunTimeAssertionFailure(f"assertion failed: {op.attributes['message']}", location=op.location.source)
        return []

    def combine(self, block: Block, left: Sequence[Array], right: Sequence[Array], env: Environment) -> list[Array]:
        """Runs a combine region on whole tiles at once where all its operations are elementwise, else element by element."""
        shape = left[0].shape
        if self.vectorisable(block):
            return [np.broadcast_to(value, shape) for value in self.block(block, [*left, *right], env)]
        out = [np.empty_like(values) for values in left]
        for place in np.ndindex(shape):
            combined = self.block(block, [values[place] for values in (*left, *right)], env)
            for values, value in zip(out, combined, strict=True):
                values[place] = value
        return out

    def vectorisable(self, block: Block) -> bool:
        known = self.known_vectorisable.get(block)
        if known is None:
            known = self.known_vectorisable[block] = all(
                op.name in ELEMENTWISE
                or op.name == "arith.constant"
                or Trait.TERMINATOR in definition(op.name).traits
                or (op.name == "tt.call" and self.vectorisable(self.functions[op.attributes["callee"]].body))
                for op in block.operations
            )
        return known

    # ---- control flow ----

    def if_(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        region = op.regions[0 if operands[0] else 1]
        return self.block(region.block, (), env) if region.blocks else []

    def for_(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        lower, upper, step, *carried = operands
        if step <= 0:
            raise LaunchError(f"the step of a loop must be positive, is {step}", location=op.location.source)
        for number in range(int(lower), int(upper), int(step)):
            carried = self.block(op.body, [lower.dtype.type(number), *carried], env)
        return carried

    def while_(self, op: Operation, operands: Sequence[Any], env: Environment) -> list[Any]:
        before, after = (region.block for region in op.regions)
        while True:
            goes_on, *passed = self.block(before, operands, env)
            if not goes_on:
                return passed
            operands = self.block(after, passed, env)


_OTHERS: dict[str, Callable[[_Machine, Operation, Sequence[Any], Environment], list[Any]]] = {
    "tt.get_program_id": _Machine.program_id,
    "tt.get_num_programs": _Machine.num_programs,
    "tt.load": _Machine.load,
    "tt.store": _Machine.store,
    "tt.atomic_rmw": _Machine.atomic,
    "tt.atomic_cas": _Machine.compare_and_swap,
    "tt.make_tensor_descriptor": _Machine.make_descriptor,
    "tt.descriptor_load": _Machine.descriptor_load,
    "tt.descriptor_store": _Machine.descriptor_store,
    "tt.descriptor_reduce": _Machine.descriptor_reduce,
    "tt.descriptor_gather": _Machine.descriptor_gather,
    "tt.descriptor_scatter": _Machine.descriptor_scatter,
    "tt.call": _Machine.call,
    "tt.split": _Machine.split,
    "tt.reduce": _Machine.reduce,
    "tt.scan": _Machine.scan,
    "tt.map_elementwise": _Machine.map_elementwise,
    "tt.print": _Machine.print_,
    "tt.assert": _Machine.assert_,
    "gpu.barrier": lambda machine, op, operands, env: [],  # a program has one thread here
    "gpu.gdc_wait": lambda machine, op, operands, env: [],  # and a launch ends before the next begins
    "gpu.gdc_launch_dependents": lambda machine, op, operands, env: [],
    "scf.if": _Machine.if_,
    "scf.for": _Machine.for_,
    "scf.while": _Machine.while_,
}
