"""Changes of a kernel's syntax tree, each of a kind that a person may make by mistake."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

_OPERATORS: tuple[type[ast.operator], ...] = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor,
)  # fmt: skip
_COMPARISONS: tuple[type[ast.cmpop], ...] = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CONSTANTS: tuple[int | float, ...] = (
    0,
    1,
    -1,
    2,
    3,
    4,
    8,
    16,
    32,
    64,
    -7,
    100,
    2**31,
    2**31 - 1,
    -(2**31),
    2**40,
    0.0,
    0.5,
    -1.5,
)
_DTYPES = (
    "int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
_ALIKE = (
    ("exp", "exp2", "log", "log2", "abs", "sqrt", "rsqrt", "sin", "cos", "floor", "ceil", "sigmoid", "erf", "sqrt_rn"),
    ("maximum", "minimum", "fdiv", "div_rn", "cdiv", "umulhi", "interleave", "join"),
    ("sum", "max", "min", "argmax", "argmin", "xor_sum", "cumsum", "cumprod", "sort", "softmax", "flip", "reduce_or"),
    ("atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_and", "atomic_or", "atomic_xor"),
    ("where", "fma", "clamp"),
    ("reduce", "associative_scan"),
    ("range", "static_range"),
    ("trans", "ravel", "zeros_like"),
    ("program_id", "num_programs"),
)
"""Functions of the language that take the same arguments."""


@dataclass(frozen=True)
class Place:
    """Where a node stands in the tree: in a field of its owner, or in the list that the field holds."""

    owner: ast.AST
    field: str
    index: int | None

    @property
    def node(self) -> ast.AST:
        held = getattr(self.owner, self.field)
        node: ast.AST = held if self.index is None else held[self.index]
        return node

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.index] = node


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [statement for statement in tree.body if isinstance(statement, ast.FunctionDef)]


def _places(tree: ast.Module, kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> list[Place]:
    """Returns the places of the nodes of a kind in the functions' bodies: no decorators, defaults, annotations."""

    def within(owner: ast.AST, fields: tuple[str, ...]) -> Iterator[Place]:
        for field in fields:
            held = getattr(owner, field, None)
            for index, node in enumerate(held) if isinstance(held, list) else [(None, held)]:
                if isinstance(node, ast.AST):
                    yield Place(owner, field, index)
                    inner = () if isinstance(node, ast.arguments) else node._fields
                    yield from within(
                        node, tuple(name for name in inner if name not in ("annotation", "decorator_list", "ctx"))
                    )

    return [place for function in _functions(tree) for place in within(function, ("body",)) if isinstance(place.node, kind)]


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """Returns the lists of statements: bodies and branches."""
    found = []
    for function in _functions(tree):
        for node in ast.walk(function):
            found += [held for field in ("body", "orelse") if isinstance(held := getattr(node, field, None), list) and held]
    return found


def _statements(tree: ast.Module) -> list[tuple[list[ast.stmt], int]]:
    return [(block, index) for block in _blocks(tree) for index in range(len(block)) if not _is_docstring(block[index])]


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _function_of(tree: ast.Module, node: ast.AST) -> ast.FunctionDef:
    return next(function for function in _functions(tree) if any(inner is node for inner in ast.walk(function)))


def _copy(node: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(node)).body[0]


def mild(random: Random) -> bool:
    """Whether a change is kept to what mostly compiles: refusals teach less than results."""
    return random.random() < 0.75


_PLACED = (
    "arange",
    "store",
    "load",
    "make_block_ptr",
    "make_tensor_descriptor",
    "range",
    "static_range",
    "reshape",
    "full",
    "reduce",
)
"""Functions whose arguments are of different kinds."""


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_address(place: Place) -> bool:
    """Whether an expression may be one of pointers: it adds to a parameter or variable, and is no product or load."""
    return isinstance(place.node, ast.BinOp) and isinstance(place.node.op, ast.Add)


# -- kinds: each changes the tree in place, and returns whether it found a place for itself --------------------------------------


