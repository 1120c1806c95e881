"""The launchers of backends in this process: kernelpack._C has its own, those of other packages are compiled once and added to it."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from kernelpack.backends.base import CSRC, Backend
from kernelpack.errors import LaunchError
from kernelpack.pack.native import native_library


def with_launcher(backend: Backend) -> Any:
    """Returns kernelpack._C, which launches kernels of a backend. Raises LaunchError if this installation has none, BuildError where the
    launcher of another package does not compile."""
    try:
        from kernelpack import _C
    except ImportError as problem:
        raise LaunchError(
            f"kernels cannot be launched from Python: {problem}",
            cure="build kernelpack._C: pip install --no-build-isolation ., or python setup.py build_ext --inplace in a checkout",
        ) from None
    if backend.name not in _C.launchers():
        with tempfile.TemporaryDirectory(prefix="kernelpack-") as work:
            _C.add_launcher(str(_library(backend, Path(work))))
    return _C


def _library(backend: Backend, work: Path) -> Path:
    """Returns a library whose function kernelpack_launcher returns the backend's launcher."""
    launcher = backend.launcher
    if launcher is None:
        raise LaunchError(f"kernels for {backend.name} are compiled, and nothing launches them")
    entry = work / "entry.cpp"
    entry.write_text(
        f'#include "{launcher.header.name}"\n\n'
        f'extern "C" const kernelpack::Launcher* kernelpack_launcher() {{\n  return &{launcher.variable};\n}}\n'
    )
    sources = [entry, *launcher.sources]
    folders = [CSRC, *dict.fromkeys(path.parent for path in (launcher.header, *launcher.sources))]
    headers = sorted({path for folder in folders for path in (*folder.glob("*.h"), *(CSRC / "kernels").glob("*.h"))})
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in [*sources, *headers])).hexdigest()
    options = [f"-I{folder}" for folder in folders]
    return native_library(f"launcher-{digest[:16]}.so", sources, options, work, f"the launcher of the backend {backend.name}")
