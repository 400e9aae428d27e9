# SPDX-License-Identifier: GPL-2.0
"""Which clients the server lets open which devices."""

from __future__ import annotations

import errno
import itertools
import re
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import guest_policy
from lib import policy
from lib import program
from lib import rnbd

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
MODES = ("ro", "rw", "migration")


def current(t: Test) -> str:
    """What the policy's file reads."""
    return t.server.read_bytes(policy.FILE).decode()


def not_opened(t: Test, device: str, **options: Any) -> None:
    """The server refuses to open a device for us."""
    with t.expect_errno(errno.EACCES):
        rnbd.map_device(t, device, **options)


def refusals(t: Test, mark: int) -> list[str]:
    """What the server has said of refused devices."""
    return [line for line in t.server.log_since(mark) if "export policy refuses" in line]


@case(module_sets=ONLY_OURS, quick=EVERYWHERE)
def test_listed_only(t: Test) -> None:
    """Listed sessions open listed devices in listed modes, and the rest is EACCES."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    address = f"ip:{t.server.address}"
    policy.load(t, "# Two clients.\n", policy.rule("web*", address, disks.PLAIN, "ro"),
                policy.rule("db", address, "/dev/vd*", "rw,migration"))
    web = rnbd.map_device(t, disks.PLAIN, session="web1", access_mode="ro")
    for mode in MODES:
        not_opened(t, disks.WITHOUT_DISCARD, session="web1", access_mode=mode)
    web.unmap()
    not_opened(t, disks.PLAIN, session="web1", access_mode="rw")
    held = rnbd.map_device(t, disks.PLAIN, session="db", access_mode="migration")
    rnbd.map_device(t, disks.WITHOUT_DISCARD, session="db", access_mode="rw").unmap()
    not_opened(t, disks.WITHOUT_DISCARD, session="db", access_mode="ro")
    # Whether a device exists is nobody's business that may not open it.
    not_opened(t, "/dev/there-is-no-such-disk", session="db")
    not_opened(t, "/dev/./vdb", session="db")
    with t.expect_errno(errno.ENOENT):
        rnbd.map_device(t, "/dev/vdxyz", session="db")
    with t.expect_errno(errno.EINVAL):
        rnbd.map_device(t, "/dev/../dev/vdb", session="db")
    held.unmap()
    not_opened(t, disks.PLAIN, session="other", access_mode="ro")
    policy.clear(t)
    rnbd.map_device(t, disks.PLAIN, session="other").unmap()


@case(module_sets=ONLY_OURS, quick=("stock", "debug"))
def test_logged_once(t: Test) -> None:
    """A session's refusals are logged once per policy, with client, device and mode."""
    rnbd.load(t)
    policy.load(t, policy.rule("sess", "*", disks.PLAIN, "ro"))
    rnbd.map_device(t, disks.PLAIN, access_mode="ro")
    mark = t.server.log_mark()
    for device in (disks.WITHOUT_DISCARD, disks.LARGE_BLOCKS, "/dev/nothing"):
        not_opened(t, device)
    lines = refusals(t, mark)
    t.equal(len(lines), 1, f"lines about 3 refusals: {lines}")
    for part in ('"sess"', f"ip:{t.server.address}", '"/dev/vdc"', "(rw)"):
        t.check(part in lines[0], f"{part} is not in {lines[0]!r}")
    policy.load(t, policy.rule("sess", "*", disks.PLAIN, "ro"))
    not_opened(t, disks.LARGE_BLOCKS)
    t.equal(len(refusals(t, mark)), 2, "lines after another policy")


