# SPDX-License-Identifier: GPL-2.0
"""Clients ask servers which disks they could map."""

from __future__ import annotations

import errno
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_discovery
from lib import guest_hostile_server as hostile
from lib import policy
from lib import program
from lib import rnbd
from lib.hostile import call
from lib.hostile import serve
from lib.hostile import within_log_limit

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
FOLDER = "/var/tmp/discovery"
MANY = 10_000


def discover(t: Test, *options: object) -> dict[str, dict[str, Any]]:
    """The disks that the program lists, by their paths."""
    found = program.json_of(t.client, "discover", t.server.address, *options)["disks"]
    paths = [disk["device_path"] for disk in found]
    t.equal(paths, sorted(set(paths)), "paths in their order, each once")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), sessions_in_use(t), "sessions afterwards")
    return dict(zip(paths, found, strict=True))


def sessions_in_use(t: Test) -> list[str]:
    """The sessions of mapped devices."""
    names = {t.client.read(f"{rnbd.CLIENT_DEVICES}/{name}/rnbd/session").strip()
             for name in t.client.listdir(rnbd.CLIENT_DEVICES)}
    return sorted(names)


def folder(t: Test, commands: str) -> str:
    """Load the modules with a search path of its own, in which these commands were run."""
    t.server.run(f"set -e; rm -rf {FOLDER}; mkdir -p {FOLDER}; cd {FOLDER}; {commands}", timeout=120)
    t.defer(t.server.run, f"rm -rf {FOLDER}")
    rnbd.load(t, rnbd_server=f"dev_search_path={FOLDER}")
    program.install(t.client)
    return FOLDER


@case(module_sets=ONLY_OURS)
def test_disks_of_the_machine(t: Test) -> None:
    """Without a search path the block devices of /dev are listed, with size, modes and users."""
    rnbd.load(t)
    program.install(t.client)
    found = discover(t)
    disk = found["dev/vdb"]
    t.equal(disk["size_bytes"], 512 * int(t.server.read("/sys/block/vdb/size")), "size")
    t.equal(disk["modes"], ["ro", "rw", "migration"], "modes of a free disk")
    t.equal((disk["sessions"], disk["device"], disk["file"]), (0, None, False), "users of a free disk")
    t.equal(found["dev/vdd"]["block_size"], int(t.server.read("/sys/block/vdd/queue/logical_block_size")),
            "block size")
    for path in found:
        t.check(path.startswith("dev/"), f"{path} is not in /dev")
    # What is listed can be mapped by its path.
    device = rnbd.map_device(t, "dev/vdb", session="mine")
    used = discover(t, "--session", "mine")["dev/vdb"]
    t.equal((used["sessions"], used["device"], used["modes"]), (1, device.name, ["ro", "migration"]),
            "a disk that is mapped for writing")
    t.equal(discover(t)["dev/vdb"]["device"], device.name, "the device of the session that there is with the server")
    t.equal(discover(t, "--session", "other")["dev/vdb"]["device"], None, "the device of another session")
    device.unmap()


@case(module_sets=ONLY_OURS, quick=EVERYWHERE)
def test_folder(t: Test) -> None:
    """The entries of the search path are listed: files, links and folders, but nothing that is no disk."""
    folder(t, f"truncate -s 8M a.img 'b c.img'; truncate -s 100 tiny; ln -s {disks.PLAIN} disk; ln -s nowhere gone; "
              "ln -s . loop; mkfifo fifo; mkdir -p vm/1/2/3/4/5 empty; truncate -s 1M vm/x.img vm/1/2/3/y.img "
              "vm/1/2/3/4/5/deep.img .hidden two..dots \"$(printf 'new\\nline')\"; cp a.img vm-old.img")
    found = discover(t)
    t.equal(sorted(found), ["a.img", "b c.img", "disk", "vm-old.img", "vm/1/2/3/y.img", "vm/x.img"], "disks")
    t.check(found["a.img"]["file"] and not found["disk"]["file"], "which of them are files")
    t.equal(found["a.img"]["size_bytes"], 8 << 20, "size of a file")
    rnbd.map_device(t, "vm/1/2/3/y.img", session="mine").unmap()


