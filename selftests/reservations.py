# SPDX-License-Identifier: GPL-2.0
"""Persistent reservations: a reserved disk serves only the machines that the reservation lets in."""

from __future__ import annotations

import errno

from lab import documents
from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import documented
from lib import guest_hostile_io
from lib import guest_io
from lib import guest_reservations as pr
from lib import images
from lib import rnbd
from lib.reservations import access
from lib.reservations import do
from lib.reservations import must
from lib.reservations import NOTHING
from lib.reservations import READ_ONLY
from lib.reservations import READ_WRITE
from lib.rnbd import Device

TOPOLOGY = "two"
ONLY_OURS = ("ours",)
KEPT = "/sys/class/rnbd-server/ctl/kept_reservations"
HOST = "host_uuid=01234567-89ab-cdef-0123-456789abcdef"
# By type: the access of the holder, of a registrant, of a stranger.
ACCESS = {1: (READ_WRITE, READ_ONLY, READ_ONLY), 2: (READ_WRITE, NOTHING, NOTHING),
          3: (READ_WRITE, READ_WRITE, READ_ONLY), 4: (READ_WRITE, READ_WRITE, NOTHING),
          5: (READ_WRITE, READ_WRITE, READ_ONLY), 6: (READ_WRITE, READ_WRITE, NOTHING)}
IGNORE_KEY = 1


def kept(t: Test) -> list[str]:
    """The disks that nobody has open and whose reservations the server keeps, a line for each."""
    return t.server.read(KEPT).split("\n")


def two(t: Test, disk: str) -> tuple[Device, Device]:
    """The disk of two sessions, which are two machines to the server."""
    return (rnbd.map_device(t, disk, session="first"),
            rnbd.map_device(t, disk, session="second", access_mode="migration"))


def take_over_while_held(t: Test, held: str, old: Device, new: Device, kind: int) -> int:
    """Preempts the machine of ``old``, whose write hangs on the disk ``held``; a place in the server's log before."""
    disks.hold(t, held)
    t.client.call(guest_io.writer_start, path=old.path, name="writer")
    t.client.wait_for(f"/sys/block/{old.name}/inflight", matches=r"\s[1-9]")
    mark = t.server.log_mark()
    t.client.call(pr.start, name="takeover", path=new.path, what="preempt", key=2, other=1, kind=kind)
    return mark


def take_over_from_holder(t: Test) -> tuple[str, Device, int]:
    """A disk that hangs with a write of its holder, the machine that preempts it, and a place in the server's log
    before that."""
    rnbd.load(t)
    disk = disks.holdable(t, 16, disks.LARGE_BLOCKS)
    old, new = two(t, disk)
    must(t, old, "register", other=1)
    must(t, old, "reserve", key=1, kind=1)
    must(t, new, "register", other=2)
    return disk, new, take_over_while_held(t, disk, old, new, kind=1)


def writer_is_refused(t: Test) -> None:
    """The writer that has lost the disk ends with a reservation conflict."""
    end = t.client.call_within(30, guest_io.writer_stop, name="writer", stop=False)
    t.equal((end["errno"], end["running"]), (errno.EBADE, False), "end of the writer")


def is_kept(t: Test, start: str) -> bool:
    """Whether a line about a disk that nobody has open begins like this."""
    return any(line.startswith(start) for line in kept(t))


