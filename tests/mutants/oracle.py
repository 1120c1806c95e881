"""Runs a mutant by the interpreter and natively, and says what came of it: both agree, both refuse, or something is wrong.

The interpreter runs first, and ttir as the front end made it. What it stops is not run natively: an access outside of the arguments,
and more than STEPS operations. A mutant may depend on what the language leaves open (choices.py). So it is interpreted a second time with
other choices: one that is stopped then is undefined. Where native results differ from the interpreter's, more choices are tried: what
they move so far may differ. Programs run one after the other in one thread, in the interpreter's order: races have one result. What
kernels promise (tl.multiple_of and the like) is dropped, since mutants do not keep it. Products are not fused with sums.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernelpack.compiler.stages import compile_ttir, optimise_ttir
from kernelpack.dtypes import DTYPES
from kernelpack.errors import KernelpackError, LaunchError, MemoryAccessError, RunTimeAssertionFailure, StepLimitError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Operation
from kernelpack.ir.formats import Array
from kernelpack.ir.interpret import launch
from kernelpack.ir.types import element_of, is_float
from kernelpack.kernel.jit import JITFunction
from kernelpack.options import Options
from kernelpack.target import Target
from tests.backends.cpu.kernels import levels_here, loaded_object
from tests.mutants.choices import INEXACT, other_choices
from tests.mutants.mutant import Mutant
from tests.mutants.seeds import Draw

EQUAL, REFUSED, MEMORY, LONG, UNDEFINED = OUTCOMES = ("equal", "both refused", "memory error", "too long", "undefined")
STEPS = 20_000
CHOICES = range(2, 26)
"""What is tried where results differ."""
ROOM = 16
"""How much further than other choices move a result it may be off: rounding errors of another order than those that were tried."""
MOST = 1e-2
"""A result that other choices move by a larger share than this is undefined."""
_PROMISES = ("tt.divisibility", "tt.contiguity", "tt.constancy")


class Finding(Exception):
    """What is wrong with how a mutant was compiled or run."""


def judge(mutant: Mutant, folder: Path) -> str:
    """Returns what came of a mutant. Raises Finding where the two sides disagree, or one fails by an error from inside."""
    torch.set_num_threads(1)  # programs in order
    kernel, path = mutant.load(folder)
    seed, options = mutant.seed, Options(enable_fp_fusion=False, debug=kernel_debug(mutant))
    try:
        module = _ttir(kernel, mutant, options)
    except KernelpackError as refusal:
        _check_place(refusal, path)
        return REFUSED
    except Exception as problem:
        raise Finding(f"the front end fails: {_shown(problem)}") from problem
    inexact = any(op.name in INEXACT and any(is_float(element_of(each.type)) for each in op.results) for op in module.walk())
    expected, failure = _memory(mutant), None
    try:
        launch(module, seed.grid, expected, steps=STEPS)
    except StepLimitError:
        return LONG
    except MemoryAccessError as stop:
        _check_place(stop, path)
        return MEMORY
    except RunTimeAssertionFailure as refusal:
        _check_place(refusal, path)
        failure = refusal
    except LaunchError as stop:
        _check_place(stop, path)
        return UNDEFINED
    except Exception as problem:
        raise Finding(f"the interpreter fails: {_shown(problem)}") from problem
    if _otherwise(module, mutant, 1, failure) is None:
        return UNDEFINED
    again = _ttir(kernel, mutant, options)
    actual = _memory(mutant)
    levels = levels_here()
    level = levels[mutant.number % len(levels)]
    try:
        native = loaded_object(compile_ttir(optimise_ttir(again), Target.parse(f"cpu:{level}"), options))
        native.launch((*seed.grid, 1, 1)[:3], actual)
    except RunTimeAssertionFailure as refusal:
        _check_place(refusal, path)
        if failure is None:
            raise Finding(f"only the native kernel fails: {refusal}") from refusal
        return REFUSED
    except KernelpackError as refusal:
        raise Finding(f"only the backend refuses: {refusal}") from refusal
    except Exception as problem:
        raise Finding(f"the backend fails: {_shown(problem)}") from problem
    if failure is not None:
        raise Finding(f"only the interpreter fails: {failure}")
    wrong = [_wrong(ours, theirs, inexact) for ours, theirs in zip(_values(actual), _values(expected), strict=True)]
    if not any(bad.any() for bad in wrong):
        return EQUAL
    moved = [np.zeros(len(values)) for values in _values(expected)]
    for number in CHOICES:
        other = _otherwise(module, mutant, number, None)
        if other is None:
            return UNDEFINED
        moved = [np.maximum(far, _moved(a, b)) for far, a, b in zip(moved, other, _values(expected), strict=True)]
    for name, bad, far, ours, theirs in zip(
        _tensor_names(kernel, mutant), wrong, moved, _values(actual), _values(expected), strict=True
    ):
        left = bad & (_distance(ours, theirs) > ROOM * far)
        if left.any():
            at = int(np.argmax(left))
            raise Finding(
                f"{name} on {level}: {int(left.sum())} of {len(left)} elements differ; number {at} is {ours[at]}, "
                f"by the interpreter {theirs[at]}"
            )
    return UNDEFINED


def kernel_debug(mutant: Mutant) -> bool:
    """Whether a mutant's assertions are compiled."""
    return "debug=True" in mutant.after


