"""Translates the expressions of a host function: what each Python form means, its type, and what it knows about None."""

from __future__ import annotations

import ast

from kernelpack.errors import HostFunctionError
from kernelpack.kernel.arguments import part_names
from kernelpack.nearest import did_you_mean
from kernelpack.opgen.host import suggestions
from kernelpack.opgen.host.ir import (
    BOOL,
    DEVICE,
    DTYPE,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NONE,
    NOTHING,
    TENSOR,
    TEXT,
    Apply,
    Const,
    Expr,
    Ref,
)
from kernelpack.opgen.host.ops import apply
from kernelpack.opgen.host.values import Grid, Meta, Method, Object, Scope, Tuple, Value

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_PROPERTIES = {"shape": "shape", "dtype": "dtype", "device": "device", "ndim": "dim", "is_cuda": "is_cuda"}
_METHODS = ("size", "stride", "numel", "dim", "is_contiguous", "element_size")


class Expressions(Scope):
    """Turns syntax into typed values."""

    def value(self, node: ast.expr) -> Value:
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is None:
            raise self.fail(
                node,
                f"{type(node).__name__} has no translation in a host function",
                "host functions check, allocate and launch; compute with numbers, conditions and shapes only",
            )
        try:
            result: Value = method(node)
        except (ArithmeticError, ValueError) as error:
            raise self.fail(node, f"{error} ({type(error).__name__})") from None
        return result

    def expr(self, node: ast.expr, what: str = "this") -> Expr:
        """Returns a value that exists at run time."""
        return self.as_expr(self.value(node), node, what)

    def condition(self, node: ast.expr) -> Expr:
        """Returns a truth value, with Python's meaning of numbers as conditions."""
        value = self.expr(node)
        if value.type == BOOL:
            return value
        if value.type in (INT, FLOAT):
            return apply("to_bool", value)
        if value.type.optional or value.type in (TENSOR, NONE):
            raise self.fail(node, f"the truth of {value.type} is not defined", "write `is not None`, or compare a number")
        raise self.fail(node, f"{value.type} is not a condition")

    # -- names and constants ------------------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> Value:
        return self.constant(node.value, node)

    def visit_Name(self, node: ast.Name) -> Value:
        if node.id in self.names:
            value = self.names[node.id]
            if isinstance(value, Object) and isinstance(value.value, HostFunctionError):
                raise self.fail(node, value.value.message, value.value.cure)
            return value
        if node.id in self.source.names:
            return self.constant(self.source.names[node.id], node)
        raise self.fail(node, f"name {node.id!r} is not defined")

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> Value:
        done: Value = Tuple(())
        for element in node.elts:
            if isinstance(element, ast.Starred):
                done = self.join(done, self.value(element.value), element)
            else:
                done = self.join(done, Tuple((self.value(element),)), element)
        return done

    visit_List = visit_Tuple

    def join(self, first: Value, second: Value, node: ast.AST) -> Value:
        """Returns two tuples, one after the other."""
        if isinstance(first, Tuple) and isinstance(second, Tuple):
            return Tuple(first.items + second.items)
        if isinstance(first, Tuple) and not first.items:
            return self.as_list(second, node)
        return apply("concat", self.as_list(first, node), self.as_list(second, node))

    def visit_Lambda(self, node: ast.Lambda) -> Value:
        if len(node.args.args) != 1 or node.args.vararg or node.args.kwarg or node.args.kwonlyargs:
            raise self.fail(node, "a lambda can only be a grid", "write lambda meta: (...)")
        return Grid(node, dict(self.names))

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        owner = self.value(node.value)
        if isinstance(owner, Object):
            try:
                return self.constant(getattr(owner.value, node.attr), node)
            except AttributeError:
                meant = did_you_mean(node.attr, dir(owner.value))
                raise self.fail(node, f"{ast.unparse(node.value)} has no attribute {node.attr!r}{meant}") from None
        if isinstance(owner, Tuple) and owner.of is not None:
            names = part_names(owner.of, len(owner.items))
            if node.attr not in names:
                meant = did_you_mean(node.attr, names)
                raise self.fail(node, f"{owner.of.__name__} has no field {node.attr!r}{meant}")
            return owner.items[names.index(node.attr)]
        if isinstance(owner, Const) and owner.type == DTYPE and node.attr == "itemsize":
            return Const(owner.value.bytes, INT)
        expr = self.as_expr(owner, node)
        if expr.type == DEVICE and node.attr in ("type", "index"):
            return Method(expr, node.attr)
        tensor = self.tensor(expr, node)
        if node.attr in _PROPERTIES:
            return apply(_PROPERTIES[node.attr], tensor)
        if node.attr in _METHODS:
            return Method(tensor, node.attr)
        raise self.fail(
            node,
            f"Tensor.{node.attr} has no translation",
            suggestions.for_method(node.attr) or f"host functions can use {', '.join(sorted({*_PROPERTIES, *_METHODS}))}",
        )

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        owner = self.value(node.value)
        if isinstance(owner, Meta):
            key = self.value(node.slice)
            if not (isinstance(key, Const) and key.type == TEXT):
                raise self.fail(node, "meta is indexed with the name of a constexpr", 'write meta["BLOCK_M"]')
            return Apply("meta", (key,), INT)
        if isinstance(node.slice, ast.Slice):
            return self.slice(owner, node.slice, node)
        index = self.number(self.value(node.slice), node.slice)
        if isinstance(owner, Tuple):
            if not isinstance(index, Const):
                raise self.fail(node, "a tuple is indexed with a number that is known when building")
            position = int(index.value)
            if not -len(owner.items) <= position < len(owner.items):
                raise self.fail(node, f"index {position} is out of range for a tuple of {len(owner.items)}")
            return owner.items[position]
        expr = self.as_expr(owner, node)
        if isinstance(expr, Apply) and expr.op in ("shape", "strides"):
            return apply("size" if expr.op == "shape" else "stride", expr.operand, index)
        if expr.type in (INTS, FLOATS):
            return apply("at", expr, index, type=INT if expr.type == INTS else FLOAT)
        raise self.fail(node, f"{expr.type} cannot be indexed")

    def slice(self, owner: Value, bounds: ast.Slice, node: ast.AST) -> Value:
        if bounds.step is not None:
            raise self.fail(node, "slices take no step")
        start = self.number(self.value(bounds.lower), node) if bounds.lower else Const(0, INT)
        stop = self.number(self.value(bounds.upper), node) if bounds.upper else Const(2**62, INT)
        if isinstance(owner, Tuple) and isinstance(start, Const) and isinstance(stop, Const):
            return Tuple(owner.items[start.value : stop.value])
        return apply("slice", self.as_list(owner, node), start, stop)

    # -- arithmetic and conditions ------------------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        lists = [x for x in (left, right) if isinstance(x, Tuple) or (isinstance(x, Apply) and x.type == INTS)]
        if isinstance(node.op, ast.Add) and len(lists) == 2:
            return self.join(left, right, node)
        return self.binary(type(node.op), left, right, node)

    def binary(self, operator: type[ast.operator], left: Value, right: Value, node: ast.AST) -> Expr:
        a, b = self.as_expr(left, node), self.as_expr(right, node)
        for operand in (a, b):
            if operand.type.optional or operand.type == NONE:
                raise self.may_be_none(operand, node)
            if operand.type not in (INT, FLOAT, BOOL):
                raise self.fail(
                    node,
                    f"{operand.type} has no arithmetic in a host function",
                    "host functions check, allocate and launch; kernels compute" if operand.type == TENSOR else None,
                )
        if operator is ast.Div:
            return apply("truediv", self.number(a, node, FLOAT), self.number(b, node, FLOAT))
        both = FLOAT if FLOAT in (a.type, b.type) else INT
        if operator is ast.Pow:
            if both == INT and isinstance(b, Const) and b.value >= 0:
                return apply("pow_int", self.number(a, node), self.number(b, node))
            if both == INT:
                raise self.fail(node, "an int to a power that is not known when building may be an int or a float")
            return apply("pow_float", self.number(a, node, FLOAT), self.number(b, node, FLOAT))
        name = _BINARY.get(operator)
        if name is None:
            raise self.fail(node, f"operator {operator.__name__} has no translation")
        if both == FLOAT and operator not in (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod):
            raise self.fail(node, f"operator {operator.__name__} needs ints")
        return apply(name, self.number(a, node, both), self.number(b, node, both), type=both)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return apply("not", self.condition(node.operand))
        operand = self.expr(node.operand)
        kind = FLOAT if operand.type == FLOAT else INT
        number = self.number(operand, node, kind)
        if isinstance(node.op, ast.UAdd):
            return number
        if isinstance(node.op, ast.Invert) and kind == FLOAT:
            raise self.fail(node, "~ needs an int")
        return apply("neg" if isinstance(node.op, ast.USub) else "invert", number, type=kind)

    def visit_BoolOp(self, node: ast.BoolOp) -> Value:
        """`and` and `or` of conditions; what the left side knows about None holds on the right."""
        outer = dict(self.names)
        is_and = isinstance(node.op, ast.And)
        done = self.condition(node.values[0])
        for previous, operand in zip(node.values, node.values[1:], strict=False):
            self.assume(previous, is_and)
            right = self.condition(operand)
            done = self.logical("and" if is_and else "or", done, right)
        self.names = outer
        return done

    def logical(self, name: str, left: Expr, right: Expr) -> Expr:
        if isinstance(left, Const):
            return right if left.value == (name == "and") else left
        return apply(name, left, right)

    def visit_Compare(self, node: ast.Compare) -> Value:
        done: Expr | None = None
        left = self.value(node.left)
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            part = self.compare(operator, left, right, node)
            done = part if done is None else self.logical("and", done, part)
            left = right
        assert done is not None
        return done

    def compare(self, operator: ast.cmpop, left: Value, right: Value, node: ast.Compare) -> Expr:
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if right != NOTHING:
                raise self.fail(node, "`is` compares with None only", "use ==")
            value = self.as_expr(left, node)
            if value == NOTHING or not value.type.optional:
                result: Expr = Const(value == NOTHING, BOOL)
            else:
                result = apply("is_none", value)
            return result if isinstance(operator, ast.Is) else apply("not", result)
        if isinstance(operator, (ast.In, ast.NotIn)):
            if not isinstance(right, Tuple):
                raise self.fail(node, "`in` needs a tuple", "write x in (a, b)")
            found: Expr = Const(False, BOOL)
            for item in right.items:
                found = self.logical("or", found, self.compare(ast.Eq(), left, item, node))
            return found if isinstance(operator, ast.In) else apply("not", found)
        if isinstance(left, Method) and left.owner.type == DEVICE and isinstance(operator, (ast.Eq, ast.NotEq)):
            return self.compare_device_type(left, right, operator, node)
        a, b = self.as_expr(left, node), self.as_expr(right, node)
        for operand in (a, b):
            if operand.type.optional or operand.type == NONE:
                raise self.may_be_none(operand, node)
        name = _COMPARE[type(operator)]
        numeric = (INT, FLOAT, BOOL)
        if a.type in numeric and b.type in numeric:
            both = BOOL if a.type == b.type == BOOL else FLOAT if FLOAT in (a.type, b.type) else INT
            return apply(name, self.number(a, node, both), self.number(b, node, both))
        if a.type == b.type and name in ("eq", "ne"):
            if a.type == INTS:
                same = apply("same_ints", a, b)
                return same if name == "eq" else apply("not", same)
            if a.type in (DTYPE, DEVICE):
                if isinstance(a, Const) and isinstance(b, Const):
                    return Const((a.value == b.value) == (name == "eq"), BOOL)
                return Apply(name, (a, b), BOOL)
        raise self.fail(node, f"{a.type} and {b.type} cannot be compared with {name}")

    def compare_device_type(self, left: Method, right: Value, operator: ast.cmpop, node: ast.AST) -> Expr:
        owner = left.owner
        known = isinstance(right, Const) and right.value in ("cpu", "cuda") and left.name == "type"
        if not known or not (isinstance(owner, Apply) and owner.op == "device"):
            raise self.fail(node, "a device compares its type with 'cpu' or 'cuda', or with another device")
        assert isinstance(right, Const)
        is_cuda = apply("is_cuda", owner.operand)
        wanted = (right.value == "cuda") == isinstance(operator, ast.Eq)
        return is_cuda if wanted else apply("not", is_cuda)

    def visit_IfExp(self, node: ast.IfExp) -> Value:
        outer = dict(self.names)
        condition = self.condition(node.test)
        if isinstance(condition, Const):
            self.assume(node.test, condition.value)
            chosen = self.value(node.body if condition.value else node.orelse)
            self.names = outer
            return chosen
        self.assume(node.test, True)
        then = self.expr(node.body)
        self.names = dict(outer)
        self.assume(node.test, False)
        orelse = self.expr(node.orelse)
        self.names = outer
        kind = self.joined(then.type, orelse.type, node)
        return apply("select", condition, self.convert(then, kind), self.convert(orelse, kind), type=kind)

    # -- what is known about None -------------------------------------------------------------------------------------

    def assume(self, test: ast.expr, holds: bool) -> None:
        """Narrows the names in scope by a condition that holds, or does not."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.assume(test.operand, not holds)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            for part in test.values:
                self.assume(part, holds)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
            comparator = test.comparators[0]
            if isinstance(comparator, ast.Constant) and comparator.value is None:
                is_none = isinstance(test.ops[0], ast.Is) == holds
                value = self.names.get(test.left.id)
                if isinstance(value, (Ref, Apply)) and value.type.optional:
                    narrowed = NOTHING if is_none else Apply("value", (value,), value.type.required)
                    self.names[test.left.id] = narrowed