@case(module_sets=ONLY_OURS)
def test_wrong_policies(t: Test) -> None:
    """A policy with a wrong line is refused whole, with the line; the old one stays."""
    rnbd.load(t, client=False)
    text = policy.file_text(policy.rule())
    t.equal(current(t), "", "file without a policy")
    t.equal(t.server.mode(policy.FILE), 0o600, "mode of the file")
    t.server.write(policy.FILE, text)
    t.defer(policy.clear, t)
    good = policy.rule()
    cases = {
        policy.file_text(good, "allow\n"): r"line 2: session= is missing",
        policy.file_text(good, good, "deny session=x\n"): r'line 3: "deny" is not "allow"',
        policy.file_text(good, policy.rule(client="ip:10.0.0.1/8")):
            r'line 2: client="ip:10.0.0.1/8" has bits set behind its prefix',
        policy.file_text(policy.rule(mode="wr"), good): r'line 1: mode="wr" is not one of ro, rw and migration',
        good: r'the first line is "allow .*", neither "policy BYTES" nor "clear"',
        f"policy {len(good) - 5}\n{good}": r"5 bytes more than the first line says",
        "policy 1048577\n" + good: r"too long \(1048577 bytes, at most 1048576\)",
        "clear\n" + good: r"bytes more than the first line says",
    }
    for written, message in cases.items():
        mark = t.server.log_mark()
        with t.expect_errno(errno.EINVAL, errno.EFBIG):
            t.server.write(policy.FILE, written)
        t.server.wait_log(f"export_policy: .*{message}", mark)
        t.equal(current(t), text, f"file after {written[:40]!r}")
    t.server.write(policy.FILE, "clear\n")
    t.equal(current(t), "", "file after clear")


@case(module_sets=ONLY_OURS)
def test_replaced_whole(t: Test) -> None:
    """A policy of many pages takes the old one's place when its last byte is there."""
    rnbd.load(t)
    old = policy.file_text(policy.rule("sess"))
    new = policy.file_text(*(policy.rule(f"sess{number}") for number in range(1500)), policy.rule("last"))
    t.check(len(new) > 64 << 10, f"only {len(new)} bytes")
    t.server.write(policy.FILE, old)
    t.defer(policy.clear, t)
    cuts = (0, 5000, len(new) - 1, len(new))
    pieces = [new[start:end] for start, end in itertools.pairwise(cuts)]
    read = t.server.call(guest_policy.write, pieces=pieces)
    t.check(read == [old, old, new], "what the file reads is not the old one, old one, new one")
    rnbd.map_device(t, disks.PLAIN, session="last").unmap()
    not_opened(t, disks.PLAIN, session="sess")
    # Neither of two who write at a time gets half of the other's.
    results = t.server.call(guest_policy.interleaved, first=[new[:4096], new[4096:8192]],
                            second=[old[:20], old[20:]])
    t.equal(results, [0, 0, errno.EINVAL, errno.EINVAL], "errnos of two writers")
    t.check(current(t) == new, "two writers at a time left another policy")


@case(module_sets=ONLY_OURS)
def test_rnbdctl(t: Test) -> None:
    """The program loads, checks, shows and clears policies, and names a wrong line."""
    rnbd.load(t)
    program.install(t.server)
    t.defer(policy.clear, t)
    path = "/etc/rnbd/export.policy"
    t.server.run("mkdir -p /etc/rnbd")
    t.defer(t.server.run, "rm -r /etc/rnbd")
    command = "rnbdctl server policy"
    text = "# Many.\n" + policy.rule("sess") * 200
    t.server.create(path, text)
    t.equal(t.server.sh(f"{command} check"), "200 rules, no mistake", "check")
    t.equal(current(t), "", "file after a check")
    t.server.run(f"{command} load")
    t.equal(current(t), policy.file_text(text), "file after load")
    t.check(t.server.run(f"{command} show").out == text, "show prints another policy")
    t.check(program.json_of(t.server, "server", "policy", "show")["loaded"], "show -o json")
    not_opened(t, disks.PLAIN, session="other")
    t.server.create(path, policy.rule("other") + "allow session=x\n")
    result = t.server.run(f"{command} load", check=False)
    t.equal(result.rc, 9, "exit code for a wrong policy")
    t.check(f"{path}:2: client= is missing" in result.err, f"said {result.err!r}")
    t.equal(current(t), policy.file_text(text), "file after a wrong policy")
    t.server.run(f"echo -n '{policy.rule('other').strip()}' | {command} load -")
    rnbd.map_device(t, disks.PLAIN, session="other").unmap()
    t.server.run(f"{command} clear")
    t.check("no policy" in t.server.sh(f"{command} show"), "show without a policy")
    t.server.modules_unload_all()
    result = t.server.run(f"{command} load -", check=False)
    t.equal(result.rc, 7, f"exit code without the module; {result.err!r}")


