# SPDX-License-Identifier: GPL-2.0
"""Load and unload modules by system call, so that the errno is the kernel's."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable

# Each architecture has its own numbers.
SYS_DELETE_MODULE, SYS_FINIT_MODULE = {"x86_64": (176, 313), "aarch64": (106, 273)}[os.uname().machine]

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def find(folder: str, name: str) -> str:
    """A module's file; the C modules name theirs with dashes."""
    for file in (f"{folder}/{name}.ko", f"{folder}/{name.replace('_', '-')}.ko"):
        if os.path.exists(file):
            return file
    raise FileNotFoundError(errno.ENOENT, "no such module", f"{folder}/{name}.ko")


def load(folder: str, names: Iterable[str], parameters: dict[str, str]) -> None:
    """insmod each that is not loaded, with its own parameters."""
    for name in names:
        if os.path.exists(f"/sys/module/{name}"):
            continue
        path = find(folder, name)
        fd = os.open(path, os.O_RDONLY)
        try:
            text = parameters.get(name, "").encode()
            _check(_libc.syscall(SYS_FINIT_MODULE, fd, text, 0), path)
        finally:
            os.close(fd)


def unload(names: Iterable[str]) -> None:
    """rmmod each that is loaded, in this order; EWOULDBLOCK while one is in use."""
    for name in names:
        if os.path.exists(f"/sys/module/{name}"):
            _check(_libc.syscall(SYS_DELETE_MODULE, name.encode(), os.O_NONBLOCK), name)
