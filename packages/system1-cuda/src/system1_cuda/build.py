"""Compile the CUDA sources against the installed torch, once, and load them."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch

from system1_core.errors import PluginError

_log = logging.getLogger(__name__)
SOURCES = Path(__file__).parent / "csrc"
# What CI compiles for: Ampere (two), Ada, Hopper with its own instructions, Blackwell.
ARCHES = ("80", "86", "89", "90a", "100")
# Symbols of torch's stable ABI up to 2.10, so that one library serves every later torch.
_TORCH_TARGET = "0x020a000000000000"
_FLAGS = ("-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden", "--threads=0")
_COMPILE_LIMIT_S = 600


class KernelBuildError(PluginError):
    """The kernels could not be compiled or loaded; names the cause and the remedy."""


def build_kernels(
    arches: Sequence[str] | None = None, folder: Path | None = None, jobs: int | None = None
) -> Path:
    """The shared library for `arches` (default: this machine's devices), compiled if not cached.

    Cached by the sources, flags, torch, nvcc and arches in `folder` (default: `kernel_cache()`).
    Safe to run in several processes at once. Raises KernelBuildError.
    """
    nvcc = find_nvcc()
    arches = device_arches() if arches is None else sorted(set(arches))
    folder = kernel_cache() if folder is None else folder
    library = folder / f"system1_cuda-{_digest(nvcc, arches)}.so"
    if library.is_file():
        return library
    _log.info("compiling the CUDA kernels for %s into %s, once", ", ".join(arches), folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = _compile(nvcc, arches, Path(scratch), jobs)
        # Another process may have finished first; both built the same, and replacing is atomic.
        os.replace(built, library)
    return library


@cache
def load_kernels() -> None:
    """Make `torch.ops.system1` available, compiling if needed; raises KernelBuildError."""
    library = build_kernels()
    try:
        torch.ops.load_library(str(library))
    except (OSError, RuntimeError) as error:
        raise KernelBuildError(
            f"{library} does not load with torch {torch.__version__}: {error}; "
            "remove the file and start again"
        ) from error


def find_nvcc() -> Path:
    """CUDA's compiler: from CUDA_HOME, the PATH or the usual place; raises KernelBuildError."""
    home = os.environ.get("CUDA_HOME")
    places = [Path(home) / "bin" / "nvcc"] if home else []
    on_path = shutil.which("nvcc")
    places += [Path(on_path)] if on_path else []
    places.append(Path("/usr/local/cuda/bin/nvcc"))
    for place in places:
        if os.access(place, os.X_OK):
            return place
    raise KernelBuildError(
        "found no nvcc in CUDA_HOME, on the PATH or in /usr/local/cuda; install the CUDA toolkit "
        f"of torch's version (torch {torch.__version__} was built for {torch.version.cuda})"
    )


def device_arches() -> list[str]:
    """The arches of the visible devices; raises KernelBuildError if there is none."""
    if not torch.cuda.is_available():
        raise KernelBuildError("torch sees no CUDA device; name the arches to compile for")
    devices = range(torch.cuda.device_count())
    return sorted({arch_of(torch.cuda.get_device_capability(device)) for device in devices})


def arch_of(capability: tuple[int, int]) -> str:
    """nvcc's name of a device's architecture, with its own instructions where we use them."""
    major, minor = capability
    return "90a" if capability == (9, 0) else f"{major}{minor}"


def kernel_cache() -> Path:
    """Where compiled kernels are kept: below SYSTEM1_CACHE, or the user's cache folder."""
    if root := os.environ.get("SYSTEM1_CACHE"):
        return Path(root) / "kernels"
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "system1" / "kernels"


def _digest(nvcc: Path, arches: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    version = _run([str(nvcc), "--version"])
    for part in (*_FLAGS, _TORCH_TARGET, torch.__version__, version, *arches):
        digest.update(str(part).encode() + b"\0")
    return digest.hexdigest()[:20]


def _compile(nvcc: Path, arches: Sequence[str], scratch: Path, jobs: int | None) -> Path:
    torch_folder = Path(torch.__file__).parent
    generate = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in arches]
    common = [
        str(nvcc), *_FLAGS, f"-DTORCH_TARGET_VERSION={_TORCH_TARGET}",
        f"-I{torch_folder / 'include'}", *generate,
    ]  # fmt: skip

    def compile_one(source: Path) -> str:
        target = str(scratch / (source.name + ".o"))
        _run([*common, "-c", str(source), "-o", target])
        return target

    sources = sorted([*SOURCES.glob("*.cu"), *SOURCES.glob("*.cpp")])
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    library = scratch / "system1_cuda.so"
    # libtorch_cuda holds the current stream's symbol; a CPU build of torch, as CI has, lacks it.
    names = ["torch", "torch_cpu"]
    names += ["torch_cuda"] if (torch_folder / "lib" / "libtorch_cuda.so").exists() else []
    links = [f"-L{torch_folder / 'lib'}", *(f"-l{name}" for name in names)]
    _run([str(nvcc), "-shared", *objects, "-o", str(library), *links])
    return library


def _run(command: Sequence[str]) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelBuildError(f"{command[0]}: {error}; check the CUDA toolkit") from error
    if run.returncode:
        tail = "\n".join((run.stderr + run.stdout).strip().splitlines()[-20:])
        raise KernelBuildError(
            f"{' '.join(command)} failed with exit status {run.returncode}; a toolkit of CUDA "
            f"12.8 or newer with C++20 is needed:\n{tail}"
        )
    return run.stdout
