"""Prints the host IR as C++: the body of an op's functor, with its checks, allocations and launches."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from kernelpack.dtypes import DType
from kernelpack.facts import Fact
from kernelpack.opgen.host.ir import (
    BOOL,
    DTYPE,
    FLOAT,
    INT,
    NONE,
    TENSOR,
    TEXT,
    Allocate,
    Apply,
    Assign,
    Check,
    Const,
    Declare,
    Expr,
    For,
    HostFunction,
    HostType,
    If,
    Launch,
    Let,
    Ref,
    Return,
    Statement,
)
from kernelpack.opgen.host.ops import apply, render
from kernelpack.opgen.stated.space import SameAs, Space
from kernelpack.opgen.variants.dispatch import Assumptions, Tests
from kernelpack.opgen.variants.plan import Axis, LaunchArgument, LaunchPlan, OpPlan

_TYPES = {
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "Tensor": "kp::Tensor",
    "dtype": "kp::DType",
    "device": "kp::Device",
    "ints": "kp::Ints",
    "floats": "kp::Floats",
    "rows": "auto",
}

_NARROW = {f"{sign}{bits}": f"{'u' if sign == 'u' else ''}int{bits}_t" for sign in "iu" for bits in (8, 16, 32)}
_WIDE = {"i64": "int64_t", "u64": "int64_t", "i1": "bool", "fp32": "float", "fp64": "double"}
"""The C types of run-time parameters, by kind: integers that may not hold what a call gives, and what holds it or rounds."""


def cpp_type(kind: HostType) -> str:
    """Returns the C++ type of a host value. A Tensor may be undefined, so an optional one is no other type."""
    base = _TYPES[kind.name]
    return f"std::optional<{base}>" if kind.optional and kind.required != TENSOR else base


def quoted(text: str) -> str:
    """Returns a C++ string literal."""
    escaped = "".join(
        {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}.get(character, character)
        if character.isprintable() or character in "\n\t"
        else "".join(f"\\{byte:03o}" for byte in character.encode())
        for character in text
    )
    return f'"{escaped}"'


def cpp_dtype(dtype: DType | None) -> str:
    """Returns a constant of the C++ enum."""
    name = "none" if dtype is None else {"bool": "boolean"}.get(dtype.name, dtype.name)
    return f"kp::DType::{name}"


class CppPrinter:
    """Prints one op's functor body. `assumptions` are those of each launch, decided by the backends' `tests`; kernels that are `checked`
    are told where storages lie."""

    def __init__(self, plan: OpPlan, assumptions: Mapping[int, Assumptions], tests: Tests, *, checked: bool = False) -> None:
        self.host: HostFunction = plan.host
        self.plan = plan
        self.assumptions = assumptions
        self.tests = tests
        self.checked = checked
        self.lines: list[str] = []
        self.depth = 2
        self.meta: dict[str, int] = {}
        tensors = [variable for variable in plan.host.arguments if variable.type == TENSOR]
        self.devices_of_arguments = [apply("device", Ref(variable)) for variable in tensors]

    def body(self) -> str:
        """Returns the statements of the functor."""
        self.argument_checks(self.plan.space)
        self.statements(self.host.body)
        return "\n".join(self.lines)

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line if line else "")

    def block(self, head: str, statements: Sequence[Statement]) -> None:
        self.emit(head)
        self.depth += 1
        self.statements(statements)
        self.depth -= 1

    # -- expressions --------------------------------------------------------------------------------------------------

    def expr(self, expr: Expr, kind: HostType | None = None) -> str:
        """Returns an expression; `kind` is the type it is wanted as, where that is an optional number."""
        if isinstance(expr, Const) and expr.type == NONE:
            return "kp::Tensor()" if kind is None or kind.required == TENSOR else "std::nullopt"
        return render(expr, self.leaf, "cpp")

    def leaf(self, expr: Expr) -> str:
        if isinstance(expr, Ref):
            return expr.variable.name
        if isinstance(expr, Const):
            return self.constant(expr)
        if expr.op == "meta":
            assert isinstance(expr.operand, Const)
            return f"variant.meta[{self.meta[expr.operand.value]}]"
        if expr.op == "value" and expr.type == TENSOR:
            return self.expr(expr.operand)
        match expr:
            case Apply("select", (condition, Const() as literal, orelse)) if expr.type == INT:
                # two plain literals would make an int of 32 bits
                return f"({self.expr(condition)} ? int64_t{{{self.expr(literal)}}} : {self.expr(orelse)})"
        if expr.op == "select" and expr.type.optional:
            condition, then, orelse = expr.operands
            kind = cpp_type(expr.type)
            sides = [f"{kind}()" if side.type == NONE else f"{kind}({self.expr(side)})" for side in (then, orelse)]
            return f"({self.expr(condition)} ? {sides[0]} : {sides[1]})"
        return ""

    def constant(self, expr: Const) -> str:
        if expr.type == NONE:
            return "kp::Tensor()"
        if expr.type == BOOL:
            return "true" if expr.value else "false"
        if expr.type == INT:
            return str(expr.value) if abs(expr.value) < 2**31 else f"int64_t{{{expr.value}}}"
        if expr.type == FLOAT:
            if math.isnan(expr.value):
                return "std::numeric_limits<double>::quiet_NaN()"
            if math.isinf(expr.value):
                return f"{'-' if expr.value < 0 else ''}std::numeric_limits<double>::infinity()"
            return repr(float(expr.value))
        if expr.type == DTYPE:
            return cpp_dtype(expr.value)
        assert expr.type == TEXT, expr
        return quoted(expr.value)

    def message(self, parts: Sequence[str | Expr]) -> str:
        return ", ".join(quoted(part) if isinstance(part, str) else self.message_value(part) for part in parts) or '""'

    def message_value(self, part: Expr) -> str:
        return f"int64_t{{{self.expr(part)}}}" if isinstance(part, Const) and part.type == INT else self.expr(part)

    # -- statements ---------------------------------------------------------------------------------------------------

    def statements(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            match statement:
                case Let(variable, value):
                    self.emit(f"const {cpp_type(variable.type)} {variable.name} = {self.expr(value, variable.type)};")
                case Declare(variable, None):
                    self.emit(f"{cpp_type(variable.type)} {variable.name};")
                case Declare(variable, Const() | Ref() | Apply() as initial):
                    self.emit(f"{cpp_type(variable.type)} {variable.name} = {self.expr(initial, variable.type)};")
                case Assign(variable, value):
                    self.emit(f"{variable.name} = {self.expr(value, variable.type)};")
                case Check(condition, message):
                    if condition == Const(False, BOOL):
                        self.emit(f"call.fail({self.message(message)});")
                    else:
                        self.emit(f"if ({self.expr(apply('not', condition))}) call.fail({self.message(message)});")
                case Allocate():
                    self.allocate(statement)
                case If(condition, then, orelse):
                    self.block(f"if ({self.expr(condition)}) {{", then)
                    if orelse:
                        self.block("} else {", orelse)
                    self.emit("}")
                case For(counter, start, stop, step, body):
                    assert isinstance(step, Const)
                    name, limit = counter.name, self.expr(stop)
                    compare = "<" if step.value > 0 else ">"
                    head = f"for (int64_t {name} = {self.expr(start)}; {name} {compare} {limit}; {name} += {step.value}) {{"
                    self.block(head, body)
                    self.emit("}")
                case Launch():
                    self.launch(self.plan.launches[statement.index])
                case Return(values):
                    results = [self.expr(value) for value in values]
                    single = results[0] if len(results) == 1 else f"{{{', '.join(results)}}}"
                    self.emit(f"return {single};" if results else "return;")

    def allocate(self, statement: Allocate) -> None:
        name = statement.variable.name
        shape, dtype = self.expr(statement.shape), self.expr(statement.dtype)
        output = -1 if statement.output is None else statement.output
        function = "empty" if statement.strides is None else "empty_strided"
        strides = "" if statement.strides is None else f"{self.expr(statement.strides)}, "
        if statement.device not in self.devices_of_arguments:
            self.emit(f'call.check_device("{name}", {self.expr(statement.device)});')
        self.emit(f'const kp::Tensor {name} = call.{function}("{name}", {output}, {shape}, {strides}{dtype});')

    def argument_checks(self, space: Space) -> None:
        """The generated checks: dtypes that were built, one device, no writing to repeated elements."""
        names = {
            argument.name: variable.name
            for argument, variable in zip(self.host.schema.arguments, self.host.arguments, strict=True)
        }
        tensors = [names[argument.name] for argument in self.host.schema.tensors]
        self.emit(f"call.check_tensors({', '.join(tensors)});")
        for argument in self.host.schema.tensors:
            name, entries = names[argument.name], space.dtypes[argument.name]
            if len(entries) == 1 and isinstance(entries[0], SameAs):
                self.emit(f"call.check_same_dtype({name}, {names[entries[0].argument]});")
                continue
            built = [f"{{{cpp_dtype(entry)}, {i}}}" for i, entry in enumerate(entries) if not isinstance(entry, SameAs)]
            same = [f"{{{names[entry.argument]}, {i}}}" for i, entry in enumerate(entries) if isinstance(entry, SameAs)]
            self.emit(f"static constexpr kp::DTypeAxis {name}_dtypes = {{{', '.join(built)}}};")
            result = f"const int {name}_axis = " if space.has_axis(argument.name) else ""
            others = f", {{{', '.join(same)}}}" if same else ""
            self.emit(f"{result}call.dtype_axis({name}, {name}_dtypes{others});")
        for argument in self.host.schema.arguments:
            if argument.mutated:
                self.emit(f"call.check_writable({names[argument.name]});")
        self.emit("")

    # -- launches -----------------------------------------------------------------------------------------------------

    def launch(self, plan: LaunchPlan) -> None:
        launch = plan.launch
        kernel = launch.kernel_name
        self.meta = {name: index for index, name in enumerate(launch.meta_names)}
        read_only = {one.parameter for one in plan.read_only}
        written = [slot for slot in plan.slots if slot.kind == "pointer" and slot.parameter not in read_only]
        condition = " || ".join(f"{self.tensor(slot)}.has_elements()" for slot in written)  # else no program can write anything
        self.emit(f"{f'if ({condition}) ' if written else ''}{{  // line {launch.location.line}: {kernel}[...](...)")
        self.depth += 1
        pointers = [index for index, slot in enumerate(plan.slots) if slot.kind == "pointer"]
        kind = f"CheckedSlots<{len(plan.slots)}, {len(pointers)}>" if self.checked else f"Slots<{len(plan.slots)}>"
        self.emit(f"kp::{kind} slots;")
        for index, slot in enumerate(plan.slots):
            self.emit(f"slots.set({index}, {self.slot_value(kernel, slot)});  // {slot.parameter}")
        for index in pointers if self.checked else ():
            self.emit(f"slots.hold({index}, {self.tensor(plan.slots[index])});")
        held = self.held(plan)
        point = "0"
        for axis in plan.axes:
            index_text = self.axis(plan, axis.name)
            point = (
                index_text
                if point == "0"
                else f"{point if point.isidentifier() else f'({point})'} * {axis.size} + {index_text}"
            )
        self.emit(f"const int point = {point};")
        entry = "point"
        if plan.key is not None:
            entry = f"point * {plan.config_count} + config"
            sizes = ", ".join(self.expr(slot.value) for name in plan.key for slot in plan.slots if slot.parameter == name)
            self.emit(
                f"const int config = call.config(kLaunch{launch.index}, point, {{{sizes}}});  // by {', '.join(plan.key)}"
            )
        self.emit(f"const kp::Variant variant = call.choose(kLaunch{launch.index}, {entry}, {held});")
        grid = f"{{{', '.join(self.expr(dimension) for dimension in launch.grid)}}}"
        self.emit(
            f"kp::launch_checked(call, variant, {grid}, slots);"
            if self.checked
            else f"call.launch(variant, {grid}, slots.addresses());"
        )
        self.depth -= 1
        self.emit("}")

    def slot_value(self, kernel: str, slot: LaunchArgument) -> str:
        """Returns the value of a run-time parameter in its natural C type."""
        if slot.kind == "pointer":
            return f"{self.tensor(slot)}.data()"
        value = self.expr(slot.value)
        if slot.kind in _NARROW:
            return f'call.narrow<{_NARROW[slot.kind]}>("{kernel}", "{slot.parameter}", {value})'
        return f"static_cast<{_WIDE[slot.kind]}>({value})"

    def tensor(self, slot: LaunchArgument) -> str:
        """Returns the tensor of a pointer, as a member can be asked of it."""
        value = self.expr(slot.value)
        return f"({value})" if isinstance(slot.value, Apply) else value

    def held(self, plan: LaunchPlan) -> str:
        """Emits the facts that variants assume; returns which of the launch's assumptions hold, as bits."""
        assumptions = self.assumptions[plan.launch.index]
        slots = {slot.parameter: slot for slot in plan.slots}
        for number, group in enumerate(assumptions.groups):
            for place, fact in enumerate(group):
                head = f"const bool facts{number} =" if place == 0 else "                   &&"
                end = ";" if place == len(group) - 1 else ""
                meaning = f"// {fact.parameter}: {fact.property} = {fact.value}"
                self.emit(f"{head} {self.guard(fact, slots[fact.parameter])}{end}  {meaning}")
        flags = [" && ".join(f"facts{i}" for i in assumptions.groups_of(one)) or "true" for one in assumptions.sets]
        return "1" if flags in ([], ["true"]) else f"kp::bits({', '.join(flags)})"

    def guard(self, fact: Fact, slot: LaunchArgument) -> str:
        """Returns the condition that a fact is, of the value that a call gives the parameter."""
        test = self.tests[fact.property]
        value = self.expr(slot.value)
        if slot.kind == "pointer":
            number = f"kp::{'reach' if test.of_reach else 'address'}({value})"
        else:
            number = value if re.fullmatch(r"[\w.]+(\([\w-]*\))?", value) else f"({value})"
        return test.condition(number, fact.value)

    def axis(self, plan: LaunchPlan, name: str) -> str:
        axis = next(axis for axis in plan.axes if axis.name == name)
        if axis.value is None:
            variable = next(v for a, v in zip(self.host.schema.arguments, self.host.arguments, strict=True) if a.name == name)
            return f"{variable.name}_axis"
        if is_flag(axis):
            value = self.expr(axis.value)
            return f"int{{{value}}}"
        value = self.expr(axis.value)
        known = f"kLaunch{plan.launch.index}_{name}"
        self.emit(f'const int {name}_axis = call.value_axis("{plan.launch.kernel_name}", {known}, {value});')
        return f"{name}_axis"


def braces(values: Iterable[object]) -> str:
    """Returns values between braces, on lines of their own where they fill more than one."""
    text = ", ".join(map(str, values))
    if len(text) <= 96:
        return f"{{{text}}}"
    return "{\n" + textwrap.fill(text, 120, initial_indent="    ", subsequent_indent="    ", break_long_words=False) + "}"


def is_flag(axis: Axis) -> bool:
    """Whether an axis is a bool whose value is its position."""
    return axis.value is not None and axis.value.type == BOOL and axis.values == (False, True)
