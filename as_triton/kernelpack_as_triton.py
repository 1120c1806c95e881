"""Runs when Python starts, if KERNELPACK_AS_TRITON is on: `import triton` then means kernelpack, which is not imported before that."""

import os
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location

FINDER = "kernelpack.as_triton.finder"


def begin() -> None:
    """Puts kernelpack's finder before all others. Raises ImportError where kernelpack is not installed."""
    if FINDER in sys.modules:
        return
    home = find_spec("kernelpack")
    if home is None or not home.submodule_search_locations:
        raise ImportError(
            "KERNELPACK_AS_TRITON is on, but kernelpack is not installed\n  to fix: pip install kernelpack, or unset it"
        )
    spec = spec_from_file_location(FINDER, os.path.join(home.submodule_search_locations[0], "as_triton", "finder.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[FINDER] = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.meta_path.insert(0, module.FINDER)
