# SPDX-License-Identifier: GPL-2.0
"""The server's memory for sessions: how much it is, where it comes from, and when there is none."""

from __future__ import annotations

import errno
import re

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import disks
from lib import guest_io
from lib import guest_memory
from lib import memory
from lib import rnbd
from lib.memory import MIB

TOPOLOGY = "two"
POOL = "/sys/module/rtrs_server/chunk_pool"


def session_file(t: Test, name: str, session: str = "sess") -> int:
    """A number of a session's folder."""
    return int(t.server.read(f"{rnbd.SERVER_SESSIONS}/{session}/{name}"))


def pool(t: Test, name: str) -> int:
    """A number of the pool's folder."""
    return int(t.server.read(f"{POOL}/{name}"))


# Chunks, their size, and the most that soft-RoCE's queues take for two connections and the service
# connection. C's take 2840 and 936 KiB, with completion queues that are shared and stay for ever:
# another 2 MiB for every other session. With 2048 its send queues are too long for the device.
LAYOUTS = [(512, 131072, 1280), (64, 1 << 20, 512), (2048, 8192, 3584)]


def queues_end(t: Test, loaded: int) -> None:
    """Wait until the server has no more queues than ``loaded``."""
    wait_until(lambda: memory.queues(t.server) <= loaded, 10, "the queues' end")


@case(timeout=180, kernels=("stock",), quick=())
def test_size(t: Test) -> None:
    """A session takes queue depth times chunk size, 2 % more to describe it, and short queues."""
    for depth, size, queues_kib in LAYOUTS[:None if t.modules == "ours" else 2]:
        rnbd.load(t, rtrs_server=f"sess_queue_depth={depth} max_chunk_size={size}")
        # What is loaded with the first session stays.
        loaded = memory.queues(t.server)
        rnbd.map_device(t, disks.PLAIN, keep=True).unmap()
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
        if t.modules == "ours":
            queues_end(t, loaded)
        before, queues = memory.available(t.server), memory.queues(t.server)
        device = rnbd.map_device(t, disks.PLAIN, keep=True)
        really = before - memory.available(t.server)
        queues = memory.queues(t.server) - queues
        if t.modules == "ours":
            taken = session_file(t, "memory_bytes")
            t.check(depth * size <= taken <= depth * size * 1.02,
                    f"memory_bytes is {taken}, for {depth} chunks of {size}")
            t.check(0 < queues <= queues_kib << 10,
                    f"queues take {queues >> 10} KiB, with {depth} chunks")
        t.say(f"{depth} chunks of {size}: {depth * size >> 10} KiB; the machine has "
              f"{really >> 10} KiB less, {queues >> 10} KiB of it for the device's queues")
        t.check(really >= depth * size * 0.95, f"MemAvailable is only {really} less")
        device.unmap()
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
        memory.wait_returned(t.server, before, 2 * MIB, "after the session")


@case(module_sets=("ours",), kernels=("stock",), quick=())
def test_fragmented(t: Test) -> None:
    """A session comes about although no two free pages lie side by side, also with whole blocks from
    the pool, where the description of the chunks is the only thing that needs any."""
    memory.take(t, t.server, 128 * MIB)
    for parameters in ("sess_queue_depth=128",
                       "sess_queue_depth=2048 max_chunk_size=8192 chunk_pool_mb=16"):
        rnbd.load(t, rtrs_server=parameters)
        # Every other page of a part of a large file is given back.
        t.server.call(guest_memory.punch, path=f"{memory.BALLAST}/file", keep=1, free=1,
                      length=64 * MIB)
        device = rnbd.map_device(t, disks.PLAIN, keep=True)
        t.client.call(guest_io.write, path=device.path, offset=0, length=MIB, seed=1)
        t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=1),
                 None, "first wrong byte")
        device.unmap()
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)


