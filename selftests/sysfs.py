# SPDX-License-Identifier: GPL-2.0
"""Files, modes and text of both ends' sysfs folders."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import disks
from lib import fio
from lib import guest_io
from lib import guest_partition
from lib import guest_uevents
from lib import rnbd
from lib.rnbd import Device

TOPOLOGY = "one"
RW, RO = 0o644, 0o444
# Sizes of messages: a request of a disk, opening one, what answers that, closing one.
IO, OPEN, OPEN_ANSWER, CLOSE = 32, 264, 56, 8
# Asking for news, and the room for the response; what our server says behind the response to opening a disk.
NEWS, NEWS_ROOM, IDENTITY = 12, 4048, 128

CLIENT_DEVICE = {
    "unmap_device": (RW, r"Usage: echo <normal\|force> > unmap_device"),
    "resize": (RW, r"Usage: echo <new size in sectors> > resize"),
    "remap_device": (RW, r"Usage: echo <1> > remap_device"),
    "mapping_path": (RO, r"/dev/vdb"), "state": (RO, r"open"), "session": (RO, r"sess"),
    "access_mode": (RO, r"rw"), "nr_poll_queues": (RO, r"0"),
}
CLIENT_SESSION = {
    "add_path": (RW, r"Usage: echo \[<source addr>@\]<destination addr> > add_path\n\n"
                     r"\*addr ::= \[ ip:<ipv4\|ipv6> \| gid:<gid> \]"),
    "max_reconnect_attempts": (RW, r"-1"), "mpath_policy": (RW, r"min-inflight \(MI: 1\)"),
}
CLIENT_PATH = {
    "state": (RO, r"connected"), "reconnect": (RW, r"Usage: echo 1 > reconnect"),
    "disconnect": (RW, r"Usage: echo 1 > disconnect"),
    "remove_path": (RW, r"Usage: echo 1 > remove_path"),
    "hca_name": (RO, r"rxe0"), "hca_port": (RO, r"1"),
    "src_addr": (RO, r"ip:10\.77\.0\.1"), "dst_addr": (RO, r"ip:10\.77\.0\.1"),
    "cur_latency": (RO, r"\d+ ns"),
    "stats/cpu_migration_from": (RW, r"(\d+ ?)+"), "stats/cpu_migration_to": (RW, r"(\d+ ?)+"),
    "stats/reconnects": (RW, r"0 0"), "stats/rdma": (RW, r"\d+ \d+ \d+ \d+ \d+ \d+"),
    "stats/reset_all": (RW, r"echo 1 to reset all statistics"),
}
SERVER_DEVICE = {
    "sessions/sess/read_only": (RO, r"0"), "sessions/sess/access_mode": (RO, r"rw"),
    "sessions/sess/mapping_path": (RO, r"/dev/vdb"),
    "sessions/sess/force_close": (RW, r"Usage: echo 1 > force_close"),
}
STATISTICS = ("cpu_migration_from", "cpu_migration_to", "reconnects", "rdma")
SESSION_FOLDERS = ("/rtrs-client/sess", "/rtrs-server/sess")
SERVER_PATH = {
    "hca_name": (RO, r"rxe0"), "hca_port": (RO, r"1"),
    "src_addr": (RO, r"ip:10\.77\.0\.1"), "dst_addr": (RO, r"ip:10\.77\.0\.1"),
    "disconnect": (RW, r"Usage: echo 1 > disconnect"), "stats/rdma": (RW, r"\d+ \d+ \d+ \d+"),
}


def compare(t: Test, node: Node, folder: str, table: dict[str, tuple[int, str]]) -> None:
    """Every file of the table, its mode and text."""
    for name, (mode, text) in table.items():
        path = f"{folder}/{name}"
        t.check(node.exists(path), f"{path} is missing")
        t.equal(oct(node.mode(path)), oct(mode), f"mode of {path}")
        got = node.read(path)
        t.check(re.fullmatch(text, got), f"{path}: got {got!r}, expected {text!r}")


def test_client_files(t: Test) -> None:
    """The client's folders of device, session and path."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    compare(t, t.client, device.sysfs, CLIENT_DEVICE)
    compare(t, t.client, f"{rnbd.CLIENT_SESSIONS}/sess", CLIENT_SESSION)
    t.equal(t.client.listdir(f"{rnbd.CLIENT_SESSIONS}/sess/paths"),
            ["ip:10.77.0.1@ip:10.77.0.1"], "name of the path")
    compare(t, t.client, rnbd.client_path(t, "sess"), CLIENT_PATH)
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), ["!dev!vdb@sess"], "links in ctl/devices")
    t.equal(oct(t.client.mode(rnbd.MAP_DEVICE)), oct(0o644), "mode of map_device")