def _operator(tree: ast.Module, random: Random) -> bool:
    places = _places(tree, (ast.BinOp, ast.AugAssign))
    if not places:
        return False
    node = random.choice(places).node
    assert isinstance(node, (ast.BinOp, ast.AugAssign))
    node.op = random.choice([kind for kind in _OPERATORS if not isinstance(node.op, kind)])()
    return True


def _comparison(tree: ast.Module, random: Random) -> bool:
    nodes = [place.node for place in _places(tree, ast.Compare)]
    if not nodes:
        return False
    node = random.choice(nodes)
    assert isinstance(node, ast.Compare)
    node.ops[0] = random.choice([kind for kind in _COMPARISONS if not isinstance(node.ops[0], kind)])()
    return True


def _constant(tree: ast.Module, random: Random) -> bool:
    places = [
        place
        for place in _places(tree, ast.Constant)
        if isinstance(place.node, ast.Constant) and isinstance(place.node.value, (int, float))
    ]
    if not places:
        return False
    if mild(random):  # shapes and axes fit nothing else
        places = [place for place in places if isinstance(place.owner, (ast.BinOp, ast.Compare, ast.AugAssign))] or places
    place = random.choice(places)
    assert isinstance(place.node, ast.Constant)
    value = place.node.value
    near = (value + 1, value * 2, -value, float(value)) if random.random() < 0.4 else _CONSTANTS
    place.put(ast.Constant(random.choice(near)))
    return True


def _drop(tree: ast.Module, random: Random) -> bool:
    statements = _statements(tree)
    if mild(random):  # what nothing needs to be defined by
        statements = [
            (block, at) for block, at in statements if not isinstance(block[at], (ast.Assign, ast.Return))
        ] or statements
    block, index = random.choice(statements)
    block[index] = ast.Pass()
    return True


def _repeat(tree: ast.Module, random: Random) -> bool:
    block, index = random.choice(_statements(tree))
    block.insert(random.randint(index, len(block)), _copy(block[index]))
    return True


def _arguments(tree: ast.Module, random: Random) -> bool:
    nodes = [place.node for place in _places(tree, ast.Call)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and len(node.args) > 1]
    if mild(random):
        calls = [call for call in calls if _called(call) not in _PLACED]
    if not calls:
        return False
    call = random.choice(calls)
    first, second = random.sample(range(len(call.args)), 2)
    call.args[first], call.args[second] = call.args[second], call.args[first]
    return True


def _keyword(tree: ast.Module, random: Random) -> bool:
    calls = [place.node for place in _places(tree, ast.Call)]
    calls = [call for call in calls if isinstance(call, ast.Call) and call.keywords]
    if not calls:
        return False
    call = random.choice(calls)
    assert isinstance(call, ast.Call)
    del call.keywords[random.randrange(len(call.keywords))]
    return True


def _name(tree: ast.Module, random: Random) -> bool:
    """Replaces a variable that is read by another one of the same function."""
    places = [place for place in _places(tree, ast.Name) if isinstance(getattr(place.node, "ctx", None), ast.Load)]
    places = [place for place in places if getattr(place.node, "id", "") not in ("tl", "kp")]
    is_mild = mild(random)
    if is_mild:
        places = [place for place in places if isinstance(place.owner, (ast.BinOp, ast.Compare))]
    if not places:
        return False
    place = random.choice(places)
    function = _function_of(tree, place.node)
    given = {argument.arg for argument in function.args.args}
    made = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    replaced = getattr(place.node, "id", "")
    names = given | made
    if is_mild and names > {replaced}:  # a parameter in place of one, as pointers are; else a variable
        names = (given if replaced in given else made) - {replaced} or names
    names -= {replaced}
    if not names:
        return False
    place.put(ast.Name(random.choice(sorted(names)), ast.Load()))
    return True


def _function(tree: ast.Module, random: Random) -> bool:
    nodes = [place.node for place in _places(tree, ast.Attribute)]
    found = [(node, group) for node in nodes for group in _ALIKE if isinstance(node, ast.Attribute) and node.attr in group]
    if not found:
        return False
    node, group = random.choice(found)
    assert isinstance(node, ast.Attribute)
    node.attr = random.choice([name for name in group if name != node.attr])
    return True


