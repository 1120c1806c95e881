"""Prints IR as text. Deterministic: names come from the program, numbers from the order of printing."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import numpy as np

from kernelpack.ir import assembly_format as form
from kernelpack.ir.core import Attribute, Block, Location, Operation, Value
from kernelpack.ir.dialect import AttributeDef, definition, operand, operands_called
from kernelpack.ir.formats import encode, normal, round_to
from kernelpack.ir.types import F64, Encoding, FloatType, FunctionType, IntegerType, TensorType, Type, element_of


def print_op(op: Operation, *, locations: bool = False) -> str:
    """Returns the text of an operation with everything nested in it; `locations` adds source locations."""
    printer = _Printer(locations)
    printer.op(op)
    text = "\n".join(printer.lines) + "\n"
    return _with_aliases(text, op) if op.name == "builtin.module" else text


def value_names(function: Operation) -> dict[Value, str]:
    """Returns what the values of a function are called in its text."""
    printer = _Printer(locations=False)
    for argument in function.body.arguments:
        printer.define(argument, argument=True)
    printer.block(function.body)
    return printer.names


def _with_aliases(text: str, module: Operation) -> str:
    """Names the encodings of a module once, in front of it: `#linear = #ttg.linear<...>`."""
    encodings: dict[Encoding, str] = {}
    counts: dict[str, int] = {}
    for op in module.walk():
        arguments = [argument for region in op.regions for block in region.blocks for argument in block.arguments]
        for value in (*arguments, *op.results):
            encoding = getattr(value.type, "encoding", None)
            if encoding is not None and encoding not in encodings:
                count = counts.get(encoding.alias, 0)
                counts[encoding.alias] = count + 1
                encodings[encoding] = f"#{encoding.alias}{count or ''}"
    for encoding, alias in encodings.items():
        text = text.replace(str(encoding), alias)
    return "".join(f"{alias} = {encoding}\n" for encoding, alias in encodings.items()) + text


def float_text(value: float, kind: FloatType) -> str:
    """Returns a float as MLIR writes it: 1.500000e+00, with as many digits as it takes, or the bits of infinities and NaN."""
    if not math.isfinite(value):
        return f"0x{int(encode(round_to(np.array([value]), kind), kind)[0]):0{kind.width // 4}X}"
    short = f"{value:.6e}"
    if normal(float(short), kind) == value:
        return short
    return f"{value:.8e}" if kind.width <= 32 else f"{value:.16e}"


def scalar_text(value: Attribute, kind: Type) -> str:
    """Returns a constant of type `kind` without its type."""
    if isinstance(kind, FloatType):
        return float_text(float(value), kind)
    if kind == IntegerType(1):
        return "true" if value else "false"
    return str(int(value))


def constant_text(value: Attribute, kind: Type) -> str:
    """Returns what follows `arith.constant`."""
    text = scalar_text(value, element_of(kind))
    if isinstance(kind, TensorType):
        return f"dense<{text}> : {kind}"
    return text if kind == IntegerType(1) else f"{text} : {kind}"


def attribute_text(value: Attribute, row: AttributeDef | None = None) -> str:
    """Returns an attribute as it stands in a dictionary."""
    kind = row.kind if row is not None else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : {'i64' if kind == 'i64' or not -(1 << 31) <= value < 1 << 31 else 'i32'}"
    if isinstance(value, float):
        return f"{float_text(value, F64)} : f64"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        if kind == "ints" or (value and all(type(entry) is int for entry in value)):
            return f"array<i32: {', '.join(map(str, value))}>" if value else "array<i32>"
        return "[" + ", ".join(attribute_text(entry) for entry in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text(key)} = {attribute_text(value[key])}" for key in sorted(value)) + "}"
    return str(value)


def key_text(key: str) -> str:
    """Returns an attribute's name as it stands in a dictionary: quoted if it is no plain word (`"ttg.num-warps"`)."""
    return key if re.fullmatch(r"[A-Za-z_][\w$.]*", key) else attribute_text(key)


def location_text(location: Location) -> str:
    if location.source is None:
        return "loc(unknown)"
    here = f'"{location.source.file}":{location.source.line}:{location.source.column}'
    if location.callsite is None or location.callsite.source is None:
        return f"loc({here})"
    return f"loc(callsite({here} at {location_text(location.callsite)[4:-1]}))"


