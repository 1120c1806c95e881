"""What tests of launches share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelpack.runtime import launcher


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Lists what is compiled, with a cache folder of the test's own."""
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    made: list[Any] = []
    original = launcher.compile_kernel

    def counting(fn: Any, special: Any, *how: Any) -> Any:
        made.append(special)
        return original(fn, special, *how)

    monkeypatch.setattr(launcher, "compile_kernel", counting)
    return made
