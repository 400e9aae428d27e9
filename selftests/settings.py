# SPDX-License-Identifier: GPL-2.0
"""Settings of sessions: ranges, defaults, and that they do what they say."""

from __future__ import annotations

import errno
import time
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import disks
from lib import guest_io
from lib import guest_links
from lib import rnbd

TOPOLOGY = "two"

# Name: smallest, largest, default.
SETTINGS = {
    "hb_interval_ms": (10, 600000, 5000),
    "hb_missed_max": (1, 100, 5),
    "reconnect_delay_ms": (100, 3600000, 30000),
    "connect_timeout_ms": (100, 600000, 30000),
    "ack_timeout_ms": (0, 60000, 0),
    "max_reconnect_attempts": (-1, 9999, -1),
    "hold_io_ms": (0, 86400000, 0),
}
SERVER_PARAMETERS = ("hb_interval_ms", "hb_missed_max", "ack_timeout_ms")
NOT_NUMBERS = ("", "x", " 5", "5 5", "0x20", "1.5", "\xff")
NO_INTEGERS = ("2147483648", "-2147483649", "99999999999999999999")


def session_file(name: str) -> str:
    """The file of a setting."""
    return f"{rnbd.CLIENT_SESSIONS}/sess/{name}"


def parameter_file(module: str, name: str) -> str:
    """The file of a module parameter."""
    return f"/sys/module/{module}/parameters/{name}"


@case(module_sets=("ours",))
def test_ranges(t: Test) -> None:
    """Files take what is in range, refuse the rest by name, and begin with the parameters."""
    rnbd.load(t, ack_timeout_ms=0)
    rnbd.map_device(t, disks.PLAIN)
    for name, (least, most, default) in SETTINGS.items():
        path = session_file(name)
        t.equal(t.client.read(path), str(default), f"default of {name}")
        if name == "hb_interval_ms":
            # With the shortest one a machine that stands still for a moment would lose the path.
            rnbd.configure(t, hb_missed_max=SETTINGS["hb_missed_max"][1])
        t.equal(t.client.read(parameter_file("rtrs_client", name)), str(default),
                f"default of the parameter {name}")
        for value in (least, most):
            t.client.write(path, f"{value}\n")
            t.equal(t.client.read(path), str(value), name)
        for number, texts in ((errno.EINVAL, (str(least - 1), str(most + 1), *NOT_NUMBERS)),
                              (errno.ERANGE, NO_INTEGERS)):
            for text in texts:
                mark = t.client.log_mark()
                with t.expect_errno(number):
                    t.client.write(path, (text or "\n").encode("latin1"))
                t.client.wait_log(f"sess: {name}: ", mark)
        t.equal(t.client.read(path), str(most), f"{name} after refused values")
        t.client.write(path, str(default))
        rnbd.configure(t, hb_missed_max=SETTINGS["hb_missed_max"][2])
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "connected", "path state")


@case(module_sets=("ours",))
def test_parameters(t: Test) -> None:
    """New sessions take their settings from the parameters; a bad one stops the module."""
    values = {name: (least + most) // 2 for name, (least, most, _) in SETTINGS.items()}
    rnbd.load(t, ack_timeout_ms=0,
              rtrs_client=" ".join(f"{name}={value}" for name, value in values.items()))
    rnbd.map_device(t, disks.PLAIN)
    for name, value in values.items():
        t.equal(t.client.read(session_file(name)), str(value), name)
        t.equal(t.client.read(parameter_file("rtrs_client", name)), str(value), name)


@case(module_sets=("ours",))
def test_bad_parameters(t: Test) -> None:
    """A parameter out of range is named in the log and the module does not load."""
    rnbd.load(t, client=False, server=False)
    for module, names in (("rtrs_client", SETTINGS), ("rtrs_server", SERVER_PARAMETERS)):
        for name in names:
            least, most, _ = SETTINGS[name]
            for text in (str(least - 1), str(most + 1), "x"):
                mark = t.client.log_mark()
                with t.expect_errno(errno.EINVAL):
                    t.client.modules_load(module, **{module: f"{name}={text}"})
                t.client.wait_log(f"{name}: .*{text}", mark)
                t.check(not t.client.module_loaded(module), f"{module} is loaded")
    t.client.modules_unload_all()


def silence(t: Test, node: Node, watcher: Node, path: str, **condition: Any) -> float:
    """Stop a machine; the seconds until a file on the other one says so."""
    started = time.monotonic()
    node.pause()
    t.defer(node.resume)
    watcher.wait_for(path, timeout=20, **condition)
    return time.monotonic() - started


@case(module_sets=("ours",))
def test_silent_server(t: Test) -> None:
    """A server that falls silent is noticed in under a second, and found again."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    state = f"{rnbd.client_path(t, 'sess')}/state"
    rnbd.configure(t, hb_missed_max=5, reconnect_delay_ms=1000, connect_timeout_ms=10000)
    taken: list[float] = []
    # A host that is busy with other work adds to any one.
    while len(taken) < 3 and min(taken, default=60.0) >= 1.0 * t.client.slow:
        # The 5 s that the first beat waits for must not matter.
        rnbd.configure(t, hb_interval_ms=100)
        taken.append(silence(t, t.server, t.client, state, matches="disconnected"))
        with t.expect_errno(errno.EIO):
            t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
        time.sleep(1)
        rnbd.configure(t, hb_interval_ms=5000)
        t.server.resume()
        started = time.monotonic()
        t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
        t.say(f"server silent: noticed after {taken[-1]:.2f} s, "
              f"back after {time.monotonic() - started:.2f} s")
    t.check(min(taken) < 1.0 * t.client.slow, f"noticing a silent server took {taken} s")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=2)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=4096, seed=2),
             None, "first byte that differs")


@case(module_sets=("ours",))
def test_silent_client(t: Test) -> None:
    """A server with fast heartbeats forgets a client that falls silent."""
    rnbd.load(t, rtrs_server="hb_interval_ms=100 hb_missed_max=5")
    device = rnbd.map_device(t, disks.PLAIN)
    rnbd.configure(t, reconnect_delay_ms=500, hold_io_ms=60000)
    folder = f"{rnbd.SERVER_SESSIONS}/sess"
    taken = silence(t, t.client, t.server, folder, gone=True)
    t.say(f"client silent: forgotten after {taken:.2f} s")
    t.check(taken < 5 * t.server.slow, f"forgetting a silent client took {taken:.2f} s")
    t.client.resume()
    # Its own heartbeats are slow, but what it sends is not answered any more.
    t.client.wait_for(f"{rnbd.client_path(t, 'sess')}/stats/reconnects", matches="^[1-9]",
                      timeout=60)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=60)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=2)


@case(module_sets=("ours",))
def test_connect_timeout(t: Test) -> None:
    """Mapping a device of a server that does not answer fails after the time set."""
    rnbd.load(t, rtrs_client="connect_timeout_ms=1000")
    # So that the server's address is known.
    t.client.call(guest_links.pass_behind, address=t.server.address)
    t.server.pause()
    t.defer(t.server.resume)
    started = time.monotonic()
    with t.expect_errno(errno.ETIMEDOUT, errno.EHOSTUNREACH):
        rnbd.map_device(t, disks.PLAIN)
    taken = time.monotonic() - started
    t.check(taken < 6 * t.client.slow, f"the attempt took {taken:.1f} s")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions afterwards")