def _dtype(tree: ast.Module, random: Random) -> bool:
    """Names another type; or converts something that is computed."""
    nodes = [place.node for place in _places(tree, ast.Attribute)]
    named = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in _DTYPES]
    if named and random.random() < 0.5:
        random.choice(named).attr = random.choice(_DTYPES)
        return True
    places = [place for place in _places(tree, (ast.BinOp, ast.Call)) if not isinstance(place.owner, (ast.Expr, ast.For))]
    if mild(random):  # what has elements to convert: no pointers
        places = [place for place in places if isinstance(place.owner, (ast.Assign, ast.BinOp)) and not _is_address(place)]
    if not places:
        return False
    place = random.choice(places)
    assert isinstance(place.node, ast.expr)
    kind = ast.Attribute(ast.Name("tl", ast.Load()), random.choice(_DTYPES), ast.Load())
    place.put(ast.Call(ast.Attribute(place.node, "to", ast.Load()), [kind], []))
    return True


def _condition(tree: ast.Module, random: Random) -> bool:
    """Negates a condition, exchanges the branches of tl.where, or guards a statement by a comparison."""
    places = [Place(place.node, "test", None) for place in _places(tree, (ast.If, ast.While, ast.IfExp))]
    places += _places(tree, ast.Compare)
    if not places:
        return False
    place = random.choice(places)
    assert isinstance(place.node, ast.expr)
    place.put(ast.UnaryOp(ast.Not(), place.node))
    return True


def _bound(tree: ast.Module, random: Random) -> bool:
    loops = [place.node for place in _places(tree, ast.For)]
    calls = [loop.iter for loop in loops if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and loop.iter.args]
    if not calls:
        return False
    call = random.choice(calls)
    at = random.randrange(len(call.args))
    bound = call.args[at]
    call.args[at] = random.choice(
        (
            ast.BinOp(bound, ast.Add(), ast.Constant(1)),
            ast.BinOp(bound, ast.Sub(), ast.Constant(1)),
            ast.BinOp(bound, ast.Mult(), ast.Constant(2)),
            ast.UnaryOp(ast.USub(), bound),
            ast.Constant(random.choice((0, 1, 2, 5))),
        )
    )
    return True


def _move(tree: ast.Module, random: Random) -> bool:
    """Moves a statement into a branch or loop beside it, out of one, or to another place of its block."""
    statements = _statements(tree)
    if mild(random):  # what others read stays where it is
        statements = [
            (block, at) for block, at in statements if not isinstance(block[at], (ast.Assign, ast.Return))
        ] or statements
    block, index = random.choice(statements)
    inner = [
        held
        for other in block
        for field in ("body", "orelse")
        if other is not block[index] and isinstance(held := getattr(other, field, None), list) and held
    ]
    outer = [held for held in _blocks(tree) if any(block is getattr(other, "body", None) for other in held)]
    statement = block[index]
    block[index] = ast.Pass()
    target = random.choice([block, *inner, *inner, *outer])
    target.insert(random.randint(0, len(target)), statement)
    return True


KINDS: dict[str, Callable[[ast.Module, Random], bool]] = {
    "operator": _operator,
    "comparison": _comparison,
    "constant": _constant,
    "drop": _drop,
    "repeat": _repeat,
    "arguments": _arguments,
    "keyword": _keyword,
    "name": _name,
    "function": _function,
    "dtype": _dtype,
    "condition": _condition,
    "bound": _bound,
    "move": _move,
}


def mutate(tree: ast.Module, random: Random) -> list[str]:
    """Makes one to three changes in place, and returns their kinds."""
    kinds: list[str] = []
    for _ in range(random.choice((1, 1, 1, 1, 2, 2, 3))):
        kind = random.choice([*KINDS])
        while not KINDS[kind](tree, random):
            kind = random.choice([*KINDS])
        kinds.append(kind)
    return kinds
