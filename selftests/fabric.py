# SPDX-License-Identifier: GPL-2.0
"""The self test of a fabric: a good one passes, and each fault is named."""

from __future__ import annotations

import errno
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import cable
from lib import disks
from lib import program
from lib import rnbd

TOPOLOGY = "two"

CLIENT, SERVER = "rtrs_test_client", "rtrs_test_server"
FOLDER = "/sys/class/rtrs-test/fabric"
# Exit codes of rnbdctl.
BUSY, UNREACHABLE, UNSUPPORTED, CHECK = 5, 6, 7, 8
FINE = "loss 0% corrupt 0% delay 0ms"
# What every test that comes to its end has tried, beside the sizes.
ERROR_PATHS = {"wrong-key", "beyond-end", "ended-key", "long-message", "no-receive", "late-write"}
KINDS = {"send", "send-imm", "write", "write-imm", "write-segments", "peer-write", "peer-write-imm",
         "peer-invalidate", "local-invalidate", "register", "request-write", "request-read", "queue-write",
         "queue-read"}


def load(t: Test) -> None:
    """Have both halves, and the program; unloaded when the test is over."""
    t.client.modules_unload_all()
    t.defer(t.client.modules_unload_all)
    parameters = f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}"
    t.server.modules_load(SERVER, rtrs_server=f"{parameters} {rnbd.fewer_buffers(t)}".rstrip())
    t.client.modules_load(CLIENT, rtrs_client=parameters)
    program.install(t.client)


def run(t: Test, *options: object, code: int = 0, timeout: float = 100.0) -> Any:
    """Test the way to the server; what was found."""
    return program.json_of(t.client, "fabric", "test", t.server.address, *options, code=code,
                           timeout=timeout * t.client.slow)


def names(found: Any) -> list[str]:
    """The faults that were found."""
    return [fault["fault"] for fault in found["faults"]]


def few(t: Test) -> list[object]:
    """Options of a short test, in which a machine that is emulated beside others is not taken for a slow fabric."""
    return ["--max-latency", 5000, "--requests", t.scaled(200, 20), "--mib", t.scaled(4, 1)]


def say(t: Test, what: str, found: Any) -> None:
    """Say what was measured."""
    latencies = [one for one in found["latencies"] if one["size"] == 1]
    medians = ", ".join(f"{one['direction']} {one['median_ns'] // 1000} us" for one in latencies)
    counted = ", ".join(f"{one['name']} {one['value']}" for one in found["counters"])
    t.say(f"TOTAL {what}: faults {names(found)}, errno {found['errno']}, medians {medians or 'none'}, lost "
          f"{found['lost_packets']} of {found['packets']} packets; {counted}")


@case(module_sets=("ours",), timeout=300)
def test_good(t: Test) -> None:
    """Between two good machines there is no fault: all kinds, sizes, queues and error paths are as they should be."""
    load(t)
    found = run(t, *few(t))
    say(t, "a good link", found)
    t.equal((found["ok"], names(found), found["errno"]), (True, [], None), "verdict")
    tried = {one["name"] for one in found["cases"]}
    t.equal(sorted((KINDS | ERROR_PATHS) - tried), [], "cases that were not tried")
    bad = [one for one in found["cases"] if one["outcome"] != "ok"]
    t.equal(bad, [], "cases that are not ok")
    mtu, largest = found["mtu"], found["max_io_size"]
    for name, most in (("send", 8192), ("write", 65536), ("peer-write", 65536), ("request-write", largest),
                       ("request-read", largest)):
        sizes = {one["size"] for one in found["cases"] if one["name"] == name}
        wanted = {0, 1, mtu - 1, mtu, mtu + 1, 4095, 4096, 4097, most}
        t.equal(sorted(wanted - sizes), [], f"sizes of {name} that were not tried")
    for name in ("queue-write", "queue-read"):
        queues = sorted(one["size"] for one in found["cases"] if one["name"] == name)
        t.equal(queues, list(range(found["queues"])), f"queues of {name}")
    for one in found["latencies"]:
        t.check(0 < one["median_ns"] <= one["p99_ns"] <= one["p999_ns"] <= one["max_ns"], f"latency {one}")
    for one in found["bandwidths"]:
        t.check(one["bytes"] >= 1 << 20 and one["ns"] > 0, f"bandwidth {one}")
    if t.quick:
        return
    text = program.run(t.client, "fabric", "test", t.server.address, *few(t), timeout=100.0 * t.client.slow).out
    t.check("Faults" in text and "none" in text and "P99.9" in text, text)
    t.say(text)


@case(module_sets=("ours",), timeout=300, quick=())
def test_delay(t: Test) -> None:
    """5 ms of delay on one side are named."""
    cable.prepare(t)
    load(t)
    cable.change(t, t.server, [0], "delay 5ms", FINE)
    found = run(t, "--requests", 20, "--mib", 1, code=CHECK)
    say(t, "5 ms of delay", found)
    t.check("delay" in names(found), f"faults: {names(found)}")
    t.check("loss" not in names(found) and "mtu" not in names(found), f"faults: {names(found)}")


@case(module_sets=("ours",), timeout=300)
def test_firewall(t: Test) -> None:
    """A firewall that drops UDP port 4791 is named, and told from a machine that is away and a server that is not."""
    load(t)
    t.server.run("tc qdisc add dev eth0 clsact")
    t.defer(t.server.run, "tc qdisc del dev eth0 clsact", check=False)
    t.server.run("tc filter add dev eth0 ingress protocol ip u32 match u8 17 0xff at 9 "
                 "match u16 4791 0xffff at 22 action drop")
    found = run(t, *few(t), code=UNREACHABLE)
    t.equal(names(found), ["blocked"], "faults")
    t.server.run("tc qdisc del dev eth0 clsact")
    t.server.module_unload(SERVER)
    found = run(t, *few(t), code=UNREACHABLE)
    t.equal(names(found), ["no-listener"], "faults without a server")
    t.check("modprobe rtrs_test_server" in found["faults"][0]["advice"], f"advice: {found['faults']}")


