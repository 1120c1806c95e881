"""Parses IR text, ours and Triton's, into operations."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from kernelpack.errors import ParseError, SourceLocation
from kernelpack.ir import assembly_format as form
from kernelpack.ir.core import UNKNOWN, Attribute, Block, Location, Operation, Region, Value
from kernelpack.ir.dialect import AttributeDef, OpDef, definition, is_known
from kernelpack.ir.formats import decode, normal
from kernelpack.ir.types import (
    FLOATS,
    TOKEN,
    Encoding,
    FloatType,
    FunctionType,
    IntegerType,
    MemDescType,
    PointerType,
    TensorType,
    Type,
    element_of,
)

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*)+)
      |(?P<ssa>%[\w$.-]+(?:\#\d+)?)
      |(?P<symbol>@(?:[\w$.-]+|"[^"]*"))
      |(?P<alias>\#[A-Za-z_][\w.]*)
      |(?P<bang>![A-Za-z_][\w.]*)
      |(?P<label>\^\w+)
      |(?P<string>"(?:[^"\\]|\\.)*")
      |(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
      |(?P<word>[A-Za-z_][\w$.]*)
      |(?P<arrow>->|::)
      |(?P<punctuation>[-{}()\[\]<>,:=*+/?])""",
    re.VERBOSE,
)

EncodingParser = Callable[["Parser"], Encoding]
ENCODINGS: dict[str, EncodingParser] = {}
"""Parsers of `#name<...>` encodings, by name; called with the parser standing behind the name."""


def parse_module(text: str, file: str = "<ir>") -> Operation:
    """Parses a module, or bare functions, and returns a `builtin.module`. Raises ParseError with the place in the text."""
    return Parser(text, file).module()


