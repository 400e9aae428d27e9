# SPDX-License-Identifier: GPL-2.0
"""The verifying writer of guest_stream.py from a test's side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lab.selftest_case import Test
from lib import guest_stream
from lib.rnbd import Device
from lib.rnbd import disk_stats

# Of a page, which is copied, and of more, which is registered.
SIZES = (4 << 10, 64 << 10)
# In the quick form, and on the debug kernel. Most of the processors' time goes into packets, of a kilobyte each.
SMALL_SIZES = (4 << 10, 16 << 10)
# The debug kernel does some 50 requests a second, fewer large ones. With pauses it has time for
# what is about to break, and so have other machines.
DEBUG_PAUSE = 0.25
# What breaks still finds requests of some workers in flight, and a moment later of all. The long form has no pauses.
QUICK_PAUSE = 0.01


class Stream:
    """Writes, reads and compares on a device until ``stop``."""

    def __init__(self, t: Test, device: Device, *, name: str = "", workers: int = 4,
                 blocks: int = 64, sizes: tuple[int, ...] = (), spares: bool = False, **options: Any) -> None:
        """``options`` are those of guest_stream.start(). Without them nobody else may write. ``spares``: with
        pauses as in the quick form, to leave the processors to others."""
        self._t, self._name, self._device = t, name or device.name, device
        self._stopped = False
        # If it does not say what it writes.
        self._written = None if options else self._writes()
        pause = DEBUG_PAUSE if t.debug else QUICK_PAUSE if t.quick or spares else 0.0
        sizes = sizes or (SMALL_SIZES if t.debug or t.quick or spares else SIZES)
        t.client.call(guest_stream.start, path=device.path, name=self._name, workers=workers,
                      blocks=blocks, sizes=list(sizes), pause=pause, **options)
        t.defer(self._abandon)
        self.go_on()

    def _writes(self) -> int:
        """How many writes the disk has seen the end of."""
        return disk_stats(self._t.client, self._device.name)["writes"]

    def _abandon(self) -> None:
        if not self._stopped:
            self._t.client.call(guest_stream.stop, name=self._name, verify=False, wait=5.0)

    def progress(self) -> dict[str, int]:
        """Requests so far, workers, how many run, requests of the one that has the fewest."""
        return self._t.client.call(guest_stream.progress, name=self._name)

    def longest(self) -> float:
        """The longest time a request took since the last call, in s."""
        return self._t.client.call(guest_stream.longest, name=self._name)

    def go_on(self, requests: int = 0, timeout: float = 60.0) -> float:
        """Wait until every worker has done so many requests more, by default 8 (4 on the debug
        kernel); the seconds it took."""
        requests = requests or (4 if self._t.debug else 8)
        answer = self._t.client.call_within(timeout + 30, guest_stream.go_on, name=self._name,
                                            requests=requests,
                                            seconds=timeout * self._t.client.slow)
        if answer["taken"] is not None:
            return answer["taken"]
        now = answer["now"]
        # Some may have ended before this was called.
        if now["running"] < now["workers"]:
            raise AssertionError(f"IO failed: {self.stop(check=False)}")
        raise AssertionError(f"IO stands still: {now} after {answer['begin']}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """The stream begins nothing meanwhile."""
        idle = self._t.client.call_within(60, guest_stream.hold, name=self._name)
        self._t.check(idle, f"IO stands still: {self.progress()}")
        try:
            yield
        finally:
            self._t.client.call(guest_stream.resume, name=self._name)

    def stop(self, *, check: bool = True, wait: float = 30.0) -> dict[str, Any]:
        """End, verify all that was confirmed; ``check`` fails on errors, on hung requests, and on
        requests of which the disk has seen no end, or more than one."""
        self._stopped = True
        result = self._t.client.call_within(wait + 60, guest_stream.stop, name=self._name,
                                            verify=check, wait=wait)
        self._t.intact(result["wrong"], [], "data that is wrong")
        if check:
            self._t.equal((result["errnos"], result["hung"]), ([], 0), "failed and hung requests")
            if self._written is not None:
                self._t.intact(self._writes() - self._written, result["writes"],
                               "writes that the disk has finished")
                inflight = self._t.client.read(f"/sys/block/{self._device.name}/inflight")
                self._t.equal(inflight.split(), ["0", "0"], "requests in flight")
        return result


def seconds(times: list[float]) -> str:
    """Times for a report: all of a few, else how many, the middle one and the extremes."""
    if len(times) < 6:
        return ", ".join(f"{one:.2f}" for one in times) + " s"
    middle = sorted(times)[len(times) // 2]
    return (f"{min(times):.2f} to {max(times):.2f} s "
            f"({len(times)} times, half of them up to {middle:.2f} s)")


def verified(result: dict[str, Any]) -> str:
    """What a stream did, for a report."""
    return f"{result['writes']} writes, {result['reads']} reads verified"
