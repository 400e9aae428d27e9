# SPDX-License-Identifier: GPL-2.0
"""A server in user space that breaks the protocol, and what its client must do: for hostile_server*.py."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from typing import ParamSpec
from typing import TypeVar
from weakref import WeakKeyDictionary

from lab.selftest_case import Test
from lab.vm_node import Job
from lab.vm_node import Node
from lib import guest_hostile_server as hostile
from lib import rnbd
from lib.rnbd import Device

ONLY_OURS = ("ours",)
DISK = "/dev/hostile"
PATHS = f"{rnbd.CLIENT_SESSIONS}/sess/paths"
KIB = 1 << 10
LONG = 64 * KIB  # such a read is registered for itself
PAGE = 4 * KIB  # such a one goes through the page of its tag
RECONNECT = "reconnect_delay_ms=100"
# When the last faults were made, in seconds of the client's uptime, by client.
recent: WeakKeyDictionary[Node, list[float]] = WeakKeyDictionary()
P = ParamSpec("P")
R = TypeVar("R")
# The numbers of the messages that say hello, and that open a device.
SESS_INFO, OPEN = 0, 2
# The number of the message that asks for news, and the features of a server that rings.
NEWS, RINGS = 6, 1 | 16
# The features of a server that can be asked for the end of a path.
ENDS_PATHS = 1 | 8
# The numbers of libibverbs.
SEND, SEND_WITH_IMM = 2, 3


def serve(t: Test, *, connect_timeout_ms: int = 0, rtrs_client: str = RECONNECT,
          **settings: Any) -> None:
    """Have a server in user space, and the client's modules."""
    rnbd.load(t, server=False, rtrs_client=rtrs_client, connect_timeout_ms=connect_timeout_ms)
    t.server.run("modprobe rdma_ucm")
    call(t, hostile.start, **settings)
    t.defer(call, t, hostile.stop)


def call(t: Test, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Call a function of guest_hostile_server.py."""
    return t.server.call_within(60, function, *arguments, **named)


def within_log_limit(t: Test) -> None:
    """Wait until the next fault is logged: of one kind of line the kernel logs ten in five seconds.

    A fault is logged by at most three lines of a kind, one for each connection.
    """
    interval, most = 5.5, 3
    now = _uptime(t)
    faults = [at for at in recent.get(t.client, []) if now - interval < at <= now]
    if len(faults) == most:
        # There is no event when the kernel has forgotten the lines.
        t.client.run(f"sleep {faults.pop(0) + interval - now:.1f}")
    recent[t.client] = [*faults, _uptime(t)]


def _uptime(t: Test) -> float:
    return float(t.client.read("/proc/uptime").split()[0])


def refused(t: Test, what: str, numbers: Iterable[int], log: str) -> None:
    """Mapping must fail with one of these errnos, say why, and leave nothing."""
    within_log_limit(t)
    with rnbd.refusal(t, what, numbers, log):
        rnbd.map_device(t, DISK, keep=True)


def accepted(t: Test, what: str) -> dict[str, int]:
    """Mapping must do, and the disk be readable; returns what the queue's limits are."""
    try:
        device = rnbd.map_device(t, DISK, keep=True)
    except OSError as error:
        raise AssertionError(f"{what}: {error}") from None
    names = ("logical_block_size", "physical_block_size", "max_hw_sectors_kb")
    limits = {name: int(device.queue(name)) for name in names}
    limits["size"] = device.size()
    device.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    return limits


@dataclass
class Background:
    """A shell that waits in a write to sysfs, and may be killed."""

    node: Node
    job: Job
    pid: int

    def wait_in_kernel(self) -> None:
        """Wait until it sleeps in the client's module."""
        self.node.wait_for(f"/proc/{self.pid}/stack", matches=r"\[rnbd_client\]")


def map_in_background(t: Test, path: str) -> Background:
    """Map a device of session "sess", by a program that may be killed."""
    text = rnbd.map_text(session="sess", device_path=path, paths=[f"ip:{t.server.address}"])
    return in_background(t, f"echo '{text}' > {rnbd.MAP_DEVICE}")


def in_background(t: Test, command: str) -> Background:
    """Start a shell's command, which may be killed."""
    started = "/tmp/started"
    t.client.run(["rm", "-f", started])
    job = t.client.start_job(f"echo $$ > {started}; {command}")
    t.client.wait_for(started, matches=r"\d")
    return Background(t.client, job, int(t.client.read(started)))


def killed(t: Test, waiting: Background, what: str) -> None:
    """A program that waits for the server, in the kernel, ends when it is killed."""
    waiting.wait_in_kernel()
    t.check(not waiting.job.done(), f"{what} does not wait for the answer")
    waiting.job.kill()
    t.equal(waiting.job.wait(30).rc, -signal.SIGKILL, f"{what}: how it ended")


def still_maps(t: Test) -> None:
    """With a server that keeps to the protocol everything works."""
    call(t, hostile.behave)
    call(t, hostile.fill, value=0x11)
    device = rnbd.map_device(t, DISK)
    for length in (PAGE, LONG):
        t.equal(call(t, hostile.read, path=device.path, length=length), [0x11], f"{length} bytes")
    device.unmap()


def path_state(t: Test) -> str:
    """The state of the only path."""
    return t.client.read(f"{rnbd.client_path(t, 'sess')}/state")


def ignored(t: Test, device: Device, what: str, log: str, length: int = PAGE) -> None:
    """A read, whose response is wrong, is answered all the same, and the path stays."""
    within_log_limit(t)
    mark = t.client.log_mark()
    reconnects = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects")
    t.equal(call(t, hostile.read, path=device.path, length=length), [0x11], what)
    if log:
        t.client.wait_log(log, mark)
    call(t, hostile.behave)
    t.equal(call(t, hostile.read, path=device.path, length=length), [0x11], f"after {what}")
    t.equal(path_state(t), "connected", f"path after {what}")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"), reconnects,
            f"reconnects after {what}")


def ends_the_path(t: Test, device: Device, what: str, log: str, length: int = PAGE,
                  function: Callable[[str, int], object] = hostile.read) -> None:
    """A read, whose response is wrong, fails as its path does, which connects again. ``log`` is not
    waited for if it is empty."""
    within_log_limit(t)
    mark = t.client.log_mark()
    with t.expect_errno(errno.EIO):
        call(t, function, device.path, length)
        raise AssertionError(f"{what}: the read was answered")
    if log:
        t.client.wait_log(log, mark)
    recovers(t, device, what)


def recovers(t: Test, device: Device, what: str) -> None:
    """The server behaves again, and the device comes back by itself."""
    call(t, hostile.behave)
    t.client.wait_for(f"{rnbd.client_path(t, 'sess')}/state", matches="^connected", timeout=30)
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
    call(t, hostile.fill, value=0x11)
    t.equal(call(t, hostile.read, path=device.path, length=PAGE), [0x11], f"read after {what}")
