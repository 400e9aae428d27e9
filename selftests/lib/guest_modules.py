# SPDX-License-Identifier: GPL-2.0
"""Load and unload modules by system call, so that the errno is the kernel's."""

import ctypes
import os

SYS_DELETE_MODULE = 176
SYS_FINIT_MODULE = 313

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def load(path, parameters=""):
    """insmod"""
    fd = os.open(path, os.O_RDONLY)
    try:
        _check(_libc.syscall(SYS_FINIT_MODULE, fd, parameters.encode(), 0), path)
    finally:
        os.close(fd)


def unload(name):
    """rmmod; EWOULDBLOCK while the module is in use."""
    _check(_libc.syscall(SYS_DELETE_MODULE, name.encode(), os.O_NONBLOCK), name)
