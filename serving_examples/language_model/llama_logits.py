"""llama.cpp's logits for texts: `python llama_logits.py MODEL FOLDER` reads FOLDER/texts.json and writes FOLDER/0.npy, 1.npy, ...

Runs where llama-cpp-python is, which need not be where kernelpack is.
"""

import json
import sys
from pathlib import Path

import numpy
from llama_cpp import Llama

texts = json.loads((Path(sys.argv[2]) / "texts.json").read_text())
longest = max(map(len, texts))
model = Llama(sys.argv[1], n_ctx=longest, n_batch=longest, n_threads=1, n_threads_batch=1, logits_all=True, verbose=False)
for number, text in enumerate(texts):
    model.reset()
    model.eval(text)
    numpy.save(Path(sys.argv[2]) / f"{number}.npy", model.scores[: len(text)])
