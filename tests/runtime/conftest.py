"""What tests of launches share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelpack import knobs
from kernelpack.runtime import compile


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Lists what is compiled, with a cache folder of the test's own."""
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    made: list[Any] = []
    original = compile.compile_kernel

    def counting(fn: Any, special: Any, *how: Any) -> Any:
        made.append(special)
        return original(fn, special, *how)

    monkeypatch.setattr(compile, "compile_kernel", counting)
    return made


@pytest.fixture
def switches() -> Iterator[Any]:
    """Returns kernelpack.knobs, whose switches are put back."""
    with knobs.runtime.scope(), knobs.compilation.scope(), knobs.autotuning.scope():
        yield knobs
