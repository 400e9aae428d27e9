# SPDX-License-Identifier: GPL-2.0
"""`lab bench --mixed`: our modules on one side and C's on the other, in one machine.

Two machines have no common clock of instructions, so both sides are in one, as
in the rest of the benchmark. Only the cores of both sets are in each other's
way, since they have the same name: C's gets another one.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from .bench_report import Measured
from .bench_report import ratio
from .bench_systems import RENAMED_CORE

CORE = "rtrs_core"
CLIENT = ("rtrs_client", "rnbd_client")
SERVER = ("rtrs_server", "rnbd_server")
# By the mode of the server, the pair that the others are compared to first.
GROUPS = {"Y": ("c", "ours-c", "c-ours", "ours"),
          "N": ("c-trusting", "ours-c-trusting", "c-ours-trusting", "ours-trusting")}
NAMES = {"c": "C, C", "ours-c": "ours, C", "c-ours": "C, ours", "ours": "ours, ours"}

_SECTION = struct.Struct("<IIQQQQIIQQ")


def sections(image: bytes) -> dict[str, tuple[int, int]]:
    """Where each section of a 64-bit ELF file is: offset and size."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a little-endian 64-bit ELF file")
    table, = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3c)
    headers = [_SECTION.unpack_from(image, table + index * _SECTION.size) for index in range(count)]
    strings = headers[names][4]
    return {image[strings + header[0]:image.index(b"\0", strings + header[0])].decode():
            (header[4], header[5]) for header in headers}


def renamed(image: bytes, old: str, new: str) -> bytes:
    """A kernel module with another name of the same length."""
    if len(old) != len(new):
        raise ValueError(f"{new} is not as long as {old}")
    changed = bytearray(image)
    found = sections(image)
    for name, prefix in ((".gnu.linkonce.this_module", b""), (".modinfo", b"name=")):
        offset, size = found[name]
        place = image.find(prefix + old.encode() + b"\0", offset, offset + size)
        if place < 0:
            raise ValueError(f"no {old} in {name}")
        place += len(prefix)
        changed[place:place + len(new)] = new.encode()
    return bytes(changed)


def _file(folder: Path, name: str) -> Path:
    """A module's file, whichever way its name is written."""
    wanted = {f"{name}.ko", f"{name.replace('_', '-')}.ko"}
    return next(path for path in sorted(folder.rglob("*.ko")) if path.name in wanted)


def stage(folder: Path, ours: Path, theirs: Path) -> dict[str, Path]:
    """Make the module sets ``ours-c`` and ``c-ours`` (client, server) in a folder."""
    made = {}
    for name, client, server in (("ours-c", ours, theirs), ("c-ours", theirs, ours)):
        target = made[name] = folder / name
        target.mkdir()
        for module in CLIENT:
            shutil.copy(_file(client, module), target / f"{module}.ko")
        for module in SERVER:
            shutil.copy(_file(server, module), target / f"{module}.ko")
        shutil.copy(_file(ours, CORE), target / f"{CORE}.ko")
        (target / f"{RENAMED_CORE}.ko").write_bytes(
            renamed(_file(theirs, CORE).read_bytes(), CORE, RENAMED_CORE))
    return made


def systems() -> list[str]:
    """What is measured, by the names of `bench_systems`."""
    return [name for group in GROUPS.values() for name in group]


def table(found: list[Measured]) -> str:
    """A table for each machine; ratios of IOPS to C with C in the same mode of the server."""
    lines = []
    for machine in sorted({(one.rdma_mtu, one.cpus, one.devices) for one in found}):
        lines.append("RDMA MTU {}, {} CPU(s), {} device(s)".format(*machine))
        lines.append(f"{'job':<20}{'mode':<5}{'client, server':<16}{'IOPS':>7}{'over C':>8}"
                     f"{'instr/IO':>10}{'pkt':>6}{'own client':>12}{'own server':>12}")
        here = [one for one in found if (one.rdma_mtu, one.cpus, one.devices) == machine]
        for job in sorted({one.job for one in here}):
            for mode, group in GROUPS.items():
                for one in sorted((one for one in here if one.job == job and one.system in group),
                                  key=lambda one: group.index(one.system)):
                    over = ratio(here, one, group[0])
                    name = f"{one.rw} {one.size >> 10}K qd{one.depth}"
                    pair = NAMES[one.system.removesuffix("-trusting")]
                    lines.append(
                        f"{name:<20}{mode:<5}{pair:<16}{one.iops:>7.0f}"
                        + (f"{over:>8.3f}" if over else f"{'':>8}")
                        + f"{one.instructions_per_io:>10.0f}{one.packets_per_io:>6.1f}"
                        f"{sum(one.modules.get(module, 0) for module in CLIENT):>12.0f}"
                        f"{sum(one.modules.get(module, 0) for module in SERVER):>12.0f}")
        lines.append("")
    return "\n".join(lines)


def spread(runs: list[list[Measured]]) -> float:
    """The largest difference of a figure between runs of the same, as a part of it."""
    figures: dict[tuple[object, ...], list[float]] = {}
    for run in runs:
        for one in run:
            figures.setdefault((one.system, one.job), []).append(one.iops)
    return max((max(values) / min(values) - 1 for values in figures.values()), default=0.0)


__all__ = ("renamed", "sections", "spread", "stage", "systems", "table")