@case(module_sets=ONLY_OURS)
def test_commands(t: Test) -> None:
    """Every command does what it says, and what it must not do is a conflict."""
    rnbd.load(t)
    first, second = two(t, disks.PLAIN)
    must(t, first, "register", other=0x11)
    t.equal(do(t, first, "register", other=0x12), pr.CONFLICT, "a second key")
    must(t, first, "register", other=0x12, flags=IGNORE_KEY)
    must(t, first, "register", key=0x12, other=0x11)
    must(t, second, "register", other=0x22)
    t.equal(t.client.call(pr.keys, path=second.path),
            {"status": 0, "generation": 4, "count": 2, "keys": [0x11, 0x22]}, "keys")
    t.equal(t.client.call(pr.keys, path=second.path, room=1)["keys"], [0x11], "room for one")
    none = {"status": 0, "key": 0, "generation": 4, "kind": 0}
    t.equal(t.client.call(pr.held, path=first.path), none, "no reservation")
    t.equal(do(t, first, "reserve", key=0x22, kind=1), pr.CONFLICT, "another machine's key")
    t.equal(do(t, first, "reserve", key=0x11, kind=7), -errno.EINVAL, "unknown type")
    t.equal(do(t, first, "reserve", key=0x11, kind=1, flags=2), -errno.EOPNOTSUPP, "unknown flag")
    mark = t.server.log_mark()
    must(t, first, "reserve", key=0x11, kind=1)
    t.server.wait_log("is reserved by session first \\(write-exclusive\\)", mark)
    t.equal(t.client.call(pr.held, path=second.path), none | {"key": 0x11, "kind": 1}, "reservation")
    t.equal(do(t, second, "reserve", key=0x22, kind=1), pr.CONFLICT, "reserve what is reserved")
    must(t, second, "release", key=0x22, kind=1)
    t.equal(t.client.call(pr.held, path=first.path)["kind"], 1, "type after a release by another")
    t.equal(do(t, first, "release", key=0x11, kind=2), -errno.EINVAL, "release of another type")
    must(t, first, "release", key=0x11, kind=1)
    t.equal(t.client.call(pr.held, path=first.path), none, "after the release")
    must(t, first, "reserve", key=0x11, kind=2)
    t.equal(do(t, second, "preempt", key=0x22, other=0x99, kind=2), pr.CONFLICT, "nobody's key")
    must(t, second, "abort", key=0x22, other=0x11, kind=2)
    t.equal(t.client.call(pr.held, path=first.path),
            {"status": 0, "key": 0x22, "generation": 5, "kind": 2}, "after preempting")
    t.equal(do(t, first, "clear", key=0x11), pr.CONFLICT, "clear by a stranger")
    must(t, second, "clear", key=0x22)
    t.equal(t.client.call(pr.keys, path=first.path)["count"], 0, "keys after clear")
    reader = rnbd.map_device(t, disks.PLAIN, session="reader", access_mode="ro")
    mark = t.server.log_mark()
    t.equal(do(t, reader, "register", other=1), -errno.EPERM, "register by a reader")
    t.server.wait_log("is open with access mode 'ro', which can change no reservation", mark)


@case(module_sets=ONLY_OURS, timeout=180)
def test_blkpr(t: Test) -> None:
    """A machine takes a disk from another one by the commands of administration.md."""
    documented.prepare(t)
    patient = f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}"
    for node in t.nodes:
        node.run(f"set -e; modprobe rtrs_client {patient}; modprobe rnbd_client", timeout=120)
    t.server.run(f"set -e; modprobe rtrs_server {patient}; modprobe rnbd_server dev_search_path=/dev", timeout=120)
    path, disk = documents.CHECKOUT / "Documentation/administration.md", "/dev/rnbd0"
    reserve, join, take, clear = (block for block in documents.blocks(path) if "blkpr" in block.text)

    def accesses() -> tuple[list[int], list[int]]:
        """The errnos of a read and of a write, of the machine that had the disk first, and of the other one."""
        return t.client.call(pr.access, path=disk), t.server.call(pr.access, path=disk)

    documented.type_block(t, reserve)
    documented.type_block(t, join)
    t.equal(accesses(), (READ_WRITE, READ_ONLY), "errnos before the takeover")
    t.equal(t.server.call(pr.held, path=disk)["key"], 0x10, "key of the holder before the takeover")
    documented.type_block(t, take)
    t.equal(accesses(), (READ_ONLY, READ_WRITE), "errnos after the takeover")
    t.equal(t.client.call(pr.held, path=disk)["key"], 0x20, "key of the holder after the takeover")
    # The first machine's key is gone.
    result = t.client.run(["blkpr", "-c", "reserve", "-k", "0x10", "-t", "write-exclusive", disk], check=False)
    t.check(result.rc != 0 and "error code 0x18" in result.err, f"reserve by the first machine: {result}")
    documented.type_block(t, clear)
    t.equal(t.client.call(pr.keys, path=disk)["keys"], [], "keys after clear")
    t.equal(t.client.call(pr.access, path=disk), READ_WRITE, "errnos of the first machine after clear")


