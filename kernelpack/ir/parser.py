"""Parses IR text, ours and Triton's, into operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelpack.ir import assembly_format as form
from kernelpack.ir.attribute_parser import AttributeParser
from kernelpack.ir.core import Attribute, Block, Operation, Region, Value
from kernelpack.ir.dialect import OpDef, definition, is_known
from kernelpack.ir.types import FunctionType, IntegerType, TensorType, Type, element_of


def parse_module(text: str, file: str = "<ir>") -> Operation:
    """Parses a module, or bare functions, and returns a `builtin.module`. Raises ParseError with the place in the text."""
    return Parser(text, file).module()


class Parser(AttributeParser):
    """A recursive-descent parser over one text."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self.values: dict[str, Value] = {}

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
        if self.peek("loc") or self.kind == "place":
            self.location()
        else:
            self.aliases[name] = self.attribute()

    def operations(self, block: Block, end: str) -> None:
        while not self.accept(end):
            if self.kind == "end":
                raise self.error(f"expected {end!r}, found the end")
            if self.kind == "label":
                raise self.error("regions with several blocks (cf.br, cf.cond_br) are not supported")
            block.append(self.operation())

    def operation(self) -> Operation:
        named: list[tuple[str, int | None]] = []
        if self.kind == "ssa":
            while True:
                name = self.take("ssa")
                named.append((name, self.integer() if self.accept(":") else None))
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
        count = sum(1 if one is None else one for _, one in named)
        if len(op.results) != count or any(one is not None and one < 1 for _, one in named):
            self.at = start
            raise self.error(f"{op.name} gives {len(op.results)} results, {count} are named")
        names = [
            full for name, one in named for full in ([name] if one is None else [f"{name}#{index}" for index in range(one)])
        ]
        for name, result in zip(names, op.results, strict=True):
            self.values[name] = result
            result.name = "" if op.name == "arith.constant" else stem_of(name)
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
        self.values[name] = block.add_argument(kind, stem_of(name))

    def region(self, block: Block | None = None, *, implicit_yield: bool = False, may_be_empty: bool = False) -> Region:
        """Parses `{ operations }`; an scf region may leave an empty scf.yield out, and in the generic form `{}` has no block."""
        block = block if block is not None else Block()
        self.expect("{")
        if may_be_empty and self.accept("}"):
            return Region()
        if self.kind == "label":
            self.label(block)
        with self.nested():
            self.operations(block, "}")
        if implicit_yield and (not block.operations or block.terminator.name != "scf.yield"):
            block.append(Operation("scf.yield"))
        return Region([block])

    def label(self, block: Block) -> None:
        """Parses `^bb0(%a: type):`. Only one block a region: unstructured control flow is outside our IR."""
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
        return Operation(name, operands, self.signature(operands).results, attributes, regions)

    def signature(self, operands: list[Value]) -> FunctionType:
        """Parses `(types) -> results`; the types must be the operands'."""
        start = self.at
        kind = self.function_type()
        self.check_types(operands, start, kind.inputs)
        return kind

    def listed_types(self, operands: list[Value]) -> None:
        """Parses `type, type ...`, which must be the operands'."""
        start = self.at
        types = [self.type()]
        while len(types) < len(operands):
            self.expect(",")
            types.append(self.type())
        self.check_types(operands, start, types)

    def check_types(self, operands: list[Value], start: int, types: Sequence[Type]) -> None:
        if [value.type for value in operands] != list(types):
            have = ", ".join(str(value.type) for value in operands)
            self.at = start
            raise self.error(f"the operands have types ({have}), the text says ({', '.join(map(str, types))})")

    # ---- the declarative form ----

    def declarative(self, row: OpDef) -> Operation:
        if row.format is None:
            raise self.error(f"{row.name} is written in the generic form")
        state = _Declarative(self, row)
        state.parse(form.parse_format(row.format))
        operands = [value for operand_row in row.operands for value in state.operands.get(operand_row.name, [])]
        types = state.result_types
        if types is not None and row.results is not None:
            types = types * row.results  # one type is written for results that are alike
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
        return Operation("tt.call", operands, self.signature(operands).results, attributes)

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
            self.check_types(initial, self.at, self.type_list())
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
            self.values[name] = block.add_argument(kind, stem_of(name))

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
        signature = self.signature(initial)
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
        attributes = self.optional_dictionary(None)
        values = self.value_list()
        if values:
            self.expect(":")
            self.listed_types(values)
        return Operation("scf.condition", operands + values, attributes=attributes)


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
                case form.TypeOf(name, if_shaped, mnemonic):
                    self.types(name, if_shaped, mnemonic)
                case form.AttrDict():
                    self.attributes.update(parser.optional_dictionary(self.row))
                case form.FunctionalType():
                    operands = [value for operand in self.row.operands for value in self.operands.get(operand.name, [])]
                    self.result_types = list(parser.signature(operands).results)
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
            at = parser.at + ahead
            if isinstance(element, form.Literal):
                if parser.texts[at] != element.text:
                    return False
                ahead += 1
            elif isinstance(element, form.Variable):
                return element.name not in self.operand_rows or parser.kinds[at] == "ssa"
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
        elif kind in ("i32", "i64"):  # what follows after a colon are the operands' types
            self.attributes[name] = parser.integer()
        else:
            self.attributes[name] = parser.attribute(self.row.attribute_defs[name])

    def types(self, name: str, if_shaped: bool, mnemonic: str) -> None:
        parser = self.parser
        if name == "result":
            self.result_types = [parser.bang_body(mnemonic) if mnemonic and parser.peek("<") else parser.type()]
            return
        values = self.operands.get(name, [])
        if mnemonic and parser.peek("<"):
            start = parser.at
            parser.check_types(values, start, [parser.bang_body(mnemonic)])
            return
        if if_shaped and not isinstance(values[0].type, TensorType):
            return
        parser.listed_types(values)
        if if_shaped:
            parser.expect(",")


def stem_of(name: str) -> str:
    """Returns the name to remember of `%name` or `%name#1`; numbers are not worth it."""
    stem = name[1:].split("#")[0]
    return "" if stem[0].isdigit() else stem


_STRUCTURED: dict[str, Callable[[Parser], Operation]] = {
    "tt.func": Parser.func,
    "arith.constant": Parser.constant,
    "tt.call": Parser.call,
    "scf.for": Parser.scf_for,
    "scf.if": Parser.scf_if,
    "scf.while": Parser.scf_while,
    "scf.condition": Parser.condition,
}
