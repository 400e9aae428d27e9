# SPDX-License-Identifier: GPL-2.0
"""After a test: undo what it forgot, and say what it left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

# Folders that are empty when nothing is mapped and no session exists.
EMPTY = (
    "/sys/class/rnbd-client/ctl/devices",
    "/sys/class/rtrs-client",
    "/sys/class/rnbd-server/ctl/devices",
    "/sys/class/rtrs-server",
)
# Modules whose users, other than files and mappings, are none.
TOP_MODULES = ("rnbd_client", "rnbd_server")


def _names(path: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if name != "ctl")
    except FileNotFoundError:
        return []


def _references() -> Iterator[str]:
    for module in TOP_MODULES:
        try:
            with open(f"/sys/module/{module}/refcnt", encoding="ascii") as file:
                count = int(file.read())
        except FileNotFoundError:
            continue
        if count:
            yield f"{count} references to module {module}"


def _present() -> Iterator[str]:
    for folder in EMPTY:
        for name in _names(folder):
            yield f"{folder}/{name}"
    yield from _references()


def _mounts() -> list[str]:
    with open("/proc/self/mounts", encoding="ascii") as mounts:
        return [line.split()[1] for line in mounts if line.split()[1].startswith("/mnt/")]


def tidy(patience: float) -> list[str]:
    """Returns descriptions of what was there although the test was over."""
    left = []
    for mount in reversed(_mounts()):
        left.append(f"mount {mount}")
        subprocess.run(["umount", "-l", mount], check=False)
    for disk in [name for name in os.listdir("/sys/block") if name.startswith("rnbd")]:
        left.append(f"disk {disk}")
        try:
            with open(f"/sys/block/{disk}/rnbd/unmap_device", "w", encoding="ascii") as file:
                file.write("force")
        except OSError as error:
            left.append(f"disk {disk} cannot be unmapped: {error.strerror}")
    # Sessions close after the unmap has returned.
    deadline = time.monotonic() + patience
    while (present := list(_present())) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left + present
