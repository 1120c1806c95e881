"""gpu: what orders the threads of one program. Elsewhere programs have no threads, and it does nothing."""

from kernelpack.ir.dialect import Dialect, Effect, row

GPU = Dialect("gpu", [row("gpu.barrier", results=0, effects=[Effect.SYNCHRONISE], format="attr-dict")])
