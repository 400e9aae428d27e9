# SPDX-License-Identifier: GPL-2.0
"""Disks made inside a machine for one test."""

from __future__ import annotations

import itertools

from lab.selftest_case import SkipTest
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import guest_modules

# What every machine has (tools/lab/vm.py: standard_disks).
PLAIN = "/dev/vdb"
WITHOUT_DISCARD = "/dev/vdc"
LARGE_BLOCKS = "/dev/vdd"

_numbers = itertools.count(1)


def null_blk(t: Test, node: Node | None = None, **attributes: object) -> str:
    """A null_blk disk; ``size`` in MiB, ``memory_backed``, ``discard``, ``blocksize``..."""
    node = node or t.server
    name = f"nullb_test{next(_numbers)}"
    folder = f"/sys/kernel/config/nullb/{name}"
    settings = {"size": 64, "memory_backed": 1, "completion_nsec": 0, "irqmode": 0, "power": 1}
    power = settings.pop("power")
    settings.update(attributes)  # type: ignore[arg-type]
    lines = [f"echo {value} > {folder}/{key}" for key, value in settings.items()]
    node.run("set -e; modprobe null_blk nr_devices=0\n"
             "grep -q configfs /proc/mounts || mount -t configfs configfs /sys/kernel/config\n"
             f"mkdir {folder}\n" + "\n".join(lines) + f"\necho {power} > {folder}/power")
    t.defer(node.run, f"echo 0 > {folder}/power; rmdir {folder}")
    return f"/dev/{name}"


def scsi_debug(t: Test, node: Node | None = None, **parameters: object) -> str:
    """A scsi_debug disk; module parameters as keywords, e.g. ``lbpu=1``."""
    node = node or t.server
    if node.run("modinfo scsi_debug", check=False).rc != 0:
        raise SkipTest(f"kernel {node.release} has no module scsi_debug")
    settings = {"dev_size_mb": 32, "num_tgts": 1, "delay": 0, "no_uld": 0}
    settings.update(parameters)  # type: ignore[arg-type]
    node.run("modprobe sd_mod; modprobe scsi_debug "
             + " ".join(f"{key}={value}" for key, value in settings.items()))
    t.defer(node.run, "modprobe -r scsi_debug")
    pattern = "/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block"
    name = node.sh(f"for i in $(seq 200); do ls {pattern} 2>/dev/null && break; sleep 0.05; done")
    return f"/dev/{name.split()[-1]}"


def loop(t: Test, size_mib: int, node: Node | None = None, *, read_only: bool = False,
         block_size: int = 512) -> str:
    """A loop disk on a sparse file in memory."""
    node = node or t.server
    file = f"/tmp/loop{next(_numbers)}"
    name = node.sh(f"modprobe loop; truncate -s {size_mib}M {file} && "
                   f"losetup --find --show --sector-size {block_size} "
                   f"{'--read-only' if read_only else ''} {file}")
    t.defer(node.run, f"losetup -d {name}; rm -f {file}")
    return name


def can_exceed_page(node: Node) -> bool:
    """Whether a disk's logical blocks may be longer than a page; that takes huge pages."""
    return node.exists("/sys/kernel/mm/transparent_hugepage")


def resize_loop(t: Test, disk: str, size_mib: int, node: Node | None = None) -> None:
    """Grow or shrink a loop disk under its users."""
    (node or t.server).run(f"truncate -s {size_mib}M $(losetup -nO BACK-FILE {disk}) && "
                           f"losetup -c {disk}")


def holdable(t: Test, size_mib: int, disk: str, node: Node | None = None) -> str:
    """The start of a disk as one that :func:`hold` can stop."""
    node = node or t.server
    name = f"test{next(_numbers)}"
    node.run(f"modprobe dm_mod; dmsetup create --noudevsync {name} "
             f"--table '0 {size_mib * 2048} linear {disk} 0' && dmsetup mknodes {name}")
    t.defer(node.run, f"dmsetup remove --noudevsync --retry {name}")
    return f"/dev/mapper/{name}"


def half_holdable(t: Test, size_mib: int, disk: str) -> tuple[str, str]:
    """The start of a disk of the server, of which :func:`hold` can stop the first half: the whole, and that half."""
    half = holdable(t, size_mib // 2, disk)
    name = f"test{next(_numbers)}"
    sectors = size_mib * 1024
    t.server.run(f"printf '0 {sectors} linear {half} 0\\n{sectors} {sectors} linear {disk} {sectors}\\n' "
                 f"| dmsetup create --noudevsync {name} && dmsetup mknodes {name}")
    t.defer(t.server.run, f"dmsetup remove --noudevsync --retry {name}")
    return f"/dev/mapper/{name}", half


def hold(t: Test, disk: str, node: Node | None = None) -> None:
    """Have a holdable disk keep its requests until :func:`let_go`."""
    node = node or t.server
    node.run(f"dmsetup suspend --noflush --nolockfs --noudevsync {disk}")
    t.defer(node.run, f"dmsetup resume --noudevsync {disk}", check=False)


def let_go(t: Test, disk: str, node: Node | None = None) -> None:
    """Have a disk carry out what it held."""
    (node or t.server).run(f"dmsetup resume --noudevsync {disk}")


def erasable(t: Test, node: Node | None = None, *, max_erase_sectors: int = 2048, devices: int = 1) -> str:
    """A disk that can erase securely (selftests/modules/erasable_disk.c).

    Its second device, if there are two, is ``/dev/erasable1``.
    """
    node = node or t.server
    node.call(guest_modules.load, folder="/host/modules/test", names=["erasable_disk"],
              parameters={"erasable_disk": f"max_erase_sectors={max_erase_sectors} devices={devices}"})
    t.defer(node.module_unload, "erasable_disk")
    return "/dev/erasable"


def identify(t: Test, number: int, *, error: int = 0) -> None:
    """Give the server's erasable disk this EUI-64, or none with 0; with an errno it cannot be read."""
    parameters = "/sys/module/erasable_disk/parameters"
    t.server.write(f"{parameters}/id", str(number))
    t.server.write(f"{parameters}/id_error", str(-error))
