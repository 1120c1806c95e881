"""kernelpack cache: what the cache holds, and a lock by which others may load it."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from kernelpack import knobs
from kernelpack.cli.terminal import Style, count, size
from kernelpack.errors import BuildError, UntrustedFileError
from kernelpack.files import generated
from kernelpack.files.cache import CacheFolder
from kernelpack.files.lock import lock_text
from kernelpack.files.whole import write_whole

PURPOSE = "say what the cache of compiled kernels holds and which of its files are refused, or write its lock"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="write the SHA-256 of each file of the cache to FILE; a user who owns a copy of FILE, and sets KERNELPACK_CACHE_LOCK to "
        "it, may load these files from a cache that somebody else owns",
    )


def run(arguments: argparse.Namespace) -> int:
    folder = knobs.cache_dir()
    if folder is None:
        raise BuildError(f"there is no cache: {knobs.CACHE.name}=0", cure=f"unset {knobs.CACHE.name}")
    cache = CacheFolder(folder)
    found: dict[str, bytes] = {}
    refused: list[UntrustedFileError] = []
    for name in cache.names():
        try:
            path = cache.find(name)
            found |= {} if path is None else {name: path.read_bytes()}
        except UntrustedFileError as problem:
            refused.append(problem)
    if arguments.lock is not None:
        if refused:
            raise refused[0]
        file = arguments.lock.parent.resolve() / arguments.lock.name
        generated.check(file)
        text = lock_text({name: hashlib.sha256(data).hexdigest() for name, data in found.items()})
        write_whole(file, text.encode(), shared=False)
    record = {
        "folder": cache.root,
        "files": len(found),
        "bytes": sum(map(len, found.values())),
        "refused": [problem.message for problem in refused],
        "lock": None if arguments.lock is None else str(arguments.lock),
    }
    print(json.dumps(record, indent=1) if arguments.json else _text(record, refused))
    return 1 if refused else 0


def _text(record: dict[str, Any], refused: list[UntrustedFileError]) -> str:
    style = Style(sys.stdout)
    lines = [f"{style.bold(record['folder'])}: {count(record['files'], 'file')}, {size(record['bytes'])}"]
    if record["lock"] is not None:
        lines.append(
            f"{style.green('locked')}: a user who owns a copy of {record['lock']}, and sets KERNELPACK_CACHE_LOCK to it, may load them"
        )
    if refused:
        lines.append(f"{style.yellow('refused')}: {count(len(refused), 'file')} that others can have written")
        lines += [f"  {line}" for line in str(refused[0]).splitlines()]
    return "\n".join(lines)
