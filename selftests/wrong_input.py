# SPDX-License-Identifier: GPL-2.0
"""Wrong words for map_device: the errno, a log line that names the cause, nothing left."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"

GOOD = {"sessname": "sess", "path": "ip:{server}", "device_path": disks.PLAIN}
USAGE = ('Usage: echo "[dest_port=server port number] sessname=<name of the rtrs session> '
         "path=<[srcaddr@]dstaddr> [path=<[srcaddr@]dstaddr>] device_path=<full path on remote side> "
         '[access_mode=<ro|rw|migration>] [nr_poll_queues=<number of queues>]" > map_device\n\n'
         "addr ::= [ ip:<ipv4> | ip:<ipv6> | gid:<gid> ]\n")


def refused(t: Test, text: str, number: int | tuple[int, ...], log: str) -> None:
    """Writing ``text`` must fail with the errno; ``log`` must match what our modules say."""
    text = text.replace("{server}", t.server.address)
    with rnbd.refusal(t, f"`{text[:80]}`", number if isinstance(number, tuple) else (number,), log):
        t.client.write(rnbd.MAP_DEVICE, text)


def options(**changes: object) -> str:
    """A good line with changes; None leaves an option out."""
    words = {**GOOD, **changes}
    return " ".join(f"{name}={value}" for name, value in words.items() if value is not None)


def still_works(t: Test) -> None:
    """After all that, a good line maps."""
    rnbd.map_device(t, disks.PLAIN).unmap()


def test_usage(t: Test) -> None:
    """Reading map_device explains it."""
    rnbd.load(t)
    t.equal(t.client.read_bytes(rnbd.MAP_DEVICE).decode(), USAGE, "usage")


def test_missing(t: Test) -> None:
    """Each mandatory option missing, and a path missing for a new session."""
    rnbd.load(t)
    refused(t, "\n", errno.EINVAL, "missing")
    refused(t, options(sessname=None), errno.EINVAL, "sessname")
    refused(t, options(device_path=None), errno.EINVAL, "device_path")
    refused(t, options(path=None), errno.ENXIO, "path")
    still_works(t)


@case(c_known_failure="a doubled option is taken by its last value, a doubled path "
                      "makes a duplicate sysfs folder")
def test_doubled(t: Test) -> None:
    """An option given twice."""
    rnbd.load(t)
    for name, value in (("sessname", "sess"), ("device_path", disks.PLAIN), ("dest_port", "1234"),
                        ("access_mode", "rw"), ("nr_poll_queues", "0")):
        refused(t, f"{name}={value} {options(**({name: value} if name not in GOOD else {}))}",
                errno.EINVAL, f"{name}.*twice")
    refused(t, f"{options()} path={GOOD['path']}", errno.EEXIST, "path")
    still_works(t)


def test_unknown(t: Test) -> None:
    """Words that are no option, and options without a value."""
    rnbd.load(t)
    for word in ("pth=ip:1.2.3.4", "sessname", "=", "=x", "device_path", "access_mode:ro",
                 "Sessname=x", "\x01\x02=\x7f", "sessname\t=x"):
        # The log is one line of printable text, whatever the word holds.
        refused(t, f"{options()} {word}", errno.EINVAL, "map_device: .*option|has no value")
    for name in ("sessname", "device_path", "path", "dest_port", "access_mode", "nr_poll_queues"):
        refused(t, options(**{name: ""}), errno.EINVAL, name)
    still_works(t)


def test_too_long(t: Test) -> None:
    """Names of more than 255 bytes, more than six paths, a line of a page."""
    rnbd.load(t)
    refused(t, options(sessname="s" * 256), errno.EINVAL, "sessname")
    refused(t, options(device_path="/" + "d" * 255), errno.EINVAL, "device_path")
    refused(t, options() + "".join(f" path=ip:10.77.0.{index}" for index in range(2, 8)),
            errno.ENOMEM, "path")
    refused(t, options(device_path="/" + "d" * 3800), errno.EINVAL, "device_path")
    still_works(t)


@case(module_sets=("ours",))  # C makes a link whose name is longer than NAME_MAX
def test_long_link(t: Test) -> None:
    """Names that make a link's name too long are refused, before the server opens anything."""
    rnbd.load(t)
    t.server.run("mkdir -p /tmp/long")
    t.defer(t.server.run, "rm -r /tmp/long")
    path = "/tmp/long/" + "d" * 117
    t.server.run(f"ln -s {disks.PLAIN} {path}")
    mark = t.server.log_mark()
    refused(t, options(sessname="s" * 128, device_path=path), errno.ENAMETOOLONG,
            "device_path= and sessname=")
    t.check(not any("opened device" in line for line in t.server.log_since(mark)),
            "the server has opened the disk")
    device = rnbd.map_device(t, path, session="s" * 127)
    t.equal(len(t.client.listdir(rnbd.CLIENT_DEVICES)[0]), 255, "length of the link's name")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    device.unmap()