def test_server_files(t: Test) -> None:
    """The server's folders of device, session and path."""
    rnbd.load(t)
    rnbd.map_device(t, disks.PLAIN)
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), ["vdb"], "exported devices")
    folder = f"{rnbd.SERVER_DEVICES}/vdb"
    compare(t, t.server, folder, SERVER_DEVICE)
    t.check(t.server.realpath(f"{folder}/block_dev").endswith("/block/vdb"),
            "block_dev leads elsewhere")
    compare(t, t.server, rnbd.server_path(t, "sess"), SERVER_PATH)


def test_statistics(t: Test) -> None:
    """The counters count what was done, on both ends, and can be reset."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    mine, theirs = rnbd.client_path(t, "sess"), rnbd.server_path(t, "sess")
    t.client.write(f"{mine}/stats/reset_all", "1")
    before = [int(word) for word in t.server.read(f"{theirs}/stats/rdma").split()]
    for index in range(4):
        t.client.call(guest_io.write, path=device.path, offset=index << 16, length=8192, seed=1)
    t.client.call(guest_io.digest, path=device.path, offset=0, length=8192)
    words = [int(word) for word in t.client.read(f"{mine}/stats/rdma").split()]
    t.check(words[2] >= 4 and words[3] >= 4 * 8192, f"writes of the client: {words}")
    t.check(words[0] >= 1 and words[1] >= 8192, f"reads of the client: {words}")
    t.equal(words[4:], [0, 0], "inflight and failed over")
    after = [int(word) for word in t.server.read(f"{theirs}/stats/rdma").split()]
    t.check(after[2] - before[2] >= 4 and after[3] - before[3] >= 4 * 8192,
            f"writes of the server: {before} to {after}")
    with t.expect_errno(errno.EINVAL):
        t.client.write(f"{mine}/stats/reset_all", "0")
    t.client.write(f"{mine}/stats/rdma", "1")
    t.equal(t.client.read(f"{mine}/stats/rdma"), "0 0 0 0 0 0", "rdma after a reset")


def test_counts(t: Test) -> None:
    """Each request counts as in C, on both ends: data and header, a flush as a read of no data."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    mine, theirs = rnbd.client_path(t, "sess"), rnbd.server_path(t, "sess")
    wanted = [0, 0, 0, 0]

    def asked_for_news(reads: int) -> list[int]:
        """Our client asks for news of a disk after it was mapped, in the background: then there have been so
        many reads. How long the reads were that this took."""
        if t.modules != "ours":
            return []
        t.client.wait_for(f"{mine}/stats/rdma", matches=f"^{reads + 1} ")
        return [NEWS + NEWS_ROOM]

    # The session information, opening the disk, and the search for partitions.
    asked_for_news(2 + rnbd.disk_stats(t.client, device.name)["reads"])
    for node, path in ((t.client, mine), (t.server, theirs)):
        node.write(f"{path}/stats/rdma", "1")

    def counted(what: str, reads: Sequence[int] = (), writes: Sequence[int] = ()) -> None:
        """So many reads and writes more, each of so many bytes."""
        for at, sizes in ((0, reads), (2, writes)):
            wanted[at] += len(sizes)
            wanted[at + 1] += sum(sizes)
        t.equal(numbers(t, mine, "rdma"), [*wanted, 0, 0], f"counters of the client after {what}")
        t.equal([int(word) for word in t.server.read(f"{theirs}/stats/rdma").split()], wanted,
                f"counters of the server after {what}")

    for index in range(3):
        t.client.call(guest_io.write, path=device.path, offset=index << 16, length=8192, seed=1)
    counted("writes", writes=[IO + 8192] * 3)
    for index in range(2):
        t.client.call(guest_io.digest, path=device.path, offset=index << 16, length=4096)
    t.client.call(guest_io.digest, path=device.path, offset=0, length=65536)
    counted("reads", reads=[IO + 4096] * 2 + [IO + 65536])
    t.client.call(guest_io.fsync, path=device.path)
    counted("a flush", reads=[IO])
    t.client.call(guest_io.discard, path=device.path, offset=1 << 20, length=65536)
    counted("a discard", writes=[IO])
    t.client.call(guest_io.zero_out, path=device.path, offset=1 << 20, length=65536)
    counted("zeroes", writes=[IO])
    # Messages that are no requests of a disk count, too.
    second = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    scan = rnbd.disk_stats(t.client, second.name)  # for partitions
    scanned = [IO] * scan["reads"]
    scanned[0] += scan["read_sectors"] * 512
    reads = [OPEN + OPEN_ANSWER + (IDENTITY if t.modules == "ours" else 0), *scanned]
    reads += asked_for_news(wanted[0] + len(reads))
    counted("mapping a disk", reads=reads)
    second.unmap()
    counted("unmapping it", writes=[CLOSE])