@case(module_sets=("ours",), kernels=("stock",), quick=())
def test_short(t: Test) -> None:
    """Without memory for another session its client gets ENOMEM, and the others go on."""
    rnbd.load(t, rtrs_server="sess_queue_depth=2048")
    first = rnbd.map_device(t, disks.PLAIN, session="first")
    memory.take(t, t.server, 160 * MIB)
    before = memory.available(t.server)
    for _ in range(3):
        mark = t.server.log_mark()
        with t.expect_errno(errno.ENOMEM):
            rnbd.map_device(t, disks.WITHOUT_DISCARD, session="second")
        said = t.server.log_since(mark)
        t.check(any("262144 KiB" in line for line in said), f"no message says why: {said}")
        t.check(not any(re.search("oom|Killed", line) for line in said), f"killed: {said}")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), ["first"], "sessions of the client")
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), ["first"], "sessions of the server")
    memory.wait_returned(t.server, before, 2 * MIB, "after the refusals")
    t.client.call(guest_io.write, path=first.path, offset=0, length=MIB, seed=1)
    t.intact(t.client.call(guest_io.compare, path=first.path, offset=0, length=MIB, seed=1),
             None, "first wrong byte")


@case(module_sets=("ours",))
def test_pool(t: Test) -> None:
    """Sessions take the pool's memory first and give it back."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64 max_chunk_size=131072 chunk_pool_mb=12")
    t.equal((pool(t, "total_bytes"), pool(t, "free_bytes")), (12 * MIB, 12 * MIB), "the pool")
    first = rnbd.map_device(t, disks.PLAIN, session="first")
    t.equal(session_file(t, "pooled_memory_bytes", "first"), 8 * MIB, "first session")
    t.equal(pool(t, "free_bytes"), 4 * MIB, "what is left after the first session")
    second = rnbd.map_device(t, disks.WITHOUT_DISCARD, session="second")
    # Half of it has to be found elsewhere.
    t.equal(session_file(t, "pooled_memory_bytes", "second"), 4 * MIB, "second session")
    t.check(session_file(t, "memory_bytes", "second") >= 8 * MIB, "memory of the second session")
    t.equal(pool(t, "free_bytes"), 0, "what is left after the second session")
    for device in (first, second):
        t.client.call(guest_io.write, path=device.path, offset=0, length=MIB, seed=1)
        t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=MIB, seed=1),
                 None, "first wrong byte")
    first.unmap()
    t.server.wait_for(f"{POOL}/free_bytes", matches=str(8 * MIB))
    second.unmap()
    t.server.wait_for(f"{POOL}/free_bytes", matches=str(12 * MIB))
    t.equal(pool(t, "total_bytes"), 12 * MIB, "the pool at the end")


@case(module_sets=("ours",), kernels=("stock",), quick=())
def test_pool_when_short(t: Test) -> None:
    """What fits the pool works when the machine has no memory left for a session."""
    rnbd.load(t, rtrs_server="sess_queue_depth=2048 chunk_pool_mb=256")
    memory.take(t, t.server, 160 * MIB)
    for _ in range(3):
        device = rnbd.map_device(t, disks.PLAIN)
        t.client.call(guest_io.write, path=device.path, offset=0, length=MIB, seed=1)
        with t.expect_errno(errno.ENOMEM):
            rnbd.map_device(t, disks.WITHOUT_DISCARD, session="second")
        device.unmap()
        t.server.wait_for(f"{POOL}/free_bytes", matches=str(256 * MIB))


@case(module_sets=("ours",), kernels=("stock",))
def test_pool_unload(t: Test) -> None:
    """The pool's memory is free again when the module is unloaded."""
    rnbd.load(t)
    t.server.modules_unload_all()
    before = memory.available(t.server)
    t.server.modules_load("rtrs_server", rtrs_server="chunk_pool_mb=128")
    t.check(before - memory.available(t.server) > 120 * MIB, "the pool takes no memory")
    t.server.modules_unload_all()
    memory.wait_returned(t.server, before, 2 * MIB, "after the pool")
