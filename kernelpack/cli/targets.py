"""The --target argument: given several times or with commas, and misspelt targets that name the nearest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from kernelpack import knobs
from kernelpack.backends.installed import backend_of, backends
from kernelpack.errors import TargetError
from kernelpack.nearest import did_you_mean
from kernelpack.target import Target


def add_target_argument(
    parser: argparse.ArgumentParser, *, default: str = "", required: bool = True, several: bool = True
) -> None:
    more = "; give it again, or write commas, for several" if several else ""
    parser.add_argument(
        "--target",
        action="append",
        required=required,
        metavar="TARGET",
        help=f"what to compile for, such as cpu:native or cuda:sm_90a{more}{default}",
    )


def parse_targets(texts: Iterable[str]) -> list[Target]:
    """Returns the targets, resolved. Raises TargetError with the nearest target that exists."""
    return [_parse(text.strip()) for group in texts for text in group.split(",")]


def tell_caveats(targets: Iterable[Target]) -> None:
    """Prints to stderr what people must know before they rely on code for targets."""
    for target in targets:
        if (said := backend_of(target).caveat(target)) is not None:
            print(f"note: {target}: {said}", file=sys.stderr)


def op_library_targets() -> list[Target]:
    """Returns the targets of the op library that kernelpack brings, as KERNELPACK_OP_TARGETS states them. Raises TargetError, with its
    name, for one that there is not."""
    stated = knobs.OP_TARGETS.get()
    if stated == "none":
        return []
    if stated == "native":
        return [backend.native_target() for backend in backends().values() if backend.devices()]
    try:
        return parse_targets(knobs.ALL_OP_TARGETS if stated == "all" else [stated])
    except TargetError as error:
        raise TargetError(
            f"{knobs.OP_TARGETS.name}={stated}: {error.message}",
            cure="set it to native, all, none, or targets separated by commas",
        ) from None


def _parse(text: str) -> Target:
    try:
        target = Target.parse(text)
        return backend_of(target).resolve_target(target)
    except TargetError as error:
        known = [one for name, backend in backends().items() for one in (f"{name}:native", *map(str, backend.targets()))]
        raise TargetError(f"{error.message}{did_you_mean(text, known)}", cure=error.cure) from None