@case(module_sets=ONLY_OURS, timeout=180)
def test_access(t: Test) -> None:
    """What the holder, a registrant and a stranger may read and write goes by the type."""
    rnbd.load(t)
    for disk in (disks.PLAIN, disks.loop(t, 16)):
        holder, other = two(t, disk)
        must(t, holder, "register", other=1)
        for kind, (of_holder, of_registrant, of_stranger) in ACCESS.items():
            must(t, holder, "reserve", key=1, kind=kind)
            for role, wanted in (("stranger", of_stranger), ("registrant", of_registrant)):
                if role == "registrant":
                    must(t, other, "register", other=2)
                t.equal(access(t, other), wanted, f"errnos of a {role}, type {kind}")
                t.client.call(guest_io.fsync, path=other.path)
                t.equal(access(t, holder), of_holder, f"errnos of the holder, type {kind}")
            must(t, other, "register", key=2)
            must(t, holder, "release", key=1, kind=kind)
            t.equal(access(t, other), READ_WRITE, f"errnos after type {kind}")
        must(t, holder, "reserve", key=1, kind=1)
        for clear in (guest_io.discard, guest_io.zero_out):
            with t.expect_errno(errno.EBADE):
                t.client.call(clear, path=other.path, offset=0, length=65536)
        must(t, holder, "clear", key=1)
        holder.unmap()
        other.unmap()


@case(module_sets=ONLY_OURS)
def test_kept(t: Test) -> None:
    """A reservation outlives the session and the last close, and ends when the administrator says."""
    rnbd.load(t, rnbd_client=HOST)
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    must(t, device, "register", other=7)
    must(t, device, "reserve", key=7, kind=2)
    path = rnbd.client_path(t, "sess")
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{disk[5:]}", gone=True)
    rnbd.reconnect(t, path)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.equal(access(t, device), READ_WRITE, "errnos after the reconnection")
    must(t, device, "reserve", key=7, kind=2)
    device.unmap()
    device = rnbd.map_device(t, disk, session="other")
    t.equal(access(t, device), READ_WRITE, "errnos of the machine in another session")
    device.unmap()
    # The same client, but now the server knows it by its session.
    rnbd.load(t)
    device = rnbd.map_device(t, disk)
    t.equal(access(t, device), NOTHING, "errnos of another machine")
    folder = f"{rnbd.SERVER_DEVICES}/{disk[5:]}"
    key, host = f"0x{7:016x}", f"host {HOST.split('=')[1]}"
    t.equal(t.server.read(f"{folder}/reservations").split("\n"),
            ["generation 1", "type exclusive-access", f"holder {key} {host}", f"{key} {host}"], "file")
    t.server.write(f"{folder}/clear_reservations", "1")
    t.equal(access(t, device), READ_WRITE, "errnos after the administrator has cleared it")
    t.equal(t.server.read(f"{folder}/reservations").split("\n"), ["generation 2", "type none"], "file")
    with t.expect_errno(errno.EINVAL):
        t.server.write(f"{folder}/clear_reservations", "0")


@case(module_sets=ONLY_OURS)
def test_one_name(t: Test) -> None:
    """Of two disks that have had one name after each other, the administrator drops the reservation that is meant."""
    images.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    name = images.exported(path).rsplit("/", 1)[-1]
    for key in (7, 8):
        device = rnbd.map_device(t, path)
        must(t, device, "register", other=key)
        must(t, device, "reserve", key=key, kind=key - 6)
        device.unmap()
        t.server.wait_for(images.exported(path), gone=True)
        # Another image comes in its place; the first one is kept under another name.
        t.server.run(f"mv {path} {path}.{key}; truncate -s 64M {path}")
    first, second = (line for line in kept(t) if line.startswith(f"{name} type "))
    with t.expect_errno(errno.EEXIST):
        t.server.write(KEPT, name)
    t.server.write(KEPT, first.split(" wwid ")[1])
    t.equal([line for line in kept(t) if line.startswith(f"{name} type ")], [second], "kept")
    t.check("exclusive-access" in second, f"the second reservation: {second}")
    t.server.write(KEPT, name)


