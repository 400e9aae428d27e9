# SPDX-License-Identifier: GPL-2.0
"""Our ends and C's mixed, both invalidation modes: failover, and servers that go and come back."""

import errno
import time

from lab.selftest_case import case
from lib import cable
from lib import disks
from lib import rnbd
from lib.stream import Stream
from lib.stream import seconds
from lib.stream import verified

TOPOLOGY = "two"
LINKS = 2

SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"
# The C client notices a silent path after 30 s and waits as long before it connects again.
C_PATIENCE = 100.0


class Probe:
    """Instead of a Stream for C clients, which fail what is in flight on a path that goes, although
    another one is up (also with C servers): data go through the device at each step."""

    def __init__(self, t, device):
        self._t, self._device = t, device
        self._result = {"writes": 0, "reads": 0}

    def go_on(self):
        """Write and read back."""
        self._result["writes"] += 1
        self._result["reads"] += 1
        place = {"path": self._device.path, "offset": 1 << 20, "length": 64 << 10,
                 "seed": self._result["writes"]}
        self._t.client.call("guest_io.write", timeout=C_PATIENCE, **place)
        self._t.equal(self._t.client.call("guest_io.compare", timeout=C_PATIENCE, **place), None,
                      "first wrong byte")

    @staticmethod
    def longest():
        """Nothing waits meanwhile."""
        return 0.0

    def stop(self):
        """What was done."""
        return self._result


def path_of(t, link):
    """sysfs folder of the path over a link."""
    names = [name for name in t.client.listdir(f"{SESSION}/paths")
             if name.endswith(f"@ip:{t.server.addresses[link]}")]
    t.equal(len(names), 1, f"paths over link {link}")
    return f"{SESSION}/paths/{names[0]}"


def connect(t, path, stream):
    """Have a path connected again, by hand or by itself, and used."""
    rnbd.reconnect(t, path, C_PATIENCE)
    t.client.wait_for(f"{path}/state", matches="^connected", timeout=C_PATIENCE)
    stream.go_on()


def by_hand(t, stream):
    """Each path is disconnected and connected again; the longest times a request took."""
    gaps = []
    for link in (0, 1):
        path = path_of(t, link)
        stream.longest()
        t.client.write(f"{path}/disconnect", "1")
        t.client.wait_for(f"{path}/state", matches="disconnected")
        stream.go_on()
        gaps.append(stream.longest())
        connect(t, path, stream)
    return gaps


def cut(t, stream):
    """A link carries nothing for a while; the longest a request took, the path's way back."""
    path = path_of(t, 1)
    stream.longest()
    cable.cut(t, 1)
    t.client.wait_for(f"{path}/state", matches="^(?!connected)", timeout=C_PATIENCE)
    stream.go_on()
    gap = stream.longest()
    cable.mend(t, 1)
    started = time.monotonic()
    t.client.wait_for(f"{path}/state", matches="^connected", timeout=C_PATIENCE)
    back = time.monotonic() - started
    stream.go_on()
    return gap, back


def server_returns(t, device, parameters):
    """The server's modules go and come: IO fails meanwhile; paths and device come back alone."""
    t.server.modules_unload_all()
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=C_PATIENCE)
    with t.expect_errno(errno.EIO):
        t.client.call("guest_io.write", path=device.path, offset=0, length=4096, seed=1)
    rnbd.load(t, rtrs_server=parameters)
    started = time.monotonic()
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=C_PATIENCE)
    back = time.monotonic() - started
    t.client.call("guest_io.write", path=device.path, offset=0, length=256 << 10, seed=2)
    t.client.call("guest_io.fsync", path=device.path)
    t.equal(t.server.call("guest_io.compare", path=device.device_path, offset=0,
                          length=256 << 10, seed=2), None, "first wrong byte after the return")
    return back


def faults(t, client, server, mode):
    """All of the above with a module set on each end."""
    for node, name in ((t.client, client), (t.server, server)):
        rnbd.use_set(node, name)
        t.defer(rnbd.use_set, node, t.modules)
    cable.prepare(t)
    parameters = f"always_invalidate={mode}"
    rnbd.load(t, rtrs_server=parameters)
    device = rnbd.map_device(t, disks.PLAIN,
                             paths=[f"ip:{address}" for address in t.server.addresses])
    stream = Probe(t, device) if client == "c" else Stream(t, device)
    gaps = by_hand(t, stream)
    gap, back = cut(t, stream)
    result = stream.stop()
    returned = server_returns(t, device, parameters)
    waited = "" if client == "c" else f"gaps by hand {seconds(gaps)}, link cut {gap:.1f} s, "
    t.say(f"always_invalidate={mode}: {waited}the cut link's path back after {back:.1f} s; device "
          f"back {returned:.1f} s after the server; {verified(result)}")
    device.unmap()
    t.client.wait_for(SESSION, gone=True, timeout=40)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True, timeout=40)


@case(timeout=600, quick=(), module_sets=("ours",))
def test_our_client_invalidating(t):
    """Our client with the C server, always_invalidate=Y."""
    faults(t, "ours", "c", "Y")


@case(timeout=600, quick=(), module_sets=("ours",))
def test_our_client_trusting(t):
    """Our client with the C server, always_invalidate=N."""
    faults(t, "ours", "c", "N")


@case(timeout=600, quick=(), module_sets=("ours",))
def test_our_server_invalidating(t):
    """The C client with our server, always_invalidate=Y."""
    faults(t, "c", "ours", "Y")


@case(timeout=600, quick=(), module_sets=("ours",))
def test_our_server_trusting(t):
    """The C client with our server, always_invalidate=N."""
    faults(t, "c", "ours", "N")


@case(timeout=600, quick=())
def test_same_invalidating(t):
    """Both ends of the set under test, always_invalidate=Y."""
    faults(t, t.modules, t.modules, "Y")


@case(timeout=600, quick=())
def test_same_trusting(t):
    """Both ends of the set under test, always_invalidate=N."""
    faults(t, t.modules, t.modules, "N")
