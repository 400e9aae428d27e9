# SPDX-License-Identifier: GPL-2.0
"""Commands about the reservation of a client's disk, and what they leave the client to do."""

from __future__ import annotations

import errno

from lab.selftest_case import Test
from lib import guest_reservations as pr
from lib.rnbd import Device

# The errnos of a read and of a write.
READ_WRITE, READ_ONLY, NOTHING = [0, 0], [0, errno.EBADE], [errno.EBADE, errno.EBADE]


def do(t: Test, device: Device, what: str, **arguments: int) -> int:
    """A command by a client's disk; what the ioctl returns."""
    return t.client.call(pr.command, path=device.path, what=what, **arguments)


def must(t: Test, device: Device, what: str, **arguments: int) -> None:
    """A command that succeeds."""
    t.equal(do(t, device, what, **arguments), 0, f"{what} {arguments} by {device.session}")


def access(t: Test, device: Device) -> list[int]:
    """The errno of a read and of a write."""
    return t.client.call(pr.access, path=device.path)