@case(module_sets=ONLY_OURS)
def test_moved(t: Test) -> None:
    """The reservation of a disk with a wwid stays with it when its number changes."""
    images.load(t)
    folder = images.file_system(t)
    path = images.sparse(t, folder)
    device = rnbd.map_device(t, path)
    must(t, device, "register", other=7)
    must(t, device, "reserve", key=7, kind=2)
    device.unmap()
    t.server.wait_for(images.exported(path), gone=True)
    name = images.exported(path).rsplit("/", 1)[-1]
    line = f"{name} type exclusive-access registrants 1"
    t.check(is_kept(t, line), f"not among the kept reservations: {line}")
    # The file system comes again with another device number, and with it the file.
    t.server.run(f"set -e; umount {folder}; modprobe loop\n"
                 f"mount $(losetup --find --show {disks.PLAIN}) {folder}")
    t.defer(t.server.run, f"umount {folder}; losetup -D")
    stranger = rnbd.map_device(t, path, session="stranger")
    t.equal(access(t, stranger), NOTHING, "errnos of another machine")
    t.check(not is_kept(t, line), f"among the kept reservations while the disk is open: {line}")
    stranger.unmap()
    device = rnbd.map_device(t, path)
    t.equal(access(t, device), READ_WRITE, "errnos of the holder")
    must(t, device, "clear", key=7)
    device.unmap()


@case(module_sets=ONLY_OURS, timeout=240)
def test_takeover(t: Test) -> None:
    """A machine that takes a disk over finds no later write of the machine that had it."""
    rnbd.load(t)
    takeovers(t, disks.null_blk(t, size=64, memory_backed=1, completion_nsec=2000000, irqmode=2))


@case(module_sets=ONLY_OURS, timeout=240, quick=())
def test_takeover_buffered(t: Test) -> None:
    """The same through the page cache of the server."""
    rnbd.load(t, rnbd_server="block_io_mode=buffered")
    takeovers(t, disks.null_blk(t, size=64, memory_backed=1))


def takeovers(t: Test, disk: str) -> None:
    """Two machines take a disk from each other while the one that has it writes."""
    blocks, size = 8, 65536
    first, second = two(t, disk)
    writes = 0
    for number in range(t.rounds(6, 30)):
        old, new = (first, second) if number % 2 == 0 else (second, first)
        must(t, old, "register", other=0x10, flags=IGNORE_KEY)
        must(t, new, "register", other=0x20, flags=IGNORE_KEY)
        must(t, old, "reserve", key=0x10, kind=1)
        t.client.call(pr.stamp_start, name="old", path=old.path, blocks=blocks, size=size)
        must(t, new, "preempt", key=0x20, other=0x10, kind=1)
        t.client.call(pr.mark, path=new.path, blocks=blocks, size=size, byte=0xA0 + number % 16)
        end = t.client.call_within(60, pr.stamp_end, name="old")
        t.equal((end["running"], end["errnos"]), (False, [errno.EBADE] * blocks), "end of the writers")
        wrong = t.client.call(pr.marked, path=new.path, blocks=blocks, size=size, byte=0xA0 + number % 16)
        t.intact(wrong, [], f"blocks that were written after the takeover, round {number}")
        writes += end["writes"]
        must(t, new, "clear", key=0x20)
    t.say(f"{writes} writes of the machines that lost the disk")


