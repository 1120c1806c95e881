"""The demo's language model: saved, served by the C++ program, and held to Python's texts; its speed beside torch's and llama.cpp's."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from tokenizers import Tokenizer

from serving_examples.language_model.build import BuildFailed, build_server, missing
from serving_examples.language_model.export import export, metadata, save_aoti
from serving_examples.language_model.generate import generate
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.model import Llama
from serving_examples.language_model.tokens import chat, model_file, tokenizer_of
from serving_examples.language_model.torch_model import TorchModel
from serving_examples.steps import WIDTH, print_table, timed, verdict

PROMPTS = ("Why is the sky blue?", "Name three primary colours.", "Write one sentence about the sea.")
TOKENS = 48
"""Of an answer, at most."""
ROOT = Path(__file__).parents[2]
LLAMA = ROOT / "benchmarks" / "llama_peer.py"


def show(library: Path, folder: Path) -> bool:
    """Serves three prompts from C++; returns whether the answers are Python's. Prints the cure where something is not installed."""
    absent = missing()
    for package in absent:
        print(f"  {package} is not installed; to fix: apt-get install {package}")
    try:
        file = File(model_file())
    except FileNotFoundError as error:
        print(f"  {error}")
        return False
    model, package = Llama(file, "int8"), folder / "smollm2.int8.pt2"
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build_server, folder / "server")
        with timed("AOTInductor: smollm2.int8.pt2; at once g++ of the server"), torch.no_grad():
            save_aoti(export(model), package, metadata(model, "cpu"))
            try:
                program = building.result()
            except BuildFailed as error:
                print(f"  the server was not built: {error}")
                return False
    options = {"--model": model_file(), "--package": package, "--library": library}
    command = [str(program), *(str(part) for option in options.items() for part in option)]
    asked = [part for prompt in PROMPTS for part in ("--prompt", prompt)]
    done = subprocess.run([*command, "--max-tokens", str(TOKENS), *asked], capture_output=True, text=True)
    for line in (done.stdout + done.stderr).splitlines():
        print(textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="  "))
    tokenizer = tokenizer_of(file)
    with torch.inference_mode():
        texts = [_said(generate(model, [chat(tokenizer, prompt)], TOKENS)[0], tokenizer) for prompt in PROMPTS]
        agree = done.returncode == 0 and all(text in done.stdout for text in texts)
        agree = verdict(agree, "the answers are those of the same model in Python", "Python answers otherwise")
        _show_speed(done.stdout, TorchModel(file), chat(tokenizer, PROMPTS[0]))
    if not absent:
        print("  To chat in a browser:")
        print(f"    {' '.join(command).replace(f'{ROOT}/', '')}")
    return agree


def _said(tokens: list[int], tokenizer: Tokenizer) -> str:
    """Returns the text of tokens up to the one that ends it."""
    end = tokenizer.token_to_id("<|im_end|>")
    return str(tokenizer.decode(tokens[: tokens.index(end)] if end in tokens else tokens))


def _show_speed(said: str, exact: TorchModel, prompt: list[int]) -> None:
    """Prints tokens a second: the server's for its last answer, torch's in float32, and llama.cpp's where it is installed."""
    rows = [["kernelpack, int8", re.findall(r"(\d+) tokens/s", said)[-1]]] if "tokens/s" in said else []
    _, past = exact(prompt)
    start = time.perf_counter()
    for _ in range(8):
        _, past = exact([17], past)
    rows.append(["torch, float32", f"{8 / (time.perf_counter() - start):.1f}"])
    if importlib.util.find_spec("llama_cpp") is not None and LLAMA.exists():
        measured = json.dumps({"read": 40, "write": 32, "threads": torch.get_num_threads()})
        peer = subprocess.run(
            [sys.executable, str(LLAMA), str(model_file())], input=measured + "\n", capture_output=True, text=True
        )
        rows.append(["llama.cpp, the same file", f"{32 / float(peer.stdout):.1f}"])
    print_table(["one sequence", "tokens/s"], rows)
