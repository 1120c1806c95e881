"""Asks one engine of vLLM everything that the checks compare, and writes the answers as JSON. Runs in vLLM's environment."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from tests.engines.vllm.prompts import PROMPTS

SAMPLED = 4096
BEGINNING = "The"
"""What samples continue: one token, since each sample reads it anew."""
TEMPERATURE = 1.5
FILTERS: dict[str, dict[str, float]] = {"top_k": {"top_k": 20}, "top_p": {"top_p": 0.8}, "min_p": {"min_p": 0.02}}
LIMITS: dict[str, dict[str, Any]] = {
    "logit_bias": {"logit_bias": {260: 4.0, 253: -8.0}},
    "allowed_token_ids": {"allowed_token_ids": list(range(200, 1200))},
    "min_tokens": {"min_tokens": 40},
    "penalties": {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    "logprobs": {"logprobs": 5},
    "structured output": {"structured_outputs": {"regex": r'\{"answer": "[A-Za-z ]{4,40}", "sure": (true|false)\}'}},
}
ENGINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "compiled": {"enforce_eager": False},
    "two-processes": {"tensor_parallel_size": 2},
    "pressed": {"max_model_len": 512, "max_num_batched_tokens": 64, "block_size": 32, "num_gpu_blocks_override": 32},
    "drafted": {
        "block_size": 32,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3},
    },
}
"""Settings of engines. Pressed: prompts are read in parts of 64 tokens at most, and memory lasts for a few requests at once."""
COUNTERS: dict[str, tuple[str, ...]] = {
    "pressed": ("num_preemptions",),
    "drafted": ("spec_decode_num_accepted_tokens", "prefix_cache_hits"),
}
"""What must have happened in an engine; otherwise its texts say nothing."""


def greedy(engine: Any, prompts: list[str], tokens: int, **more: Any) -> list[dict[str, Any]]:
    """Returns for each prompt the tokens, and of each the two likeliest with their logits' distance."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    if "structured_outputs" in more:
        more["structured_outputs"] = StructuredOutputsParams(**more["structured_outputs"])
    chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
    params = SamplingParams(temperature=0, max_tokens=tokens, **{"logprobs": 2, **more})
    answers = [found.outputs[0] for found in engine.chat(chats, params, use_tqdm=False)]
    return [
        {
            "text": answer.text,
            "tokens": list(answer.token_ids),
            "likeliest": [sorted((each.logprob for each in entry.values()), reverse=True)[:2] for entry in answer.logprobs],
        }
        for answer in answers
    ]


def sampled(engine: Any, **filters: float) -> dict[int, int]:
    """Returns how often each token came first in SAMPLED continuations."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=TEMPERATURE, max_tokens=1, n=SAMPLED // 64, **filters)
    counts: dict[int, int] = {}
    for found in engine.generate([BEGINNING] * 64, params, use_tqdm=False):
        for answer in found.outputs:
            counts[answer.token_ids[0]] = counts.get(answer.token_ids[0], 0) + 1
    return counts


def first_logprobs(engine: Any) -> list[float]:
    """Returns the log-probability of every token as the first of the continuation that `sampled` draws."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=1, logprobs=-1)
    found = engine.generate([BEGINNING], params, use_tqdm=False)[0].outputs[0].logprobs[0]
    return [found[token].logprob for token in range(len(found))]


def counted(engine: Any, names: tuple[str, ...]) -> dict[str, int]:
    """Returns the engine's own counts."""
    return {metric.name: metric.value for metric in engine.get_metrics() if metric.name.removeprefix("vllm:") in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ask", nargs="+", choices=("greedy", "limits", "first", "sampled"), default=["greedy"])
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--engine", choices=ENGINES, default="plain")
    args = parser.parse_args()
    started = time.perf_counter()
    from vllm import LLM

    settings = {"max_model_len": 2048, "max_num_seqs": 64, "max_logprobs": -1, "enforce_eager": True, **ENGINES[args.engine]}
    counters = COUNTERS.get(args.engine, ())
    engine = LLM(args.model, dtype="bfloat16", disable_log_stats=not counters, **settings)
    ready = time.perf_counter() - started
    answers: dict[str, Any] = {
        "v2": bool(engine.llm_engine.vllm_config.use_v2_model_runner),
        "seconds to start": ready,
    }
    if "greedy" in args.ask:
        for _ in range(2 if "prefix_cache_hits" in counters else 1):  # the second time prompts are in the cache
            answers["greedy"] = greedy(engine, list(PROMPTS[: args.prompts]), 64)
    if "limits" in args.ask:
        answers["limits"] = {name: greedy(engine, list(PROMPTS[:3]), 48, **limit) for name, limit in LIMITS.items()}
    if "first" in args.ask:
        answers["first"] = first_logprobs(engine)
    if "sampled" in args.ask:
        answers["sampled"] = {name: sampled(engine, **filters) for name, filters in FILTERS.items()}
    if counters:
        answers["counted"] = counted(engine, counters)
    args.out.write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