@case(module_sets=ONLY_OURS)
def test_hanging_disk(t: Test) -> None:
    """A takeover waits for a write that hangs, which holds up neither other disks nor the session."""
    # The takeovers of the cases before have reached the limit of the log's lines; modules that were just loaded have
    # not.
    t.server.modules_unload_all()
    disk, new, mark = take_over_from_holder(t)
    name, = t.server.listdir(rnbd.SERVER_DEVICES)
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{name}/reservations",
                      matches="(?s)holder 0x0*2 session second.*waiting for session first")
    t.server.wait_log("session first has lost access by a command of session second", mark)
    t.server.wait_log("waiting for requests of session first, which has lost access", mark)
    beside = rnbd.map_device(t, disks.PLAIN, session="second")
    rnbd.works(t, beside)
    beside.unmap()
    t.equal(t.client.call(pr.result, name="takeover", wait=2.0), None, "result while the disk hangs")
    disks.let_go(t, disk)
    t.equal(t.client.call_within(30, pr.result, name="takeover", wait=20.0), 0, "result")
    writer_is_refused(t)
    t.equal(access(t, new), READ_WRITE, "errnos of the new holder")


@case(module_sets=ONLY_OURS)
def test_survivor(t: Test) -> None:
    """The machine that takes a disk from another one goes on with its requests while its command waits."""
    rnbd.load(t)
    disk, half = disks.half_holdable(t, 32, disks.LARGE_BLOCKS)
    old, new = two(t, disk)
    must(t, old, "register", other=1)
    must(t, new, "register", other=2)
    must(t, new, "reserve", key=2, kind=3)
    mark = take_over_while_held(t, half, old, new, kind=3)
    t.server.wait_log("waiting for requests of session first, which has lost access", mark)
    # Behind the command each of them would wait for half a second.
    t.client.call_within(15, pr.access_often, path=new.path, offset=16 << 20, count=40)
    t.equal(t.client.call(pr.result, name="takeover"), None, "result while the disk hangs")
    disks.let_go(t, half)
    t.equal(t.client.call_within(30, pr.result, name="takeover", wait=20.0), 0, "result")
    writer_is_refused(t)


@case(module_sets=ONLY_OURS, timeout=120)
def test_cut_off_takeover(t: Test) -> None:
    """A machine that is cut off while it takes a disk over does not learn of its success, in any way,
    while a write of the other machine is at work."""
    disk, new, mark = take_over_from_holder(t)
    t.server.wait_log("waiting for requests of session first, which has lost access", mark)
    path = rnbd.client_path(t, "second")
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{new.sysfs}/state", matches="closed")
    t.equal(t.client.call_within(30, pr.result, name="takeover", wait=20.0), pr.PATH_FAILED,
            "result of the takeover that was cut off")
    rnbd.reconnect(t, path)
    t.client.wait_for(f"{new.sysfs}/state", matches="open")
    t.client.call(pr.start, name="again", path=new.path, what="preempt", key=2, other=1, kind=1)
    t.client.call(pr.start, name="report", path=new.path, what="holder")
    for name in ("again", "report"):
        t.equal(t.client.call(pr.result, name=name, wait=1.5), None, f"{name}: result while the disk hangs")
    disks.let_go(t, disk)
    t.equal(t.client.call_within(30, pr.result, name="report", wait=20.0), 2, "key of the holder")
    t.equal(t.client.call_within(30, pr.result, name="again", wait=20.0), pr.CONFLICT,
            "the key is preempted once more")
    writer_is_refused(t)


@case(module_sets=ONLY_OURS)
def test_c_client(t: Test) -> None:
    """A C client is a stranger: it opens the disk, and does not get at it."""
    rnbd.load(t)
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    must(t, device, "register", other=7)
    for kind, wanted in ((1, READ_ONLY), (2, NOTHING)):
        must(t, device, "reserve", key=7, kind=kind)
        device.unmap()
        rnbd.use_set(t.client, "c")
        t.defer_once(rnbd.use_set, t.client, t.modules)
        rnbd.load(t)
        stranger = rnbd.map_device(t, disk, session="stranger")
        t.equal(access(t, stranger), wanted, f"errnos of a C client, type {kind}")
        t.equal(do(t, stranger, "register", other=1), -errno.EOPNOTSUPP, "C's register")
        stranger.unmap()
        rnbd.use_set(t.client, t.modules)
        rnbd.load(t)
        device = rnbd.map_device(t, disk)
        t.equal(access(t, device), READ_WRITE, "errnos of the holder that is back")
        must(t, device, "release", key=7, kind=kind)