class Parser:
    """A recursive-descent parser over one text. Encoding parsers use `accept`, `expect`, `integer` and `attribute`."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.tokens: list[tuple[str, str, int]] = []  # kind, text, offset
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"unexpected character {text[position]!r}", position)
            if match.lastgroup != "space":
                assert match.lastgroup is not None
                self.tokens.append((match.lastgroup, match.group(), position))
            position = match.end()
        self.tokens.append(("end", "", len(text)))
        self.at = 0
        self.values: dict[str, Value] = {}
        self.aliases: dict[str, Attribute] = {}
        self.location_aliases = self._collect_location_aliases()

    # ---- tokens ----

    def error(self, message: str, offset: int | None = None) -> ParseError:
        offset = self.tokens[self.at][2] if offset is None else offset
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        return ParseError(message, location=SourceLocation(self.file, line, column))

    @property
    def kind(self) -> str:
        return self.tokens[self.at][0]

    @property
    def token(self) -> str:
        return self.tokens[self.at][1]

    def next(self) -> str:
        if self.kind == "end":
            raise self.error("unexpected end")
        text = self.token
        self.at += 1
        return text

    def peek(self, text: str) -> bool:
        return self.token == text and self.kind != "string"

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.token or 'the end'!r}")

    def take(self, kind: str) -> str:
        if self.kind != kind:
            raise self.error(f"expected a {kind}, found {self.token or 'the end'!r}")
        return self.next()

    def integer(self) -> int:
        text = self.take("number")
        try:
            return int(text, 0)
        except ValueError:
            self.at -= 1
            raise self.error(f"expected an integer, found {text!r}") from None

    def number(self, kind: Type) -> bool | int | float:
        """Parses the value of a constant whose scalar type is known."""
        start = self.at
        text = "-" * self.accept("-") + self.next()
        try:
            if isinstance(kind, FloatType):
                return parse_float(text, kind)
            if kind == IntegerType(1) and text in ("true", "false"):
                return text == "true"
            if isinstance(kind, IntegerType) and -(1 << kind.width - 1) <= int(text, 0) < 1 << kind.width:
                return normal(int(text, 0), kind)
        except (ValueError, OverflowError):
            pass
        self.at = start
        raise self.error(f"{text!r} is not a constant of type {kind}")

    def comma_separated(self, parse: Callable[[], None], end: str) -> None:
        """Parses `item, item ... end`."""
        if self.accept(end):
            return
        parse()
        while self.accept(","):
            parse()
        self.expect(end)

    # ---- types ----

    def type(self) -> Type:
        if self.kind == "bang":
            return self.bang_type()
        if self.kind == "alias":
            raise self.error("expected a type, found an attribute")
        if self.peek("("):
            return self.function_type()
        word = self.take("word")
        if word == "tensor":
            shape, element = self.shaped()
            encoding = self.encoding() if self.accept(",") else None
            self.expect(">")
            return TensorType(shape, element, encoding)
        kind = scalar_type(word)
        if kind is None:
            self.at -= 1
            raise self.error(f"unknown type {word!r}")
        return kind

    def shaped(self) -> tuple[tuple[int, ...], Type]:
        """Parses `<128x64xf32` up to the element type."""
        self.expect("<")
        start = self.tokens[self.at][2]
        match = re.compile(r"((?:\d+x)+)").match(self.text, start)
        if match is None:
            raise self.error("expected a shape")
        shape = tuple(int(extent) for extent in match[1].split("x") if extent)
        rest = match.end()
        # the lexer has split `128x64xf32` its own way: read again from behind the shape
        word = re.compile(r"[A-Za-z]\w*").match(self.text, rest)
        end = word.end() if word is not None else rest
        while self.tokens[self.at][2] < end and self.kind != "end":
            self.at += 1
        if word is None:
            return shape, self.type()
        kind = scalar_type(word.group())
        if kind is None:
            raise self.error(f"unknown element type {word.group()!r}", rest)
        return shape, kind

    def bang_type(self) -> Type:
        name = self.take("bang")
        if name in ("!tt.ptr", "!llvm.ptr"):
            self.expect("<")
            pointee = self.type()
            space = self.integer() if self.accept(",") else 1
            self.expect(">")
            return PointerType(pointee, space)
        if name == "!ttg.memdesc":
            shape, element = self.shaped()
            self.expect(",")
            encoding = self.encoding()
            mutable = False
            while self.accept(","):  # the memory space, `mutable`, and an allocation shape that we do not keep
                mutable |= self.accept("mutable")
                while not self.peek(",") and not self.peek(">") and self.kind != "end":
                    self.next()
            self.expect(">")
            return MemDescType(shape, element, encoding, mutable)
        if name == "!ttg.async.token":
            return TOKEN
        self.at -= 1
        raise self.error(f"unknown type {name!r}")

    def function_type(self) -> FunctionType:
        inputs = self.type_list()
        self.expect("->")
        results = self.type_list() if self.peek("(") else [self.type()]
        return FunctionType(tuple(inputs), tuple(results))

    def type_list(self) -> list[Type]:
        types: list[Type] = []
        self.expect("(")
        self.comma_separated(lambda: types.append(self.type()), ")")
        return types

    def encoding(self) -> Encoding:
        name = self.take("alias")
        value = self.aliases.get(name)
        if value is None and name[1:] in ENCODINGS:
            value = ENCODINGS[name[1:]](self)
        if not isinstance(value, Encoding):
            raise self.error(f"unknown encoding {name}")
        return value

    # ---- attributes ----

    def attribute(self, row: AttributeDef | None = None) -> Attribute:
        """Parses an attribute value; a type behind a number (`: i32`) is read and dropped."""
        if self.kind == "string":
            return self.string()
        if self.kind == "number":
            return self.numeric_attribute(row)
        if self.accept("["):
            entries: list[Attribute] = []
            self.comma_separated(lambda: entries.append(self.attribute()), "]")
            return tuple(entries)
        if self.peek("{"):
            return self.dictionary(None)
        if self.kind == "alias":
            name = self.token
            if name in self.aliases:
                self.next()
                return self.aliases[name]
            return self.encoding()
        if self.kind == "bang":
            return self.bang_type()
        if self.kind == "symbol":
            return self.next()[1:].strip('"')
        if self.accept("true"):
            return True
        if self.accept("false"):
            return False
        if self.accept("unit"):
            return True
        if self.peek("array"):
            return self.array()
        if row is not None and isinstance(row.kind, tuple) and self.kind == "word":
            return self.next()
        return self.type()

    def numeric_attribute(self, row: AttributeDef | None) -> Attribute:
        start = self.at
        text = self.next()
        kind = self.type() if self.accept(":") else None
        end = self.at
        self.at = start
        if row is not None and isinstance(row.kind, tuple):  # Triton prints enums in dictionaries as numbers
            number = self.integer() - (1 if row.name in ("cache", "evict", "sem", "scope") else 0)
            if not 0 <= number < len(row.kind):
                self.at = start
                raise self.error(f"{text} is none of {', '.join(row.kind)}")
            value: Attribute = row.kind[number]
        elif kind is None:
            value = float(self.next()) if re.search(r"[.eE]", text) and not text.startswith("0x") else self.integer()
        else:
            value = self.number(kind)
        self.at = end
        return value

    def array(self) -> tuple[int, ...]:
        self.expect("array")
        self.expect("<")
        self.take("word")
        numbers: list[int] = []
        if self.accept(":"):
            self.comma_separated(lambda: numbers.append(self.integer()), ">")
        else:
            self.expect(">")
        return tuple(numbers)

    def string(self) -> str:
        return re.sub(r"\\(.)", r"\1", self.take("string")[1:-1])

    def dictionary(self, row: OpDef | None) -> dict[str, Attribute]:
        """Parses `{name = value, flag}`; Triton's `isVolatile` is our `is_volatile`."""
        entries: dict[str, Attribute] = {}

        def entry() -> None:
            key = self.string() if self.kind == "string" else self.take("word")
            attribute_row = row.attribute_defs.get(key) if row is not None else None
            if row is not None and attribute_row is None:
                snake = re.sub(r"[A-Z]", lambda capital: "_" + capital.group().lower(), key)
                attribute_row = row.attribute_defs.get(snake)
                key = key if attribute_row is None else snake
            entries[key] = self.attribute(attribute_row) if self.accept("=") else True

        self.expect("{")
        self.comma_separated(entry, "}")
        return entries

    def optional_dictionary(self, row: OpDef | None) -> dict[str, Attribute]:
        return self.dictionary(row) if self.peek("{") else {}

    # ---- locations ----

    def _collect_location_aliases(self) -> dict[str, int]:
        """Locations may be named behind their use: remember where each `#loc = loc(...)` stands."""
        found: dict[str, int] = {}
        for index in range(len(self.tokens) - 2):
            if self.tokens[index][0] == "alias" and self.tokens[index + 1][1] == "=" and self.tokens[index + 2][1] == "loc":
                found[self.tokens[index][1]] = index + 2
        return found

    def location(self) -> Location:
        """Parses an optional trailing `loc(...)`."""
        if not self.accept("loc"):
            return UNKNOWN
        self.expect("(")
        location = self.location_body()
        self.expect(")")
        return location

    def location_body(self) -> Location:
        if self.kind == "alias":
            start = self.location_aliases.get(self.next())
            if start is None:
                return UNKNOWN
            here, self.at = self.at, start
            location = self.location()
            self.at = here
            return location
        if self.accept("callsite"):
            self.expect("(")
            callee = self.location_body()
            self.expect("at")
            caller = self.location_body()
            self.expect(")")
            return Location(callee.source, caller)
        if self.kind == "string":
            name = self.string()
            if self.accept(":"):
                line = self.integer()
                self.expect(":")
                column = self.integer()
                if self.accept("to"):  # a range; we keep where it starts
                    while not self.peek(")"):
                        self.next()
                return Location(SourceLocation(name, line, column))
            if self.accept("("):  # "name"(location)
                location = self.location_body()
                self.expect(")")
                return location
            return UNKNOWN
        self.next()  # unknown
        return UNKNOWN

    # ---- structure ----

    def module(self) -> Operation:
        block = Block()
        attributes: dict[str, Attribute] = {}
        bare = True
        while self.kind != "end":
            if self.kind == "alias":
                self.alias()
            elif self.accept("module"):
                bare = False
                if self.accept("attributes"):
                    attributes = self.dictionary(None)
                self.expect("{")
                self.operations(block, "}")
                self.location()
            elif bare:
                block.append(self.operation())
            else:
                raise self.error(f"expected the end, found {self.token!r}")
        return Operation("builtin.module", attributes=attributes, regions=[Region([block])])

    def alias(self) -> None:
        name = self.take("alias")
        self.expect("=")
        if self.peek("loc"):
            self.location()
        else:
            self.aliases[name] = self.attribute()

    def operations(self, block: Block, end: str) -> None:
        while not self.accept(end):
            if self.kind == "end":
                raise self.error(f"expected {end!r}, found the end")
            block.append(self.operation())

    def operation(self) -> Operation:
        names: list[str] = []
        if self.kind == "ssa":
            while True:
                name = self.take("ssa")
                if self.accept(":"):
                    names += [f"{name}#{index}" for index in range(self.integer())]
                else:
                    names.append(name)
                if not self.accept(","):
                    break
            self.expect("=")
        start = self.at
        if self.kind == "string":
            op = self.generic()
        else:
            name = self.take("word")
            structured = _STRUCTURED.get(name)
            if structured is None and not is_known(name):
                self.at = start
                raise self.error(f"unknown operation {name!r}")
            op = structured(self) if structured is not None else self.declarative(definition(name))
        op.location = self.location()
        if len(op.results) != len(names):
            self.at = start
            raise self.error(f"{op.name} gives {len(op.results)} results, {len(names)} are named")
        for name, result in zip(names, op.results, strict=True):
            self.values[name] = result
            result.name = "" if op.name == "arith.constant" else hint_of(name)
        if len(names) > 1:  # `%x:2` may be used as %x#0 and %x#1 only
            self.values.setdefault(names[0].split("#")[0], op.results[0])
        return op

    def value(self) -> Value:
        name = self.take("ssa")
        if name not in self.values:
            self.at -= 1
            raise self.error(f"{name} is not defined here")
        return self.values[name]

    def value_list(self) -> list[Value]:
        values: list[Value] = []
        if self.kind == "ssa":
            values.append(self.value())
            while self.accept(","):
                values.append(self.value())
        return values

    def argument(self, block: Block, kind: Type | None = None) -> None:
        """Parses `%name` (of a known type) or `%name: type loc(...)` and adds it to the block."""
        name = self.take("ssa")
        if kind is None:
            self.expect(":")
            kind = self.type()
            self.location()
        self.values[name] = block.add_argument(kind, hint_of(name))

    def region(self, block: Block | None = None, *, implicit_yield: bool = False, may_be_empty: bool = False) -> Region:
        """Parses `{ operations }`; an scf region may leave an empty scf.yield out, and in the generic form `{}` has no block."""
        block = block if block is not None else Block()
        self.expect("{")
        if may_be_empty and self.accept("}"):
            return Region()
        if self.kind == "label":
            self.label(block)
        self.operations(block, "}")
        if implicit_yield and (not block.operations or block.terminator.name != "scf.yield"):
            block.append(Operation("scf.yield"))
        return Region([block])

    def label(self, block: Block) -> None:
        """Parses `^bb0(%a: type):`. Only one block a region: unstructured control flow is outside our IR."""
        if block.operations:
            raise self.error("regions with several blocks (cf.br, cf.cond_br) are not supported")
        self.take("label")
        if self.accept("("):
            self.comma_separated(lambda: self.argument(block), ")")
        self.expect(":")

    def generic(self) -> Operation:
        name = self.string()
        if not is_known(name):
            raise self.error(f"unknown operation {name!r}")
        row = definition(name)
        self.expect("(")
        operands = self.value_list()
        self.expect(")")
        attributes: dict[str, Attribute] = {}
        if self.accept("<"):
            attributes.update(self.dictionary(row))
            self.expect(">")
        regions: list[Region] = []
        if self.accept("("):
            self.comma_separated(lambda: regions.append(self.region(may_be_empty=True)), ")")
        attributes.update(self.optional_dictionary(row))
        self.expect(":")
        signature = self.function_type()
        self.check_operand_types(operands, list(signature.inputs))
        return Operation(name, operands, signature.results, attributes, regions)

    def check_operand_types(self, operands: list[Value], types: list[Type]) -> None:
        if [value.type for value in operands] != types:
            have = ", ".join(str(value.type) for value in operands)
            raise self.error(f"the operands have types ({have}), the text says ({', '.join(map(str, types))})")

    # ---- the declarative form ----

    def declarative(self, row: OpDef) -> Operation:
        if row.format is None:
            raise self.error(f"{row.name} is written in the generic form")
        state = _Declarative(self, row)
        state.parse(form.parse_format(row.format))
        operands = [value for operand_row in row.operands for value in state.operands.get(operand_row.name, [])]
        types = state.result_types
        if types is None or len(types) != row.results:
            try:
                types = row.infer_results(operands, state.attributes)
            except (TypeError, KeyError, IndexError) as problem:
                raise self.error(f"{row.name}: {problem}") from None
        return Operation(row.name, operands, types, state.attributes)

    # ---- operations with a form of their own ----

    def func(self) -> Operation:
        row = definition("tt.func")
        attributes: dict[str, Attribute] = {}
        if self.kind == "word":
            attributes["sym_visibility"] = self.next()
        attributes["sym_name"] = self.take("symbol")[1:].strip('"')
        saved, self.values = self.values, {}
        block = Block()
        facts: list[dict[str, Attribute]] = []

        def parameter() -> None:
            self.argument(block)
            facts.append(self.optional_dictionary(None))
            self.location()

        self.expect("(")
        self.comma_separated(parameter, ")")
        results: list[Type] = []
        if self.accept("->"):
            results = self.type_list() if self.peek("(") else [self.type()]
        if self.accept("attributes"):
            attributes.update(self.dictionary(row))
        attributes["function_type"] = FunctionType(tuple(a.type for a in block.arguments), tuple(results))
        if any(facts):
            attributes["arg_attrs"] = tuple(facts)
        region = self.region(block)
        self.values = saved
        return Operation("tt.func", attributes=attributes, regions=[region])

    def constant(self) -> Operation:
        attributes = self.optional_dictionary(None)
        dense = self.accept("dense")
        if dense:
            self.expect("<")
        start = self.at
        boolean = self.token in ("true", "false")
        self.accept("-")
        self.next()
        if dense:
            self.expect(">")
        kind = self.type() if self.accept(":") else IntegerType(1) if boolean else None
        if kind is None:
            raise self.error("expected ':' and the constant's type")
        end, self.at = self.at, start  # the value can be read now that its type is known
        attributes["value"] = self.number(element_of(kind))
        self.at = end
        return Operation("arith.constant", (), [kind], attributes)

    def call(self) -> Operation:
        attributes: dict[str, Attribute] = {"callee": self.take("symbol")[1:]}
        self.expect("(")
        operands = self.value_list()
        self.expect(")")
        attributes.update(self.optional_dictionary(None))
        self.expect(":")
        signature = self.function_type()
        self.check_operand_types(operands, list(signature.inputs))
        return Operation("tt.call", operands, signature.results, attributes)

    def scf_for(self) -> Operation:
        block = Block()
        induction = self.take("ssa")
        self.expect("=")
        bounds = [self.value()]
        for word in ("to", "step"):
            self.expect(word)
            bounds.append(self.value())
        names, initial = self.iterated() if self.accept("iter_args") else ([], [])
        types = [value.type for value in initial]
        if self.accept("->"):
            self.check_operand_types(initial, self.type_list())
        kind = self.type() if self.accept(":") else bounds[0].type
        self.bind(block, [induction, *names], [kind, *types])
        region = self.region(block, implicit_yield=True)
        return Operation("scf.for", bounds + initial, types, self.optional_dictionary(None), [region])

    def iterated(self) -> tuple[list[str], list[Value]]:
        """Parses `(%a = %x, ...)`."""
        names: list[str] = []
        initial: list[Value] = []

        def pair() -> None:
            names.append(self.take("ssa"))
            self.expect("=")
            initial.append(self.value())

        self.expect("(")
        self.comma_separated(pair, ")")
        return names, initial

    def bind(self, block: Block, names: list[str], types: list[Type]) -> None:
        for name, kind in zip(names, types, strict=True):
            self.values[name] = block.add_argument(kind, hint_of(name))

    def scf_if(self) -> Operation:
        condition = self.value()
        types = self.type_list() if self.accept("->") else []
        regions = [self.region(implicit_yield=True)]
        regions.append(self.region(implicit_yield=True) if self.accept("else") else Region())
        return Operation("scf.if", [condition], types, self.optional_dictionary(None), regions)

    def scf_while(self) -> Operation:
        block = Block()
        names, initial = self.iterated() if self.peek("(") else ([], [])
        self.expect(":")
        signature = self.function_type()
        self.check_operand_types(initial, list(signature.inputs))
        self.bind(block, names, list(signature.inputs))
        before = self.region(block)
        self.expect("do")
        after = self.region(Block(), implicit_yield=True)
        attributes = self.dictionary(None) if self.accept("attributes") else {}
        return Operation("scf.while", initial, signature.results, attributes, [before, after])

    def condition(self) -> Operation:
        self.expect("(")
        operands = [self.value()]
        self.expect(")")
        values = self.value_list()
        if values:
            self.expect(":")
            types = [self.type()]
            while self.accept(","):
                types.append(self.type())
            self.check_operand_types(values, types)
        return Operation("scf.condition", operands + values)


