"""Writes an op for a recorded kernel, as a Python file to complete: its schema, variants and configs are what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import kernelpack.language as tl
from kernelpack.adopt import kernels
from kernelpack.adopt.records import Noted, Record
from kernelpack.errors import BuildError
from kernelpack.nearest import did_you_mean
from kernelpack.opgen.variants.read_only import written_parameters
from kernelpack.runtime import front_end
from kernelpack.runtime.specialization import CONSTEXPR

_NUMBERS = {"fp": "float", "bf": "float", "i1": "bool"}
_DTYPES = {value.name: f"tl.{name}" for name, value in reversed(list(vars(tl).items())) if type(value) is tl.dtype}
_TEXT = '''"""{name} of {module} as an op, for processes without Python. To complete: the host function.

Build: kernelpack build {name}.py --namespace my_ops --target cpu:native, with KERNELPACK_AS_TRITON=1 where {module} imports triton.
"""

import {module}

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.kernel.jit import jit_function

kernel = jit_function({module}.{kernel})


@kp.op(
    "{name}({schema}) -> ()",
    variants={variants},
    configs={configs},
)
def {name}({parameters}):
    """To complete: check shapes and strides, allocate what the op returns, compute sizes and strides from the tensors, and launch as many
    programs as the launcher of {module} does."""
    kernel[(1,)]({arguments})
'''


def op_text(record: Record, wanted: str) -> tuple[str, str]:
    """Returns the name of an op for a recorded kernel, named alone or with its module, and the text of its file. Raises BuildError for a
    kernel that was not recorded, is not here as it was, or takes what ops do not."""
    known = sorted({one.kernel for one in record.variants})
    noted = [one for one in record.variants if wanted in (one.kernel, one.name)]
    if len({one.kernel for one in noted}) != 1:
        several = sorted({one.kernel for one in noted})
        cure = f"name one of {', '.join(several)}" if several else f"recorded are {', '.join(known[:10])}"
        raise BuildError(f"the record has {len(several) or 'no'} kernels {wanted!r}{did_you_mean(wanted, known)}", cure=cure)
    source, options = kernels.source_of(noted[0])
    written = written_parameters(front_end.ttir_of(source.fn, source.specialization, options))
    rows = [_arguments(one) for one in noted]
    schema: list[str] = []
    parameters: list[str] = []
    arguments: list[str] = []
    variants: dict[str, list[str]] = {}
    fixed: dict[str, str] = {}
    for place, name in enumerate(source.fn.arg_names):
        kinds = list(dict.fromkeys(row[name][0] for row in rows))
        values = list(dict.fromkeys(row[name][1] for row in rows))
        is_constexpr = source.fn.params[place].is_constexpr
        if is_constexpr and len(values) == 1:
            fixed[name] = values[0]
            continue
        if set(kinds) == {"None"} and not is_constexpr:
            arguments.append("None")
            continue
        kind = next(kind for kind in kinds if kind != "None")
        if is_constexpr and kind not in ("int", "bool"):
            raise BuildError(
                f"{wanted}: {name} was {' and '.join(values)}", cure="record one of them alone, or write an op for each"
            )
        mark = "(a!)" if kind == "Tensor" and name in written else ""
        schema.append(
            f"{kind}{mark}{'?' if 'None' in kinds else ''} {name}".replace("(a!)", f"({chr(97 + len(schema) % 26)}!)")
        )
        parameters.append(name)
        arguments.append(f"{name}={name}" if is_constexpr else name)
        if kind == "Tensor":
            variants[name] = [value for value in values if value != "None"]
        elif is_constexpr:
            variants[name] = values
    configs = {one.said["backend"]: _config(fixed, one.said["options"]) for one in reversed(noted)}
    module, _, kernel = noted[0].kernel.partition(":")
    name = kernel.strip("_").lower()
    return name, _TEXT.format(
        name=name,
        module=module,
        kernel=kernel,
        schema=", ".join(schema),
        variants=_dictionary({key: f"[{', '.join(found)}]" for key, found in variants.items()}),
        configs=_dictionary(dict(sorted(configs.items()))),
        parameters=", ".join(parameters),
        arguments=", ".join(arguments),
    )


def _arguments(noted: Noted) -> dict[str, tuple[str, str]]:
    """Returns for each parameter how a schema calls its type, and the dtype or the value as text."""
    names: Sequence[str] = list(noted.said["signature"])
    constants = {names[path[0]]: value for path, value in noted.said["constants"] if len(path) == 1}
    found = {}
    for name, kind in noted.said["signature"].items():
        if kind == CONSTEXPR:
            found[name] = _of_value(noted, name, constants.get(name))
        elif isinstance(kind, str) and kind.startswith("*"):
            found[name] = ("Tensor", _DTYPES[kind.removeprefix("*k").removeprefix("*")])
        elif isinstance(kind, str) and not kind.startswith("tensordesc"):
            found[name] = (_NUMBERS.get(kind[:2], "int"), "")
        else:
            raise BuildError(f"{noted.kernel}: {name} is {kind}, which no argument of an op is", cure="write the op by hand")
    return found


def _of_value(noted: Noted, name: str, value: Any) -> tuple[str, str]:
    if isinstance(value, str) and value in _DTYPES:
        return "dtype", _DTYPES[value]
    if isinstance(value, Mapping) and set(value) == {"constexpr"}:
        return "str", repr(value["constexpr"])
    if value is None or isinstance(value, (bool, int, float, str)):
        return ("None" if value is None else type(value).__name__), repr(value)
    raise BuildError(f"{noted.kernel}: {name} is {value}, which no file says", cure="write the op by hand")


def _config(fixed: Mapping[str, str], options: Mapping[str, Any]) -> str:
    given = "".join(
        f", {name}={options[name]!r}" for name in ("num_warps", "num_stages", "num_ctas", "maxnreg") if name in options
    )
    return f"kp.Config({_dictionary(fixed)}{given})"


def _dictionary(found: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in found.items()) + "}"