@case(module_sets=ONLY_OURS)
def test_c_server(t: Test) -> None:
    """With a C server nothing can be reserved."""
    rnbd.use_set(t.server, "c")
    t.defer(rnbd.use_set, t.server, t.modules)
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(do(t, device, "register", other=1), -errno.EOPNOTSUPP, "register")
    t.equal(t.client.call(pr.keys, path=device.path)["status"], -errno.EOPNOTSUPP, "keys")
    rnbd.works(t, device)


@case(module_sets=ONLY_OURS)
def test_hostile_client(t: Test) -> None:
    """Commands that make no sense get errors; a command that comes again is done once."""
    rnbd.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    got = t.client.call_within(60, guest_hostile_io.reservations, address=t.server.address,
                               device_path=disks.PLAIN)
    refused, unsupported, most = errno.EINVAL, errno.EOPNOTSUPP, (1 << 64) - 1
    t.equal(got.pop("repeated"), [0, 0, 0], "a command that comes again")
    t.equal(got.pop("reported"), [11, 1, most, 2, 1, 0, most, 0], "report")
    wanted = {"not agreed on": refused, "host not agreed on": refused, "nil host": refused,
              "another host": errno.EEXIST, "cut": refused, "longer": refused,
              "unknown action": unsupported, "last action": unsupported, "unknown flag": unsupported,
              "to be kept": unsupported, "unknown device": errno.ENOTCONN, "report as a write": refused,
              "another command of that number": refused, "report without room": errno.EMSGSIZE,
              "stranger reserves": errno.EBADE,
              "not repeated": errno.EBADE, "type 0": refused, "type 7": refused, "type 255": refused}
    for name, number in got.items():
        t.equal(number, wanted.get(name, 0), f"errno: {name}")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)


@case(module_sets=ONLY_OURS, timeout=240)
def test_register_and_close(t: Test) -> None:
    """What a client registers while it closes the disk is registered if the server says so."""
    rnbd.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    counts = t.client.call_within(180, guest_hostile_io.register_and_close, address=t.server.address,
                                  device_path=disks.PLAIN, rounds=t.rounds(25, 100))
    t.equal(counts["wrong"], 0, f"responses that were not true, of {counts}")
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)
    t.check(not any(line.startswith("vdb ") for line in kept(t)), "a disk without registrants is kept")


@case(module_sets=ONLY_OURS, timeout=240, quick=())
def test_bound(t: Test) -> None:
    """Of disks that nobody has open 256 are kept; then mere keys are dropped, and no reservation."""
    # Without what other tests have left.
    t.server.modules_unload_all()
    t.defer(t.server.modules_unload_all)
    images.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    folder = images.file_system(t)
    t.server.run(f"for i in $(seq 257); do truncate -s 1M {folder}/$i; done")
    paths = [f"{folder}/{number}" for number in range(1, 258)]
    names = [images.exported(path).rsplit("/", 1)[-1] for path in paths]

    def reserve(paths: list[str], kind: int = 0) -> list[int]:
        return t.client.call_within(120, guest_hostile_io.reserve_many, address=t.server.address, paths=paths,
                                    kind=kind)

    mark = t.server.log_mark()
    t.equal(reserve(paths), [0] * 257, "errnos of 257 registrations")
    t.server.wait_log(f"the keys that are registered with .*{names[0]}.* are dropped", mark)
    t.check(kept(t)[0].startswith(f"{names[1]} type none registrants 1 wwid "), f"the first disk kept: {kept(t)[0]}")
    t.equal(reserve(paths[1:], 1), [0] * 256, "errnos of 256 reservations")
    mark = t.server.log_mark()
    t.equal(reserve(paths[:1]), [errno.ENOSPC], "errno of one more registration")
    t.server.wait_log("no machine can register, as machines are registered with 256 other disks", mark)
    with t.expect_errno(errno.ENOENT):
        t.server.write(KEPT, names[0])
    mark = t.server.log_mark()
    t.server.write(KEPT, names[1])
    t.server.wait_log(f"the administrator has dropped the reservations of .*{names[1]}", mark)
    t.equal(reserve(paths[:1]), [0], "errno after the administrator has dropped a reservation")