@case(module_sets=ONLY_OURS)
def test_addresses(t: Test) -> None:
    """All paths of a session must come from where its devices are allowed."""
    rnbd.load(t)
    address, address6 = t.server.address, t.server.address6
    network = re.sub(r"\.\d+$", ".0/24", address)
    policy.load(t, policy.rule(client=f"ip:{network}"))
    mark = t.server.log_mark()
    not_opened(t, disks.PLAIN, paths=[f"ip:{address6}"])
    t.server.wait_log(f"a client from ip:{t.client.address6} gets no session", mark)
    t.equal(refusals(t, mark), [], "devices that a client without a session has asked for")
    not_opened(t, disks.PLAIN, paths=[f"ip:{address}", f"ip:{address6}"])
    device = rnbd.map_device(t, disks.PLAIN)
    folder = f"{rnbd.CLIENT_SESSIONS}/sess"
    mark = t.server.log_mark()
    with t.expect_errno(errno.ECONNRESET, errno.ECONNABORTED, errno.EACCES, errno.EIO,
                        errno.ENOTCONN, errno.ETIMEDOUT):
        t.client.write(f"{folder}/add_path", f"ip:{address6}", timeout=60)
    t.equal(len(refusals(t, mark)), 1, "lines about the path")
    t.equal(len(t.server.listdir(f"{rnbd.SERVER_SESSIONS}/sess/paths")), 1, "paths on the server")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    policy.load(t, policy.rule(client=f"ip:{address6}/128"), policy.rule(client=f"ip:{address}/32"))
    t.client.write(f"{folder}/add_path", f"ip:{address6}")
    t.equal(len(t.server.listdir(f"{rnbd.SERVER_SESSIONS}/sess/paths")), 2, "paths on the server")


@case(module_sets=ONLY_OURS)
def test_open_devices_stay(t: Test) -> None:
    """Another policy is for what is opened afterwards; force_close ends what is open."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    policy.load(t, "# Nobody.\n")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    not_opened(t, disks.WITHOUT_DISCARD)
    mark = t.client.log_mark()
    t.server.write(f"{rnbd.SERVER_DEVICES}/vdb/sessions/sess/force_close", "1")
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.client.wait_log("has closed the device, and the server's export policy does not let this client open the device "
                      "again with this access_mode: requests fail", mark)
    with t.expect_errno(errno.EACCES):
        t.client.write(f"{device.sysfs}/remap_device", "1")
    t.equal(device.attribute("state"), "closed", "state of a device that is not exported any more")
    device.unmap("force")
    not_opened(t, disks.PLAIN)


@case(module_sets=ONLY_OURS)
def test_required(t: Test) -> None:
    """With require_export_policy nobody is let in before there is a policy."""
    rnbd.load(t, rnbd_server="require_export_policy=Y")
    with t.expect_errno(errno.ECONNREFUSED, errno.ECONNRESET):
        rnbd.map_device(t, disks.PLAIN)
    with t.expect_errno(errno.EINVAL):
        t.server.write(policy.FILE, policy.file_text("allow\n"))
    with t.expect_errno(errno.ECONNREFUSED, errno.ECONNRESET):
        rnbd.map_device(t, disks.PLAIN)
    t.server.write(policy.FILE, policy.file_text(policy.rule("sess")))
    rnbd.map_device(t, disks.PLAIN).unmap()
    with t.expect_errno(errno.EPERM):
        t.server.write(policy.FILE, "clear")
    t.server.write(policy.FILE, policy.file_text())
    not_opened(t, disks.PLAIN)
    rnbd.load(t)
    rnbd.map_device(t, disks.PLAIN).unmap()


@case(module_sets=ONLY_OURS)
def test_search_path(t: Test) -> None:
    """What counts is the path below the search path, with the session's name in it."""
    folder = "/tmp/exports"
    t.server.run(f"set -e; mkdir -p {folder}/other; ln -s {disks.PLAIN} {folder}/other/b")
    t.defer(t.server.run, f"rm -r {folder}")
    rnbd.load(t, rnbd_server=f"dev_search_path={folder}/%SESSNAME%")
    policy.load(t, policy.rule(device=f"{folder}/sess/*"))
    not_opened(t, "b", session="other")
    policy.load(t, policy.rule(device=f"{folder}/*/b"))
    rnbd.map_device(t, "//b", session="other").unmap()
    # A link is what it is called, not where it leads.
    policy.load(t, policy.rule(device=disks.PLAIN))
    not_opened(t, "b", session="other")


