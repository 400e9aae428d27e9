# SPDX-License-Identifier: GPL-2.0
"""Image files of the server, for tests of files as disks."""

from __future__ import annotations

from typing import Any

from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import policy
from lib import rnbd
from lib.rnbd import Device

MIB = 1 << 20
SIZE = 64 * MIB
MAKE = {"ext4": "mkfs.ext4 -q -F", "xfs": "mkfs.xfs -q -f"}


def load(t: Test, **parameters: Any) -> None:
    """The modules, and an export policy by which the server gives all disks and files."""
    rnbd.load(t, **parameters)
    policy.allow(t)


def file_system(t: Test, kind: str = "ext4", disk: str = disks.PLAIN, options: str = "") -> str:
    """An empty file system on a disk of the server, mounted until the test is over; its folder."""
    folder = f"/mnt/{kind}{disk.replace('/', '-')}"
    t.server.run(f"set -e; {MAKE[kind]} {options} {disk}; mkdir -p {folder}\n"
                 f"modprobe -q {kind} || :; mount -t {kind} {disk} {folder}", timeout=120)
    t.defer(t.server.run, f"set -e; ! mountpoint -q {folder} || umount {folder}; [ ! -d {folder} ] || rmdir {folder}")
    return folder


def sparse(t: Test, folder: str, size: int = SIZE, name: str = "disk.img") -> str:
    """A sparse file."""
    path = f"{folder}/{name}"
    t.server.run(f"truncate -s {size} {path}")
    return path


def used(t: Test, path: str) -> int:
    """The space that a file takes, in bytes."""
    return 512 * int(t.server.sh(f"sync {path}; stat -c %b {path}"))


def exported(path: str) -> str:
    """The directory of a file that is mapped."""
    return f"{rnbd.SERVER_DEVICES}/{path.replace('/', '!')}"


def written(t: Test, device: Device, image_path: str, length: int = MIB, seed: int = 1) -> None:
    """What is written to a device is read from it, and is in the file."""
    rnbd.works(t, device, length, seed)
    t.intact(t.server.call(guest_io.compare, path=image_path, offset=0, length=length, seed=seed),
             None, "first wrong byte of the file")