class _Printer:
    def __init__(self, locations: bool) -> None:
        self.locations = locations
        self.lines: list[str] = []
        self.depth = 0
        self.names: dict[Value, str] = {}
        self.taken: dict[str, int] = {}
        """The names given, each with the number that the next value of that name gets."""
        self.counter = 0

    # ---- names ----

    def name(self, value: Value) -> str:
        known = self.names.get(value)
        if known is None:  # printing a fragment: a value from outside
            known = self.define(value)
        return known

    def define(self, value: Value, argument: bool = False) -> str:
        stem = re.sub(r"\W", "_", value.name)
        op = value.defining_op
        if op is not None and op.name == "arith.constant":
            stem = self.constant_stem(op)
        if stem and not stem[0].isdigit():
            name = stem
            while name in self.taken:
                name = f"{stem}_{self.taken[stem]}"
                self.taken[stem] += 1
        elif argument:
            name = next(f"arg{number}" for number in itertools.count() if f"arg{number}" not in self.taken)
        else:
            name, self.counter = str(self.counter), self.counter + 1
        self.taken[name] = 0
        self.names[value] = "%" + name
        return self.names[value]

    @staticmethod
    def constant_stem(op: Operation) -> str:
        kind = op.result.type
        if kind == IntegerType(1):
            return "true" if op.attributes["value"] else "false"
        if isinstance(kind, IntegerType):
            return f"c{op.attributes['value']}_{kind}".replace("-", "_")
        return "cst"

    # ---- structure ----

    def emit(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def op(self, op: Operation) -> None:
        structured = _STRUCTURED.get(op.name)
        if structured is not None:
            structured(self, op)
            return
        row = definition(op.name)
        if row.format is None:
            self.generic(op)
            return
        body = self.render(op, form.parse_format(row.format))
        self.emit(f"{self.results(op)}{op.name}{' ' if body else ''}{body}{self.loc(op)}")

    def results(self, op: Operation) -> str:
        """Defines the results; returns `%0 = `, `%0:2 = ` or ``."""
        if not op.results:
            return ""
        if len(op.results) == 1:
            return f"{self.define(op.result)} = "
        base = self.define(op.results[0])
        for result in op.results:
            self.names[result] = f"{base}#{result.index}"
        return f"{base}:{len(op.results)} = "

    def loc(self, op: Operation) -> str:
        return f" {location_text(op.location)}" if self.locations else ""

    def types(self, values: list[Value] | list[Type]) -> str:
        return ", ".join(str(value.type) if isinstance(value, Value) else str(value) for value in values)

    def block(self, block: Block, *, implicit_yield: bool = False) -> None:
        """Prints the operations of a block one level deeper; an empty scf.yield may be left out."""
        self.depth += 1
        for op in block.operations:
            if not (implicit_yield and op.name == "scf.yield" and not op.operands and not op.attributes):
                self.op(op)
        self.depth -= 1

    def dictionary(self, op: Operation, skip: frozenset[str] = frozenset()) -> str:
        row = definition(op.name)
        parts = []
        for key in sorted(op.attributes):
            attribute_row = row.attribute_defs.get(key)
            at_default = (
                attribute_row is not None and not attribute_row.required and op.attributes[key] == attribute_row.default
            )
            if key not in skip and not at_default:
                parts.append(f"{key_text(key)} = {attribute_text(op.attributes[key], attribute_row)}")
        return "{" + ", ".join(parts) + "}" if parts else ""

    # ---- the declarative form ----

    def render(self, op: Operation, elements: tuple[form.Element, ...]) -> str:
        out = ""
        for element in elements:
            text = self.render_element(op, element)
            if text and out and not self.is_joined(out, text):
                out += " "
            out += text
        return out

    @staticmethod
    def is_joined(before: str, text: str) -> bool:
        """Whether no space stands between two pieces: `a, b`, `f(x)`, `a[i]`, but `a, [i]`."""
        opens = text.startswith("[") and not before.endswith((",", ":"))
        return opens or text.startswith((",", ")", ">", "]")) or before.endswith(("(", "<", "["))

    def render_element(self, op: Operation, element: form.Element) -> str:
        match element:
            case form.Literal(text):
                return text
            case form.Variable(name):
                values = self.named_operands(op, name)
                if values is not None:
                    return ", ".join(self.name(value) for value in values)
                row = definition(op.name).attribute_defs[name]
                value = op.attributes.get(name, row.default)
                return (
                    str(value) if isinstance(value, str) and row.kind != "str" else attribute_text(value, row).split(" : ")[0]
                )
            case form.TypeOf(name, if_shaped, mnemonic):
                if name == "result":
                    return self.types([result.type for result in op.results[:1]]).removeprefix(mnemonic)
                values = self.named_operands(op, name) or []
                if if_shaped:
                    return f"{values[0].type}," if isinstance(values[0].type, TensorType) else ""
                return self.types(values).removeprefix(mnemonic)
            case form.AttrDict():
                return self.dictionary(op, form.mentioned(definition(op.name).format or ""))
            case form.FunctionalType():
                return self.functional(op)
            case form.Optional(elements):
                if not self.present(op, element.anchor):
                    return ""
                if self.is_flag(op, element.anchor):  # a flag's word alone says that it is set
                    elements = tuple(part for part in elements if isinstance(part, form.Literal))
                return self.render(op, elements)

    @staticmethod
    def is_flag(op: Operation, name: str) -> bool:
        row = definition(op.name).attribute_defs.get(name)
        return row is not None and row.kind == "bool"

    def functional(self, op: Operation) -> str:
        results = self.types([result.type for result in op.results])
        return f"({self.types(op.operands)}) -> " + (results if len(op.results) == 1 else f"({results})")

    @staticmethod
    def named_operands(op: Operation, name: str) -> list[Value] | None:
        """Returns the operands called `name`; None where the row has no such operand."""
        place = definition(op.name).places(len(op.operands)).get(name)
        return None if place is None else op.operands[place.start : place.stop]

    def present(self, op: Operation, name: str) -> bool:
        values = self.named_operands(op, name)
        if values is not None:
            return bool(values)
        return name in op.attributes and op.attributes[name] != definition(op.name).attribute_defs[name].default

    # ---- operations with a form of their own ----

    def generic(self, op: Operation) -> None:
        operands = ", ".join(self.name(value) for value in op.operands)
        dictionary = self.dictionary(op)
        properties = f" <{dictionary}>" if dictionary else ""
        head = f'{self.results(op)}"{op.name}"({operands}){properties}'
        if not op.regions:
            self.emit(f"{head} : {self.functional(op)}{self.loc(op)}")
            return
        self.emit(f"{head} ({{")
        for number, region in enumerate(op.regions):
            if number:
                self.emit("}, {")
            for index, block in enumerate(region.blocks):
                self.emit(f"^bb{index}{self.block_arguments(block)}:")
                self.block(block)
        self.emit(f"}}) : {self.functional(op)}{self.loc(op)}")

    def block_arguments(self, block: Block) -> str:
        if not block.arguments:
            return ""
        return "(" + ", ".join(f"{self.define(a, argument=True)}: {a.type}" for a in block.arguments) + ")"

    def module(self, op: Operation) -> None:
        dictionary = self.dictionary(op)
        self.emit(f"module{f' attributes {dictionary}' if dictionary else ''} {{")
        self.block(op.regions[0].block)
        self.emit("}")

    def func(self, op: Operation) -> None:
        kind: FunctionType = op.attributes["function_type"]
        saved = self.names, self.taken, self.counter
        self.names, self.taken, self.counter = {}, {}, 0
        facts = op.attributes.get("arg_attrs") or [{}] * len(kind.inputs)
        arguments = ", ".join(
            f"{self.define(argument, argument=True)}: {argument.type}" + (f" {attribute_text(entry)}" if entry else "")
            for argument, entry in zip(op.body.arguments, facts, strict=True)
        )
        visibility = f"{op.attributes['sym_visibility']} " if op.attributes.get("sym_visibility") else ""
        results = self.types(list(kind.results))
        returns = "" if not kind.results else f" -> {results}" if len(kind.results) == 1 else f" -> ({results})"
        more = {key: value for key, value in op.attributes.items() if "." in key}
        attributes = attribute_text({**more, "noinline": bool(op.attributes.get("noinline"))})
        self.emit(f"tt.func {visibility}@{op.attributes['sym_name']}({arguments}){returns} attributes {attributes} {{")
        self.block(op.regions[0].block)
        self.emit(f"}}{self.loc(op)}")
        self.names, self.taken, self.counter = saved

    def constant(self, op: Operation) -> None:
        dictionary = self.dictionary(op, frozenset({"value"}))
        text = constant_text(op.attributes["value"], op.result.type)
        self.emit(f"{self.results(op)}arith.constant {dictionary + ' ' if dictionary else ''}{text}{self.loc(op)}")

    def call(self, op: Operation) -> None:
        arguments = ", ".join(self.name(value) for value in op.operands)
        callee, dictionary = op.attributes["callee"], self.dictionary(op, frozenset({"callee"}))
        more = f" {dictionary}" if dictionary else ""
        self.emit(f"{self.results(op)}tt.call @{callee}({arguments}){more} : {self.functional(op)}{self.loc(op)}")

    def scf_for(self, op: Operation) -> None:
        lower, upper, step, *initial = (self.name(value) for value in op.operands)
        head = self.results(op)
        induction, *carried = (self.define(argument, argument=True) for argument in op.body.arguments)
        pairs = ", ".join(f"{name} = {value}" for name, value in zip(carried, initial, strict=True))
        types = self.types([result.type for result in op.results])
        iterate = f" iter_args({pairs}) -> ({types})" if carried else ""
        counter = operand(op, "lower").type
        self.emit(f"{head}scf.for {induction} = {lower} to {upper} step {step}{iterate}  : {counter} {{")
        self.block(op.regions[0].block, implicit_yield=True)
        dictionary = self.dictionary(op)
        self.emit(f"}}{' ' + dictionary if dictionary else ''}{self.loc(op)}")

    def scf_if(self, op: Operation) -> None:
        head = self.results(op)
        types = f" -> ({self.types([result.type for result in op.results])})" if op.results else ""
        self.emit(f"{head}scf.if {self.name(op.operand)}{types} {{")
        self.block(op.regions[0].block, implicit_yield=True)
        if op.regions[1].blocks:
            self.emit("} else {")
            self.block(op.regions[1].block, implicit_yield=True)
        dictionary = self.dictionary(op)
        self.emit(f"}}{' ' + dictionary if dictionary else ''}{self.loc(op)}")

    def scf_while(self, op: Operation) -> None:
        head = self.results(op)
        before, after = (region.block for region in op.regions)
        pairs = ", ".join(
            f"{self.define(argument, argument=True)} = {self.name(value)}"
            for argument, value in zip(before.arguments, op.operands, strict=True)
        )
        self.emit(f"{head}scf.while{f' ({pairs})' if pairs else ''} : {self.functional(op)} {{")
        self.block(op.regions[0].block)
        self.emit("} do {")
        if after.arguments:
            self.emit(f"^bb0{self.block_arguments(after)}:")
        self.block(op.regions[1].block, implicit_yield=True)
        dictionary = self.dictionary(op)
        self.emit(f"}}{' attributes ' + dictionary if dictionary else ''}{self.loc(op)}")

    def condition(self, op: Operation) -> None:
        condition, *values = (self.name(value) for value in op.operands)
        dictionary = self.dictionary(op)
        passed = f" {', '.join(values)} : {self.types(operands_called(op, 'values'))}" if values else ""
        self.emit(f"scf.condition({condition}){' ' + dictionary if dictionary else ''}{passed}{self.loc(op)}")


_STRUCTURED: dict[str, Callable[[_Printer, Operation], None]] = {
    "builtin.module": _Printer.module,
    "tt.func": _Printer.func,
    "arith.constant": _Printer.constant,
    "tt.call": _Printer.call,
    "scf.for": _Printer.scf_for,
    "scf.if": _Printer.scf_if,
    "scf.while": _Printer.scf_while,
    "scf.condition": _Printer.condition,
}