@case(module_sets=ONLY_OURS)
def test_hostile_client(t: Test) -> None:
    """A client that makes names up learns nothing and does not fill the log."""
    rnbd.load(t, client=False, rtrs_server="sess_queue_depth=64")
    policy.load(t, policy.rule("name*", device=disks.WITHOUT_DISCARD))
    t.client.run("modprobe rdma_ucm")
    mark = t.server.log_mark()
    sessions = [f"name{number}" for number in range(12)]
    devices = [disks.PLAIN, "/dev/nothing", "dev//vdb", "/dev/vdb/", "/", "\\040*", "/dev/*"]
    opens, requests = t.client.call_within(90, guest_policy.probe, address=t.server.address,
                                           sessions=sessions, devices=devices)
    for what, numbers in opens.items():
        t.equal(numbers, [errno.EACCES] * 3, f"errnos for {what}")
    t.check(0 not in requests, f"errnos of requests without a device: {requests}")
    lines = refusals(t, mark)
    t.check(1 <= len(lines) <= len(sessions), f"{len(lines)} lines about {len(opens) * 3} refusals")


@case(module_sets=ONLY_OURS, quick=EVERYWHERE)
def test_session_without_a_rule(t: Test) -> None:
    """A session that no rule is about gets no memory; its client is told, and the log says why."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64 max_chunk_size=131072 chunk_pool_mb=8")
    policy.load(t, policy.rule("friend", f"ip:{t.client.address}", mode="ro"))
    server, client = t.server.log_mark(), t.client.log_mark()
    not_opened(t, disks.PLAIN, session="other", access_mode="ro")
    who = rf'session "other" from ip:{t.client.address} \(no proof of identity\)'
    said = f"{who}: the export policy refuses the session, as no rule matches it"
    t.server.wait_log(said, server)
    t.client.wait_log("refused by the server: EACCES", client)
    rnbd.map_device(t, disks.PLAIN, session="friend", access_mode="ro").unmap()
    pool = "/sys/module/rtrs_server/chunk_pool"
    total = t.server.read(f"{pool}/total_bytes")
    t.server.wait_for(f"{pool}/free_bytes", matches=f"^{total}$")
    # The path of a client without room for the response is there until it has room.
    t.client.run("modprobe rdma_ucm; rm -f /run/go")
    server = t.server.log_mark()
    refused = t.client.start_call(60, guest_policy.refused, t.server.address, session="other", room="/run/go")
    t.server.wait_log(said, server)
    t.equal(t.server.read("/sys/module/rtrs_server/clients/half_open"), "1", "half-open paths")
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), [], "sessions")
    t.equal(t.server.read(f"{pool}/free_bytes"), total, "free memory of sessions")
    t.client.create("/run/go", "")
    t.equal(refused.wait(), -errno.EACCES, "what the client is told")
    t.server.wait_for("/sys/module/rtrs_server/clients/paths", matches="^0$")
    # Nothing in C's protocol says why.
    t.equal(t.client.call_within(60, guest_policy.refused, t.server.address, session="other", features=0), None,
            "what a client is told that does not know of refusals")


@case(module_sets=ONLY_OURS)
def test_one_address_per_path(t: Test) -> None:
    """A connection from another address is not one of the path's."""
    rnbd.load(t, client=False)
    # Of another network: the client's address is this one, too, then.
    other = re.sub(r"^\d+\.\d+", "10.99", t.server.address)
    t.server.run(f"ip address add {other}/24 dev dummy0")
    t.defer(t.server.run, f"ip address del {other}/24 dev dummy0")
    t.client.run("modprobe rdma_ucm")
    mark = t.server.log_mark()
    number = t.client.call(guest_policy.other_address, address=t.server.address, other=other)
    t.equal(number, -errno.ECONNRESET, "errno of the second connection")
    t.server.wait_log(f"a connection from ip:{other}.*, which is not the client of the path", mark)
