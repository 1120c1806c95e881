"""gpu: what orders the threads of one program, and launches. Elsewhere programs have no threads, launches end before the next
begins, and it does nothing."""

from kernelpack.ir.dialect import Dialect, Effect, row

GPU = Dialect(
    "gpu",
    [
        row("gpu.barrier", results=0, effects=[Effect.SYNCHRONISE], format="attr-dict"),
        # waits until the launches that this one depends on have ended, and sees what they wrote
        row("gpu.gdc_wait", results=0, effects=[Effect.READ_GLOBAL, Effect.WRITE_GLOBAL, Effect.OTHER], format="attr-dict"),
        # lets the launches that depend on this one begin
        row("gpu.gdc_launch_dependents", results=0, effects=[Effect.OTHER], format="attr-dict"),
    ],
)