def numbers(t: Test, path: str, name: str) -> list[int]:
    """The numbers of a statistic of the client."""
    return [int(word) for word in t.client.read(f"{path}/stats/{name}").split()]


def migrations(t: Test, device: Device, path: str) -> None:
    """What cpu_migration_from and _to have after requests from both CPUs; both must agree."""
    # soft-RoCE completes on any CPU, so that some of these are always answered on another one.
    fio.fio(t.client, device.path, rw="randread", bs="4k", iodepth=8,
            number_ios=t.scaled(2000, 200), size="16M", numjobs=2, cpus_allowed="0,1",
            cpus_allowed_policy="split")
    first, last = t.client.read("/sys/devices/system/cpu/possible").split("-")
    found = [numbers(t, path, f"cpu_migration_{name}") for name in ("from", "to")]
    for name, values in zip(("from", "to"), found, strict=True):
        t.equal(len(values), int(last) - int(first) + 1,
                f"values of cpu_migration_{name}: {values}")
    t.equal(sum(found[0]), sum(found[1]), f"sums of {found}")
    t.check(sum(found[0]) > 0, "no request was answered on another CPU")


@case(quick=())
def test_reset_statistics(t: Test) -> None:
    """Migrations count at both CPUs, a reconnect counts once; 1 sets a statistic, or all, to 0, and
    nothing else does."""
    # Nor may the server beat between two reads.
    rnbd.load(t, rtrs_server="hb_interval_ms=600000" if t.modules == "ours" else "")
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    if t.modules == "ours":
        # The path must not try by itself while the server closes it, nor beat between two reads.
        for name, value in (("reconnect_delay_ms", 3600000), ("hb_interval_ms", 600000)):
            t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/{name}", str(value))
    nothing = [0] * int(t.client.sh("nproc"))
    for name in ("from", "to"):
        migrations(t, device, path)
        t.client.write(f"{path}/stats/cpu_migration_{name}", "1")
        for other in ("from", "to"):
            t.equal(numbers(t, path, f"cpu_migration_{other}"), nothing,
                    f"cpu_migration_{other} after 1 to cpu_migration_{name}")

    def lose_and_connect() -> None:
        mark = t.client.log_mark()
        t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
        t.client.wait_for(f"{path}/state", matches="disconnected", timeout=30)
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True, timeout=30)
        rnbd.reconnect(t, path)
        # A server refuses until it has closed the last connection.
        refusals = sum("connecting to the server failed" in line
                       for line in t.client.log_since(mark))
        succeeded, failed = numbers(t, path, "reconnects")
        t.equal(succeeded, 1, "successful reconnects")
        t.check(failed == refusals or t.modules == "c", f"{failed} failed, {refusals} in the log")
        t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)

    lose_and_connect()
    t.client.write(f"{path}/stats/reconnects", "1")
    t.equal(t.client.read(f"{path}/stats/reconnects"), "0 0", "reconnects after a reset")
    lose_and_connect()
    migrations(t, device, path)
    t.check(numbers(t, path, "rdma")[0] > 0, "no read was counted")
    before = [numbers(t, path, name) for name in STATISTICS]
    for name in (*STATISTICS, "reset_all"):
        for word in ("0", "0\n", "2", "11", "1 1", "-1", "yes", "\n"):
            with t.expect_errno(errno.EINVAL):
                t.client.write(f"{path}/stats/{name}", word)
    t.equal([numbers(t, path, name) for name in STATISTICS], before, "statistics after wrong words")
    t.client.write(f"{path}/stats/reset_all", "1\n")
    for name, wanted in (("cpu_migration_from", nothing), ("cpu_migration_to", nothing),
                         ("reconnects", [0, 0]), ("rdma", [0] * 6)):
        t.equal(numbers(t, path, name), wanted, f"{name} after 1 to reset_all")


