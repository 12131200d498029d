"""The pixels of a decoded picture where torch can read them, and a digest of them."""

from __future__ import annotations

import ctypes
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

# Bytes hashed in one go: a thread's share, large enough to be worth the hop.
_PIECE = 2**20
_MAX_HASHERS = 8
# Bytes of a picture that Pillow surely holds in one block; its blocks are of 16 MiB.
_BAND = 15 * 2**20


class _ArrowArray(ctypes.Structure):
    """The Arrow C data interface's array, as far as it is read here."""


_ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
]

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def pixels_of(image: Image.Image, *, is_kept: bool = False) -> Tensor:
    """Pixels [H, W, 4] uint8 of an RGB picture; the fourth value has no meaning.

    Without `is_kept` they may be the picture's own memory: write nothing there. With it they are
    a copy, in pinned memory where there is a CUDA device.
    """
    width, height = image.size
    step = max(1, _BAND // (width * 4))
    if height <= step and not is_kept:
        return _shared_pixels(image)
    is_pinned = is_kept and torch.cuda.is_available()
    pixels = torch.empty(height, width, 4, dtype=torch.uint8, pin_memory=is_pinned)
    for top in range(0, height, step):
        rows = pixels[top : top + step]
        whole = rows.shape[0] == height
        rows.copy_(_shared_pixels(image if whole else image.crop((0, top, width, top + len(rows)))))
    return pixels


def _shared_pixels(image: Image.Image) -> Tensor:
    """The memory [H, W, 4] of a picture of one block, or a copy where Pillow does not show it.

    Pillow's own copy takes 6 to 8 ms for 1920 x 1080 (one core of a Xeon), as long as decoding a
    JPEG file of that size.
    """
    shape = image.height, image.width, 4
    try:
        _, capsule = image.__arrow_c_array__()
    except (AttributeError, ValueError, MemoryError):
        # An older Pillow, or one with smaller blocks.
        capsule = None
    if capsule is None or image.width * 4 % Image.core.get_alignment():
        content = bytearray(image.tobytes("raw", "RGBX"))
        return torch.frombuffer(content, dtype=torch.uint8).view(shape)
    array = _ArrowArray.from_address(_capsule_pointer(capsule, b"arrow_array"))
    values = array.children[0].contents
    buffer = (ctypes.c_uint8 * (shape[0] * shape[1] * 4)).from_address(values.buffers[1])
    # Whoever holds the tensor holds the buffer, and that the picture's memory.
    buffer.owner = capsule
    return torch.frombuffer(buffer, dtype=torch.uint8).view(shape)


def digest_of(name: bytes, values: Tensor) -> bytes:
    """SHA-256 over a name and contiguous uint8 values; long ones by pieces on several threads."""
    content = memoryview(np.ascontiguousarray(values.numpy()).reshape(-1))
    pieces = [content[start : start + _PIECE] for start in range(0, len(content), _PIECE)]
    whole = hashlib.sha256(name)
    if len(pieces) <= 2:
        for piece in pieces:
            whole.update(piece)
    else:
        for digest in _hashers().map(_sha256, pieces):
            whole.update(digest)
    return whole.digest()


def _sha256(piece: memoryview) -> bytes:
    return hashlib.sha256(piece).digest()


@cache
def _hashers() -> ThreadPoolExecutor:
    """Threads of their own: those who decode wait for these, and these for nobody."""
    return ThreadPoolExecutor(min(_MAX_HASHERS, os.cpu_count() or 1), "hash")