def _ttir(kernel: JITFunction, mutant: Mutant, options: Options) -> Operation:
    signature = {}
    names = [name for name in kernel.arg_names if name not in mutant.seed.constexprs]
    for name, value in zip(names, _memory(mutant), strict=True):
        if isinstance(value, torch.Tensor):
            signature[name] = "*" + DTYPES[str(value.dtype).removeprefix("torch.")].language
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    module = ast_to_ttir(kernel, signature, mutant.seed.constexprs, options=options)
    for op in module.walk():
        for promise in _PROMISES:
            op.attributes.pop(promise, None)
    return module


def _otherwise(module: Operation, mutant: Mutant, number: int, failure: LaunchError | None) -> list[Array] | None:
    """Returns what the arguments hold after other choices; None where the interpreter stops then, or no longer stops."""
    arguments = _memory(mutant)
    try:
        with other_choices(number):
            launch(module, mutant.seed.grid, arguments, steps=2 * STEPS)
    except RunTimeAssertionFailure:
        return None if failure is None else _values(arguments)
    except LaunchError:
        return None
    return None if failure is not None else _values(arguments)


def _memory(mutant: Mutant) -> list[Any]:
    return mutant.seed.arguments(Draw(mutant.salted))


def _tensor_names(kernel: JITFunction, mutant: Mutant) -> list[str]:
    names = [name for name in kernel.arg_names if name not in mutant.seed.constexprs]
    return [name for name, value in zip(names, _memory(mutant), strict=True) if isinstance(value, torch.Tensor)]


def _values(arguments: Sequence[Any]) -> list[Array]:
    """Returns all of the memory that tensors lie in, floats as float64."""
    found = []
    for value in arguments:
        if isinstance(value, torch.Tensor):
            whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
            found.append((whole.double() if value.is_floating_point() else whole).numpy())
    return found


def _distance(ours: Array, theirs: Array) -> Array:
    """Returns how far results are from each other: infinitely where one alone is NaN, or where integers differ."""
    if ours.dtype != np.float64:
        return np.where(ours == theirs, 0.0, np.inf)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(all="ignore"):
        far = np.abs(ours - theirs)
    return np.where(same, 0.0, np.where(np.isnan(far), np.inf, far))


def _moved(other: Array, theirs: Array) -> Array:
    """Returns how far other choices move results: infinitely where a large share of them."""
    far = _distance(other, theirs)
    with np.errstate(all="ignore"):
        return np.where(far > MOST * np.abs(theirs), np.inf, far) if theirs.dtype == np.float64 else far


def _wrong(ours: Array, theirs: Array, inexact: bool) -> Array:
    """Returns which results differ; in kernels with sums and elementary functions, by more than their rounding."""
    far = _distance(ours, theirs)
    if not inexact or ours.dtype != np.float64:
        return far > 0
    with np.errstate(all="ignore"):
        return (far > 0) & ~(far <= 2e-5 + 2e-5 * np.abs(theirs))


def _check_place(problem: KernelpackError, path: Path) -> None:
    """Raises Finding for an error of the project's that does not say which line of the mutant it is about."""
    file = path.name if isinstance(problem, RunTimeAssertionFailure) else str(path)  # assertions leave the folder out
    if not re.search(re.escape(file) + ":[1-9]", str(problem)):
        raise Finding(f"{type(problem).__name__} names no line of the mutant: {problem}")


def _shown(problem: Exception) -> str:
    frame = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__}: {problem} ({frame.filename.rpartition('kernelpack/')[2]}:{frame.lineno})"