def test_bad_session_name(t: Test) -> None:
    """A session's name holds no slash and no dot."""
    rnbd.load(t)
    for name in ("a/b", "a.b", "..", "/"):
        refused(t, options(sessname=name), errno.EINVAL, "sess")
    still_works(t)


def test_bad_address(t: Test) -> None:
    """Addresses that are none."""
    rnbd.load(t)
    for address in ("ip:999.1.1.1", "ip:", "ip:1.2.3", "ip:host.example", "gid:zz", "ip:fe80:::1",
                    "ip:{server}@", "@ip:{server}", "ip:{server},", "ip:1.2.3.4.5"):
        refused(t, options(path=address), (errno.EINVAL, errno.EPROTONOSUPPORT), "path=")
    for address in ("{server}", "tcp:{server}", "IP:{server}"):
        refused(t, options(path=address), errno.EPROTONOSUPPORT, "path=")
    still_works(t)


def test_bad_numbers(t: Test) -> None:
    """Ports, poll queues and access modes out of range."""
    rnbd.load(t)
    for value in ("-1", "65536", "99999999999", "12x", "port"):
        refused(t, options(dest_port=value), errno.EINVAL, "dest_port")
    for value in ("-2", "100000", "many"):
        refused(t, options(nr_poll_queues=value), errno.EINVAL, "nr_poll_queues")
    for value in ("r", "RO", "read", "rw,ro"):
        refused(t, options(access_mode=value), errno.EINVAL, "access_mode")
    still_works(t)


def test_unknown_device(t: Test) -> None:
    """Devices that the server does not have or may not give."""
    rnbd.load(t)
    # The responses of our server do not tell which files its machine has.
    no_disk, below_a_file = (errno.ENOENT, errno.ENOENT) if t.modules == "ours" else (errno.ENOTBLK, errno.ENOTDIR)
    for path, number in (("/dev/nothing", errno.ENOENT), ("/dev/", no_disk),
                         ("/proc/version", no_disk), ("/dev/console", no_disk),
                         ("/dev/../dev/vdb", errno.EINVAL), ("..", errno.EINVAL),
                         ("/dev/vdb/x", below_a_file)):
        mark = t.server.log_mark()
        refused(t, options(device_path=path), number, "nothing|device")
        t.server.wait_log("Opening device|open", mark)
        t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [], f"exports after {path}")
    still_works(t)


def test_failed_device_keeps_session(t: Test) -> None:
    """A refused device does not disturb the others of its session."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    with t.expect_errno(errno.ENOENT):
        t.client.write(rnbd.MAP_DEVICE, options(device_path="/dev/nothing").replace(
            "{server}", t.server.address))
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "connected", "path state")


def test_search_path(t: Test) -> None:
    """Only what lies below dev_search_path can be mapped; %SESSNAME% is the session's name."""
    rnbd.load(t, rnbd_server="dev_search_path=/dev")
    refused(t, options(device_path="/proc/version"), errno.ENOENT, "device|nothing")
    rnbd.map_device(t, "vdb").unmap()
    rnbd.map_device(t, "//vdb").unmap()
    t.server.run("mkdir -p /tmp/exports/alice; ln -sf /dev/vdb /tmp/exports/alice/disk")
    rnbd.load(t, rnbd_server="dev_search_path=/tmp/exports/%SESSNAME%")
    rnbd.map_device(t, "disk", session="alice").unmap()
    refused(t, options(sessname="bob", device_path="disk"), errno.ENOENT, "device|disk")


def test_poll_queues_need_own_session(t: Test) -> None:
    """A device with poll queues does not share a session."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    with t.expect_errno(errno.EINVAL):
        rnbd.map_device(t, disks.WITHOUT_DISCARD, nr_poll_queues=1)
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    polled = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=2)
    t.equal(polled.attribute("nr_poll_queues"), "2", "nr_poll_queues")
    with t.expect_errno(errno.EINVAL):
        rnbd.map_device(t, disks.WITHOUT_DISCARD)


def test_poll_queues(t: Test) -> None:
    """Polled IO works on poll queues."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN, nr_poll_queues=-1)
    t.equal(device.attribute("nr_poll_queues"), t.client.sh("nproc"), "nr_poll_queues")
    from lib.fio import verified

    report = verified(t.client, device.path, rw="randwrite", bs="4k", iodepth=4, hipri=1,
                      size=t.scaled(1 << 20, 128 << 10))
    t.equal(report.errors, 0, "errors")
