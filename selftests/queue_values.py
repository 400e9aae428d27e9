# SPDX-License-Identifier: GPL-2.0
"""What a disk tells about itself, beside what the C client tells of the same server disk."""

from __future__ import annotations

from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"

BESIDE_QUEUE = ("size", "ro", "range", "ext_range", "removable", "hidden", "alignment_offset",
                "discard_alignment", "capability", "events")
# Our client keeps one of the server's chunks for messages that are no IO; C's shares them all.
ONE_LESS = ("queue/nr_requests", "queue/async_depth")


def values(t: Test, device: Device) -> dict[str, str]:
    """Every value of the request queue and of the disk."""
    folder = f"/sys/block/{device.name}"
    names = [f"queue/{name}" for name in t.client.listdir(f"{folder}/queue")
             if name not in ("iosched", "independent_access_ranges")]
    names += [name for name in BESIDE_QUEUE if t.client.exists(f"{folder}/{name}")]
    return t.client.call(guest_io.texts, paths=[f"{folder}/{name}" for name in names])


def table(t: Test, mapped: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """The values of each disk, mapped by the modules that are loaded."""
    seen = {}
    for disk, options in mapped:
        device = rnbd.map_device(t, disk, **options)
        for path, text in values(t, device).items():
            seen[f"{disk} {options or ''} {path.split('/', 4)[4]}"] = text
        device.unmap()
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    return seen


@case(module_sets=("ours",), timeout=180, quick=())
def test_same_as_c(t: Test) -> None:
    """Every value is the one that the C modules show, but for the number of requests and the cache."""
    t.defer(rnbd.use_set, t.client, t.modules)
    mapped: list[tuple[str, dict[str, Any]]] = [
        (disks.PLAIN, {}), (disks.WITHOUT_DISCARD, {}), (disks.LARGE_BLOCKS, {}),
        (disks.PLAIN, {"access_mode": "ro"}), (disks.PLAIN, {"nr_poll_queues": 1}),
        (disks.null_blk(t, discard=1, cache_size=4, fua=1), {}),
        (disks.scsi_debug(t, sector_size=512, physblk_exp=3, lbpu=1, unmap_granularity=16,
                          unmap_alignment=8), {})]
    tables = []
    for name in ("ours", "c"):
        rnbd.use_set(t.client, name)
        rnbd.load(t)
        tables.append(table(t, mapped))
    ours, theirs = tables
    for name in theirs:
        if name.endswith(ONE_LESS):
            theirs[name] = f"{int(theirs[name]) - 1}\n"
        # Our client always offers a write cache (flush_fua.no_cache).
        if name.endswith("queue/write_cache"):
            theirs[name] = "write back\n"
        if name.endswith("queue/fua"):
            theirs[name] = "1\n"
    # The C client has no time for requests, so its disks do not have that file.
    for name in [name for name in ours if name.endswith("queue/io_timeout")]:
        t.equal(ours.pop(name), "30000\n", name)
    t.check(len(ours) > 200, f"only {len(ours)} values were read")
    different = [f"{name}: {ours.get(name)!r}, C {theirs.get(name)!r}"
                 for name in sorted(set(ours) | set(theirs)) if ours.get(name) != theirs.get(name)]
    t.check(not different, "values that differ:\n" + "\n".join(different))


@case(module_sets=("ours",))
def test_hardware_queues(t: Test) -> None:
    """Each CPU has the hardware queue of its number, whose requests go by the connection of that
    number, whatever caches the CPUs share; queues for polling are dealt out in turn."""
    rnbd.load(t)
    cpus = t.client.sh("nproc --all").strip()
    for poll_queues in (0, 1):
        device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=poll_queues,
                                 session=f"polled{poll_queues}")
        folder = f"/sys/block/{device.name}/mq"
        queues = {name: t.client.read(f"{folder}/{name}/cpu_list")
                  for name in t.client.listdir(folder)}
        everyone = ", ".join(str(cpu) for cpu in range(int(cpus)))
        wanted = {str(cpu): str(cpu) for cpu in range(int(cpus))}
        wanted |= {cpus: everyone} if poll_queues else {}
        t.equal(queues, wanted, f"CPUs of the hardware queues, nr_poll_queues={poll_queues}")
        device.unmap()
