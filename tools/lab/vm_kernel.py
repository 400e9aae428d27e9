# SPDX-License-Identifier: GPL-2.0
"""A kernel image that boots without decompressing itself.

An emulated processor takes seconds to unpack a bzImage. QEMU starts the ELF
file inside as well, by its PVH entry, so the host unpacks it once.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

from . import cache

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def payload(image: bytes) -> bytes:
    """The compressed kernel in a bzImage (x86 boot protocol 2.08), b"" if there is none."""
    if len(image) < 0x250 or image[0x202:0x206] != b"HdrS":
        return b""
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    return image[start:start + length]


def unpack(data: bytes) -> bytes:
    """Zstandard data whose unpacked size is in its last four bytes, as Linux appends it."""
    zstd = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_decompress", "ZSTD_findFrameCompressedSize"):
        getattr(zstd, name).restype = ctypes.c_size_t
    size = struct.unpack("<I", data[-4:])[0]
    output = ctypes.create_string_buffer(size)
    frame = zstd.ZSTD_findFrameCompressedSize(data, ctypes.c_size_t(len(data) - 4))
    got = zstd.ZSTD_decompress(output, ctypes.c_size_t(size), data, ctypes.c_size_t(frame))
    return output.raw if got == size else b""


def quick_to_boot(vmlinuz: Path) -> Path:
    """The unpacked kernel from the cache, made at first use; ``vmlinuz`` if it cannot be."""
    stat = vmlinuz.stat()
    target = cache.artifact("vmlinux", path=str(vmlinuz), size=stat.st_size, time=stat.st_mtime_ns)
    if not target.is_complete():
        packed = payload(vmlinuz.read_bytes())
        if not packed.startswith(ZSTD_MAGIC):
            return vmlinuz
        try:
            kernel = unpack(packed)
        except OSError:
            return vmlinuz
        if not kernel.startswith(b"\x7fELF"):
            return vmlinuz
        with cache.lock(f"vmlinux-{target.key}"), cache.building(target) as (folder, _facts):
            (folder / "vmlinux").write_bytes(kernel)
    target.touch()
    return target.path / "vmlinux"