@case(quick=(), module_sets=("ours",), timeout=600)
def test_away(t: Test) -> None:
    """A link that carries nothing is a machine that is away."""
    cable.prepare(t)
    load(t)
    cable.cut(t, 0)
    found = run(t, *few(t), code=UNREACHABLE)
    t.equal(names(found), ["away"], "faults")


@case(quick=(), module_sets=("ours",), timeout=600)
def test_loss(t: Test) -> None:
    """One lost packet in a thousand, in both directions, is named."""
    cable.prepare(t)
    load(t)
    for node in t.nodes:
        cable.change(t, node, [0], "loss 0.1%", FINE)
    found = run(t, "--requests", 100, "--mib", t.scaled(32, 8), code=CHECK, timeout=400)
    say(t, "loss of 0.1 %", found)
    t.check("loss" in names(found), f"faults: {names(found)}")
    t.check("mtu" not in names(found) and "corruption" not in names(found), f"faults: {names(found)}")


@case(quick=(), module_sets=("ours",), timeout=900)
def test_corruption(t: Test) -> None:
    """One packet in 10,000 with a wrong bit: soft-RoCE drops it unseen, so it is named as loss."""
    cable.prepare(t)
    load(t)
    for node in t.nodes:
        cable.change(t, node, [0], "corrupt 0.01%", FINE)
    found = run(t, "--requests", 100, "--mib", t.scaled(128, 96), code=CHECK, timeout=800)
    say(t, "one damaged packet in 10,000", found)
    t.check("loss" in names(found), f"faults: {names(found)}")
    t.check("corruption" not in names(found), "wrong bytes have come through")


@case(quick=(), module_sets=("ours",), timeout=600)
def test_mtu(t: Test) -> None:
    """An MTU of half the size on one side, either one, is named."""
    load(t)
    for node in t.nodes:
        before = node.read("/sys/class/net/eth0/mtu").strip()
        t.defer_once(node.run, f"ip link set eth0 mtu {before}")
        node.run("ip link set eth0 mtu 750")
        found = run(t, *few(t), code=CHECK, timeout=400)
        say(t, f"MTU 750 at {node.name}", found)
        t.equal(names(found)[:1], ["mtu"], f"faults with an MTU of 750 at {node.name}")
        t.check(found["mtu"] != found["server_mtu"], f"MTUs {found['mtu']} and {found['server_mtu']}")
        node.run(f"ip link set eth0 mtu {before}")
    found = run(t, *few(t), timeout=400)
    t.equal(names(found), [], "faults afterwards")


@case(quick=(), module_sets=("ours",), timeout=300)
def test_mapped_disks(t: Test) -> None:
    """With a disk mapped from the server the test is refused unless it is asked for; the disk works on."""
    t.client.modules_unload_all()
    t.defer(t.client.modules_unload_all)
    rnbd.load(t)
    t.server.modules_load(SERVER)
    t.client.modules_load(CLIENT)
    program.install(t.client)
    device = rnbd.map_device(t, disks.PLAIN)
    refused = program.run(t.client, "fabric", "test", t.server.address, code=BUSY).err
    t.check("--with-mapped-disks" in refused and "session sess" in refused, refused)
    found = run(t, *few(t), "--with-mapped-disks")
    t.equal(names(found), [], "faults")
    rnbd.works(t, device)


@case(quick=(), module_sets=("ours",), timeout=300)
def test_control(t: Test) -> None:
    """Wrong arguments are refused; one test runs at a time, can be stopped, and ends when its module goes."""
    load(t)
    good = f"path=ip:{t.server.address}"
    for text in ("\n", "port=1236", "path=10.0.0.1", f"{good} port=0", f"{good} requests=0", f"{good} what=1"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{FOLDER}/run", text)
    t.equal(t.client.read(f"{FOLDER}/result"), "", "result of no test")
    t.client.write(f"{FOLDER}/run", f"{good} requests=100000")
    t.client.wait_for(f"{FOLDER}/result", matches="(?s).*step 6 7 latency.*", timeout=60)
    with t.expect_errno(errno.EBUSY):
        t.client.write(f"{FOLDER}/run", good)
    t.client.write(f"{FOLDER}/stop", "1")
    t.client.wait_for(f"{FOLDER}/result", matches=f"(?s).*end -{errno.EINTR}.*", timeout=20)
    found = run(t, *few(t))
    t.equal(names(found), [], "faults of the next test")
    t.client.write(f"{FOLDER}/run", f"{good} requests=100000")
    t.client.wait_for(f"{FOLDER}/result", matches="(?s).*step 3 7 error-paths.*", timeout=60)
    t.server.module_unload(SERVER)
    t.client.wait_for(f"{FOLDER}/result", matches="(?s).*end -.*", timeout=120)
    t.client.module_unload(CLIENT)
    t.equal(t.client.exists(FOLDER), False, "the folder is there")


@case(quick=(), module_sets=("ours",), timeout=300)
def test_without_module(t: Test) -> None:
    """Without the client's module the program says what to load."""
    load(t)
    t.client.module_unload(CLIENT)
    said = program.run(t.client, "fabric", "test", t.server.address, code=UNSUPPORTED).err
    t.check("modprobe rtrs_test_client" in said, said)
