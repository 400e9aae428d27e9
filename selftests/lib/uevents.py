# SPDX-License-Identifier: GPL-2.0
"""What the client's kernel tells user space about disks."""

from __future__ import annotations

from lab.selftest_case import Test
from lib import guest_uevents
from lib.rnbd import Device


def record(t: Test) -> None:
    """Begin to record, anew if it was recording; until the test is over."""
    t.client.call(guest_uevents.stop)
    t.client.call(guest_uevents.start)
    t.defer(t.client.call, guest_uevents.stop)


def actions(t: Test, device: Device, wanted: list[str]) -> list[str]:
    """The uevents of a disk so far, when the wanted ones have come."""
    path = f"/block/{device.name}"
    events = t.client.call(guest_uevents.seen, since=0, seconds=10.0 * t.client.slow,
                           wanted=[(action, path) for action in wanted])
    return [action for action, place in events if place.endswith(path)]