class _Declarative:
    """Parses one operation by its row's form."""

    def __init__(self, parser: Parser, row: OpDef) -> None:
        self.parser = parser
        self.row = row
        self.operands: dict[str, list[Value]] = {}
        self.attributes: dict[str, Attribute] = {}
        self.result_types: list[Type] | None = None
        self.operand_rows = {operand.name: operand for operand in row.operands}

    def parse(self, elements: tuple[form.Element, ...]) -> None:
        parser = self.parser
        for element in elements:
            match element:
                case form.Literal(text):
                    parser.expect(text)
                case form.Variable(name):
                    self.variable(name)
                case form.TypeOf(name, if_shaped):
                    self.types(name, if_shaped)
                case form.AttrDict():
                    self.attributes.update(parser.optional_dictionary(self.row))
                case form.FunctionalType():
                    signature = parser.function_type()
                    operands = [value for operand in self.row.operands for value in self.operands.get(operand.name, [])]
                    parser.check_operand_types(operands, list(signature.inputs))
                    self.result_types = list(signature.results)
                case form.Optional(inner):
                    if self.begins(inner):
                        flag = self.row.attribute_defs.get(element.anchor)
                        if flag is not None and flag.kind == "bool":
                            self.attributes[flag.name] = True
                            inner = tuple(part for part in inner if isinstance(part, form.Literal))
                        self.parse(inner)

    def begins(self, elements: tuple[form.Element, ...]) -> bool:
        """Whether the next tokens begin the optional group."""
        parser, ahead = self.parser, 0
        for element in elements:
            kind, text, _ = parser.tokens[parser.at + ahead]
            if isinstance(element, form.Literal):
                if text != element.text or kind == "string":
                    return False
                ahead += 1
            elif isinstance(element, form.Variable):
                return element.name not in self.operand_rows or kind == "ssa"
            else:
                return True
        return True

    def variable(self, name: str) -> None:
        parser = self.parser
        operand = self.operand_rows.get(name)
        if operand is not None:
            self.operands[name] = parser.value_list() if operand.variadic else [parser.value()]
            return
        kind = self.row.attribute_defs[name].kind
        if isinstance(kind, tuple):
            word = parser.take("word")
            if word not in kind:
                parser.at -= 1
                raise parser.error(f"{word!r} is not one of {', '.join(kind)}")
            self.attributes[name] = word
        else:
            self.attributes[name] = parser.attribute(self.row.attribute_defs[name])

    def types(self, name: str, if_shaped: bool) -> None:
        parser = self.parser
        if name == "result":
            self.result_types = [parser.type()]
            return
        values = self.operands.get(name, [])
        if if_shaped and not isinstance(values[0].type, TensorType):
            return
        types = [parser.type()]
        while len(types) < len(values):
            parser.expect(",")
            types.append(parser.type())
        parser.check_operand_types(values, types)
        if if_shaped:
            parser.expect(",")


def scalar_type(word: str) -> Type | None:
    """Returns i1 ... i64, f16, bf16, f32 ..., or None."""
    if word in FLOATS:
        return FLOATS[word]
    match = re.fullmatch(r"i(\d+)", word)
    return IntegerType(int(match[1])) if match else None


def hint_of(name: str) -> str:
    """Returns the name to remember of `%name` or `%name#1`; numbers are not worth it."""
    hint = name[1:].split("#")[0]
    return "" if hint[0].isdigit() else hint


def parse_float(text: str, kind: FloatType) -> float:
    """Returns the value of a decimal, rounded to the type, or of the bits that a hexadecimal number gives."""
    if not text.lower().startswith("0x"):
        return float(normal(float(text), kind))
    bits = np.array([int(text, 16)], f"uint{kind.width}")
    return float(decode(bits, kind)[0])


_STRUCTURED: dict[str, Callable[[Parser], Operation]] = {
    "tt.func": Parser.func,
    "arith.constant": Parser.constant,
    "tt.call": Parser.call,
    "scf.for": Parser.scf_for,
    "scf.if": Parser.scf_if,
    "scf.while": Parser.scf_while,
    "scf.condition": Parser.condition,
}