def test_server_words(t: Test) -> None:
    """What the server's files take, and which errno they give for the rest."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.server_path(t, "sess")
    t.client.call(guest_io.write, path=device.path, offset=0, length=8192, seed=1)
    t.check(t.server.read(f"{path}/stats/rdma") != "0 0 0 0", "nothing was counted")
    for word in ("0", "2", "11", "1 1", "yes", "\n"):
        with t.expect_errno(errno.EINVAL):
            t.server.write(f"{path}/stats/rdma", word)
        with t.expect_errno(errno.EINVAL):
            t.server.write(f"{path}/disconnect", word)
        with t.expect_errno(errno.EINVAL):
            t.server.write(f"{rnbd.SERVER_DEVICES}/vdb/sessions/sess/force_close", word)
    t.check(t.server.read(f"{path}/stats/rdma") != "0 0 0 0", "a wrong word reset the counters")
    for word in ("1", "1\n"):
        t.server.write(f"{path}/stats/rdma", word)
        t.equal(t.server.read(f"{path}/stats/rdma"), "0 0 0 0", "rdma after a reset")
    for name in ("hca_name", "hca_port", "src_addr", "dst_addr"):
        with t.expect_errno(errno.EACCES):
            t.server.write(f"{path}/{name}", "1")
    t.equal(device.attribute("state"), "open", "state")


def test_access_modes_shown(t: Test) -> None:
    """The server shows each mapping's access mode and whether it can write."""
    rnbd.load(t)
    for mode, read_only in (("ro", "1"), ("rw", "0"), ("migration", "0")):
        device = rnbd.map_device(t, disks.PLAIN, access_mode=mode)
        folder = f"{rnbd.SERVER_DEVICES}/vdb/sessions/sess"
        t.equal(t.server.read(f"{folder}/access_mode"), mode, "access_mode")
        t.equal(t.server.read(f"{folder}/read_only"), read_only, f"read_only of {mode}")
        device.unmap()
        t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdb", gone=True)