@case(module_sets=ONLY_OURS)
def test_policy(t: Test) -> None:
    """A client is told what the export policy lets it map, in the modes that it allows, and no more."""
    folder(t, "truncate -s 1M a b c")
    policy.load(t, policy.rule(session="web", device=f"{FOLDER}/a", mode="ro"),
                policy.rule(session="db", device=f"{FOLDER}/*"))
    web = discover(t, "--session", "web")
    t.equal({path: disk["modes"] for path, disk in web.items()}, {"a": ["ro"]}, "disks of web")
    t.equal(sorted(discover(t, "--session", "db")), ["a", "b", "c"], "disks of db")
    said = program.run(t.client, "discover", t.server.address, code=4)
    t.check("no rule for this session" in said.err, f"a session without a rule: {said.err!r}")


@case(module_sets=ONLY_OURS)
def test_used_by_the_server(t: Test) -> None:
    """A disk that the server has mounted is listed so, and a read-only one with its only mode."""
    mounted = disks.null_blk(t, size=64)
    read_only = disks.loop(t, 8, read_only=True)
    t.server.run(f"set -e; mkfs.ext4 -q -F {mounted}; mkdir -p /mnt/used; mount {mounted} /mnt/used", timeout=120)
    t.defer(t.server.run, "umount /mnt/used; rmdir /mnt/used")
    rnbd.load(t)
    program.install(t.client)
    found = discover(t)
    t.check(found[mounted[1:]]["used_by_server"], f"{mounted} is mounted: {found[mounted[1:]]}")
    t.check(not found["dev/vdb"]["used_by_server"], "vdb is not used")
    t.equal(found[read_only[1:]]["modes"], ["ro"], "modes of a read-only disk")


@case(module_sets=ONLY_OURS)
def test_map_all(t: Test) -> None:
    """map --all maps what is free, and leaves the rest."""
    folder(t, "truncate -s 1M a b c")
    rnbd.map_device(t, "b", session="other")
    t.defer(rnbd.unmap_all, t)
    arguments = ("map", "--all", "--session", "mine", "--path", t.server.address)
    done = program.json_of(t.client, *arguments)["mapped"]
    t.equal([disk["device_path"] for disk in done], ["a", "c"], "mapped disks")
    t.check("nothing to map" in program.run(t.client, *arguments).out, "the second time")


@case(module_sets=ONLY_OURS, quick=(), timeout=300)
def test_many(t: Test) -> None:
    """10,000 disks are listed, each once, also while others come and go."""
    t.server.run(f"rm -rf {FOLDER}")
    t.server.call_within(120, guest_discovery.links, folder=FOLDER, target=disks.PLAIN, count=MANY)
    t.defer(t.server.run, f"rm -rf {FOLDER}", timeout=120)
    rnbd.load(t, rnbd_server=f"dev_search_path={FOLDER}")
    stop = f"{FOLDER}.stop"
    job = t.server.start_job(f"while [ ! -e {stop} ]; do for n in 00500 05000 09500; do "
                             f"ln -s {disks.PLAIN} {FOLDER}/new$n; ln -s {disks.PLAIN} {FOLDER}/disk$n.5; sleep 0.05; "
                             f"rm {FOLDER}/new$n {FOLDER}/disk$n.5; done; done", timeout=240)
    try:
        lines = t.client.call_within(240, guest_discovery.lines,
                                     line=f"sessname=many path=ip:{t.server.address}")
    finally:
        t.server.run(f"touch {stop}")
        job.wait()
        t.server.run(f"rm {stop}")
    paths = [line.split(" ", 6)[6] for line in lines]
    t.check(paths == sorted(set(paths)), "paths are not in their order, or twice")
    told = {path for path in paths if len(path) == len("disk00000")}
    t.equal(len(told & {f"disk{number:05}" for number in range(MANY)}), MANY, "disks that were there all the time")


