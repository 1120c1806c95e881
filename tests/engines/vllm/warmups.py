"""Adopts what vLLM's warm-up classes declare, and launches from it: their kernels are recorded without a launch.

python -m tests.engines.vllm.warmups    ends with 1 where a warm-up or a launch finds its kernel not adopted, or gives a wrong result
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.engines.environment import ROOT, python
from tests.engines.vllm.adopted import adopt
from tests.engines.vllm.environment import VLLM, variables

DECLARED = """
import sys
from types import SimpleNamespace

import torch
from vllm.model_executor.warmup.jit_warmup import JitWarmupRegistry
from vllm.v1.attention.ops import common
from vllm.v1.sample import rejection_sampler
from vllm.v1.sample.ops import topk_topp_triton
from vllm.v1.worker import block_table

torch.manual_seed(0)
config = SimpleNamespace(
    scheduler_config=SimpleNamespace(max_num_seqs=8),
    num_speculative_tokens=2,
    model_config=SimpleNamespace(get_vocab_size=lambda: 49152),
)
registry = JitWarmupRegistry(config)
with registry.activate():
    common._PACK_SEQ_TRITON_KERNEL.register_warmup(dtype=torch.bfloat16, pad_value=0.0)
    common._UNPACK_SEQ_TRITON_KERNEL.register_warmup()
    block_table._COMPUTE_SLOT_MAPPING_KERNEL.register_warmup(
        kv_cache_block_size=16, total_cp_world_size=1, total_cp_rank=0, cp_kv_cache_interleave_size=1, block_table_stride=128
    )
    topk_topp_triton._topk_topp.register_warmup()
    rejection_sampler._rejection_greedy_sample.register_warmup(synthetic_mode=False)
    rejection_sampler._expand.register_warmup()
registry.warmup()

if "launch" in sys.argv:
    x, lengths = torch.randn(7, 96, dtype=torch.bfloat16), torch.tensor([3, 4], dtype=torch.int32)
    packed = common.pack_seq_triton(x, lengths, 0.0)
    assert torch.equal(packed[0, :3], x[:3]) and torch.equal(packed[1, :4], x[3:])
    logits = torch.randn(3, 49152)
    best = logits.topk(5).indices
    kept = topk_topp_triton.apply_top_k_top_p_triton(logits.clone(), torch.full((3,), 5, dtype=torch.int32), None) > -torch.inf
    assert torch.equal(kept.nonzero()[:, 1].view(3, 5), best.sort().values)
    print("launched")
"""


def declared(folder: Path, *words: str, **more: str) -> str:
    """Runs the warm-ups in vLLM's environment, and with `launch` some of their kernels. Returns what that said."""
    command = [python(folder), "-c", DECLARED, *words]
    done = subprocess.run(command, cwd=ROOT, env=variables(folder, "v2") | more, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the warm-ups ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    VLLM.add_folder(parser)
    folder: Path = parser.parse_args().folder
    VLLM.set_up(folder)
    record, packs = folder / "warmups.jsonl", folder / "warmups"
    record.unlink(missing_ok=True)
    declared(folder, KERNELPACK_TRACE=str(record))
    adopt(folder, record, packs)
    said = declared(folder, "launch", KERNELPACK_PACKS=str(packs), KERNELPACK_MISS="error", KERNELPACK_CACHE="0")
    count = sum(json.loads(line)["backend"] == "cpu" for line in record.read_text().splitlines())
    print(f"{count} declared variants were adopted, warmed up and {said.strip()}")


if __name__ == "__main__":
    main()