def test_partition_name(t: Test) -> None:
    """An exported partition is shown by its own name, with a link to its disk."""
    rnbd.load(t)
    disk = disks.loop(t, 16)
    name = disk.removeprefix("/dev/")
    t.server.call(guest_partition.add, path=disk, number=1, start=1 << 20, length=8 << 20)
    t.defer(t.server.call, guest_partition.delete, path=disk, number=1)
    t.server.wait_for(f"{disk}p1")
    device = rnbd.map_device(t, f"{disk}p1")
    t.equal(device.size(), 8 << 20, "size")
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [f"{name}p1"], "exported devices")
    t.check(t.server.realpath(f"{rnbd.SERVER_DEVICES}/{name}p1/block_dev").endswith(f"/{name}"),
            "block_dev does not lead to the disk")
    device.unmap()


def test_session_settings(t: Test) -> None:
    """Policy and reconnect attempts take what C takes, and refuse the rest."""
    rnbd.load(t)
    rnbd.map_device(t, disks.PLAIN)
    folder = f"{rnbd.CLIENT_SESSIONS}/sess"
    for word, text in (("0", "round-robin (RR: 0)"), ("rr", "round-robin (RR: 0)"),
                       ("round-robin", "round-robin (RR: 0)"), ("ml\n", "min-latency (ML: 2)"),
                       ("min-latency\n", "min-latency (ML: 2)"), ("2", "min-latency (ML: 2)"),
                       ("MI", "min-inflight (MI: 1)"), ("1\n", "min-inflight (MI: 1)"),
                       ("min-inflight", "min-inflight (MI: 1)"),
                       ("round-robin (RR: 0)\n", "round-robin (RR: 0)"),
                       ("min-inflight (MI: 1)\n", "min-inflight (MI: 1)")):
        t.client.write(f"{folder}/mpath_policy", word)
        t.equal(t.client.read(f"{folder}/mpath_policy"), text, f"policy after {word!r}")
    for word in ("", "3", "min", "r", "-1"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{folder}/mpath_policy", word or "\n")
    for word, number in (("0", 0), ("9999", 9999), ("-1", -1), ("5\n", 5), ("+6", 6), ("010", 10)):
        t.client.write(f"{folder}/max_reconnect_attempts", word)
        t.equal(t.client.read(f"{folder}/max_reconnect_attempts"), str(number), "attempts")
    for word in ("-2", "10000", "2147483647", "x", "0x10", "5 5", " 5", "5 ", "5\n\n"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{folder}/max_reconnect_attempts", word)
    for word in ("2147483648", "-2147483649", "99999999999999999999"):
        with t.expect_errno(errno.ERANGE):
            t.client.write(f"{folder}/max_reconnect_attempts", word)
    t.equal(t.client.read(f"{folder}/max_reconnect_attempts"), "10", "attempts after all")
    for word in ("bogus", "ip:", "ip:1.2.3"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{folder}/add_path", word)
    path = rnbd.client_path(t, "sess")
    for name in ("reconnect", "disconnect", "remove_path"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{path}/{name}", "0")
    t.equal(t.client.read(f"{path}/state"), "connected", "path state")


def test_uevents(t: Test) -> None:
    """Mapping announces the session on both ends, the disk and then that it is online."""
    rnbd.load(t)
    mark = t.client.call(guest_uevents.start)
    t.defer(t.client.call, guest_uevents.stop)
    device = rnbd.map_device(t, disks.PLAIN)
    events = t.client.call(guest_uevents.seen, since=mark,
                           wanted=[("online", f"/block/{device.name}"),
                                   *(("add", folder) for folder in SESSION_FOLDERS)],
                           seconds=30.0)
    actions = [action for action, path in events if path.endswith(f"/block/{device.name}")]
    t.check("add" in actions and "online" in actions, f"uevents of the disk: {actions}")
    for folder in SESSION_FOLDERS:
        t.check(any(path.endswith(folder) and action == "add" for action, path in events),
                f"no uevent for {folder}: {events}")