@case(module_sets=ONLY_OURS)
def test_switched_off(t: Test) -> None:
    """With discovery=N, and by the file without a line, there is a clear error."""
    rnbd.load(t, rnbd_server="discovery=N")
    program.install(t.client)
    said = program.run(t.client, "discover", t.server.address, code=7)
    t.check("does not list its disks" in said.err, said.err)
    rnbd.load(t)
    line = f"sessname=x path=ip:{t.server.address}"
    t.equal(t.client.call(guest_discovery.errors, line=line),
            [errno.EINVAL, errno.EINVAL, errno.EMSGSIZE, 0, errno.EINVAL, errno.EBUSY], "errnos")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")
    with t.expect_errno(errno.ENXIO):
        t.client.call(guest_discovery.lines, line="sessname=x")


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    # By what is wrong: what the server says, log.
    "another type": ({"paths": [], "kind": 7}, "unexpected type"),
    "huge count": ({"paths": ["a"], "count": 0xFFFF}, "disk in the discovery|path of a disk"),
    "control characters": ({"paths": ["a\nb"]}, "path of a disk"),
    "dots": ({"paths": ["../etc/shadow"]}, "in the path of a disk"),
    "empty path": ({"paths": [""]}, "path of a disk"),
    "falling paths": ({"paths": ["b", "a"]}, "order of the paths"),
    "a path twice": ({"paths": ["b", "b"]}, "order of the paths"),
    "the same page for ever": ({"paths": ["a", "b"], "more": True}, "order of the paths"),
    "huge size": ({"paths": ["a"], "sectors": 1 << 63}, "size of a disk"),
    "block size": ({"paths": ["a"], "blocks": 1000}, "block size"),
    "wwid": ({"paths": ["a"], "wwid": "a/../b"}, "wwid"),
}


@case(module_sets=ONLY_OURS, quick=(), timeout=300)
def test_hostile_server(t: Test) -> None:
    """Responses that make no sense are refused and logged; endless ones come to an end."""
    serve(t)
    call(t, hostile.misbehave, place="session_info", fault="extension")
    line = f"sessname=sess path=ip:{t.server.address}"
    for what, (fault, log) in FAULTS.items():
        within_log_limit(t)
        call(t, hostile.misbehave, place="control", fault="tell_disks", **fault)
        mark = t.client.log_mark()
        try:
            t.client.call_within(60, guest_discovery.lines, line=line)
            raise AssertionError(f"{what}: nothing is wrong")
        except OSError as error:
            t.equal(error.errno, errno.EINVAL, what)
        t.client.wait_log(log, mark)
        t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], f"{what}: sessions afterwards")
    endless: dict[str, tuple[dict[str, Any], int]] = {
        "nothing for ever": ({"paths": [], "more": True}, errno.ETIMEDOUT),
        "disks for ever": ({"paths": [], "more": True, "endless": True}, errno.EFBIG)}
    for what, (fault, number) in endless.items():
        call(t, hostile.misbehave, place="control", fault="tell_disks", **fault)
        with t.expect_errno(number):
            t.client.call_within(120, guest_discovery.lines, line=line)
        t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], f"{what}: sessions afterwards")
    call(t, hostile.misbehave, place="control", fault="tell_disks", paths=["a b", "c"])
    lines = t.client.call(guest_discovery.lines, line=line)
    t.equal(lines, ["8 512 ro,rw,migration 0 - - a b", "8 512 ro,rw,migration 0 - - c"], "an honest server's")
    call(t, hostile.misbehave, place="session_info", fault="extension", without=1 << 6)
    with t.expect_errno(errno.EOPNOTSUPP):
        t.client.call(guest_discovery.lines, line=line)
