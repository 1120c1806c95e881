"""kernelpack._C, from csrc/python/module.cpp."""

from collections.abc import Sequence
from typing import Any

class LoadedKernel:
    def __init__(
        self,
        *,
        backend: str,
        name: str,
        entry: str,
        target: str,
        image: int | str,
        image_size: int,
        types: Sequence[str],
        num_warps: int,
        num_ctas: int,
        shared_memory: int,
        program_ns: float,
        tensor_maps: str = "",
        launch_pdl: bool = False,
    ) -> None: ...
    def launch(self, device: int, stream: int, grid: tuple[int, int, int], values: Sequence[Any]) -> None: ...
