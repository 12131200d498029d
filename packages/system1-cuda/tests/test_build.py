"""Every kernel compiles and links for every arch, is cached, and says what is missing."""

import inspect
import os
import subprocess
import sys

import pytest
import torch

import system1_cuda.build as build
from system1_cuda.build import ARCHES, KernelBuildError, arch_of, build_kernels, find_nvcc
from system1_cuda.offered import OPS


def has_nvcc():
    try:
        return bool(find_nvcc())
    except KernelBuildError:
        return False


needs_nvcc = pytest.mark.skipif(not has_nvcc(), reason="needs nvcc")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build_kernels(ARCHES, tmp_path_factory.mktemp("kernels"))


@needs_nvcc
def test_all_kernels_compile_and_link_for_every_arch(library):
    assert library.stat().st_size > 100_000
    assert [path.name for path in library.parent.iterdir()] == [library.name]


@needs_nvcc
def test_a_second_build_is_found_in_the_cache(library):
    written = library.stat().st_mtime_ns
    assert build_kernels(reversed(ARCHES), library.parent) == library
    assert library.stat().st_mtime_ns == written


@needs_nvcc
def test_changed_sources_and_arches_are_other_libraries(tmp_path, monkeypatch):
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "one.cu").write_text("int one() { return 1; }\n")
    monkeypatch.setattr(build, "SOURCES", sources)
    first = build_kernels(["80"], tmp_path / "cache")
    assert build_kernels(["90a"], tmp_path / "cache") != first
    (sources / "one.cu").write_text("int one() { return 2; }\n")
    assert build_kernels(["80"], tmp_path / "cache") != first


@needs_nvcc
def test_a_source_that_does_not_compile_shows_the_compilers_words(tmp_path, monkeypatch):
    (tmp_path / "one.cu").write_text("int one() { return nothing; }\n")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    with pytest.raises(KernelBuildError, match='identifier "nothing" is undefined'):
        build_kernels(["80"], tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


# Made of torch's own operators, or in Triton.
WITHOUT_OPERATOR = {
    "gated_tree_attention",
    "image_attention",
    "linear",
    "linear_gelu",
    "log_sum_exp",
    "quantised_linear",
    "tune_linear",
}
TAPS = ("weights", "first", "bits")
LIST_SCHEMAS = """
import ctypes, sys, torch
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
torch.ops.load_library(sys.argv[2])
for name in sys.argv[3:]:
    schema = getattr(torch.ops.system1, name).default._schema
    print(name, ",".join(argument.name for argument in schema.arguments))
"""


@needs_nvcc
@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build has the symbol")
def test_operators_have_their_references_names_and_arguments(library, tmp_path):
    # A CPU build of torch lacks the one symbol of CUDA builds; nothing calls it here.
    (tmp_path / "stub.c").write_text("int aoti_torch_get_current_cuda_stream(void) { return 1; }\n")
    stub = tmp_path / "stub.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "stub.c", "-o", stub], check=True)
    kernels = [name for name in OPS if name not in WITHOUT_OPERATOR]
    command = [sys.executable, "-c", LIST_SCHEMAS, stub, library, *kernels]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = dict(line.split() for line in run.stdout.splitlines())
    expected = {name: ",".join(inspect.signature(OPS[name]).parameters) for name in kernels}
    # Of a tree the kernel takes one table.
    expected["delta_inputs"] = expected["delta_inputs"].replace("tree", "history")
    tree = "cu_seqlens,parent_index,chunks,chunk_starts,slices,stages,groups"
    expected["tree_delta_rule"] = expected["tree_delta_rule"].replace("tree", tree)
    # Of a resize it takes the tables.
    tables = ",".join(f"{way}_{part}" for way in ("across", "down") for part in TAPS)
    expected["image_patches"] = expected["image_patches"].replace("rows,columns", tables)
    assert found == expected


@needs_nvcc
def test_warpgroup_products_of_the_delta_rule_do_not_wait_for_one_another(tmp_path):
    """What ptxas cannot prove safe it serialises, and says so: right, but slow."""
    source = build.SOURCES / "tree_delta_carry.cu"
    command = [find_nvcc(), "-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a"]
    command += ["-c", source, "-o", tmp_path / "carry.o"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    said = run.stdout + run.stderr
    assert "wgmma" not in said
    assert "warpgroup" not in said


def test_without_nvcc_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(KernelBuildError, match="install the CUDA toolkit"):
        find_nvcc()


def test_without_a_device_the_arches_must_be_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KernelBuildError, match="name the arches"):
        build.device_arches()


@pytest.mark.parametrize(
    ("capability", "arch"), [((8, 0), "80"), ((8, 9), "89"), ((9, 0), "90a"), ((10, 0), "100")]
)
def test_hopper_gets_its_own_instructions(capability, arch):
    assert arch_of(capability) == arch
    assert arch in ARCHES


def test_the_cache_folder_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("SYSTEM1_CACHE", str(tmp_path))
    assert build.kernel_cache() == tmp_path / "kernels"
    monkeypatch.delenv("SYSTEM1_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.kernel_cache() == tmp_path / "system1" / "kernels"
