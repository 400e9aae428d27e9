# SPDX-License-Identifier: GPL-2.0
"""fio that offers many requests together, beside the verifying writer, while things break."""

from __future__ import annotations

import signal

from lab.selftest_case import Test
from lab.vm import wait_until
from lib import guest_io
from lib.fio import Report
from lib.fio import report_of
from lib.fio import VERIFY
from lib.rnbd import Device
from lib.rnbd import disk_stats

# Longer than any test, in seconds on the stock kernel.
LONGEST = 1800.0


class Batches:
    """Writes and reads back in batches of 16 (of 2 on the debug kernel), of which the driver posts
    several at once, until ``stop``. Nobody else may use the device."""

    def __init__(self, t: Test, device: Device) -> None:
        self._t, self._device = t, device
        # For the debug kernel as lib/stream.py.
        self._depth = 4 if t.debug else 32
        self._before = self._writes()
        pauses = ["--thinktime=1s", f"--thinktime_blocks={self._depth}"] if t.debug else []
        self._job = t.client.start_job(
            ["fio", "--name=batches", f"--filename={device.path}", "--ioengine=io_uring",
             "--direct=1", "--thread=1", "--rw=randwrite",
             f"--bssplit=4k/70:{16 if t.debug else 64}k/30",
             f"--iodepth={self._depth}", f"--iodepth_batch_submit={self._depth // 2}",
             f"--iodepth_batch_complete_min={self._depth // 4}",
             f"--size={1 if t.debug else 8}m", "--loops=1000000",
             f"--runtime={LONGEST * t.client.slow:.0f}", "--verify=crc32c", "--verify_fatal=1",
             "--output-format=json", *pauses], timeout=LONGEST)
        self.go_on()

    def _done(self) -> int:
        stats = disk_stats(self._t.client, self._device.name)
        return stats["reads"] + stats["writes"]

    def _writes(self) -> int:
        """Writes that the disk has seen the end of, merged ones each."""
        stats = disk_stats(self._t.client, self._device.name)
        return stats["writes"] + stats["write_merges"]

    def _finished(self, wanted: int) -> bool:
        """Whether so many requests are finished within a second."""
        return self._t.client.call(guest_io.wait_finished, disk=self._device.name, count=wanted,
                                   seconds=1.0)

    def go_on(self) -> None:
        """Wait until there are more finished requests than can have been in flight."""
        wanted = self._done() + 3 * self._depth
        wait_until(lambda: self._job.done() or self._finished(wanted),
                   60.0 * self._t.client.slow, "requests in batches")
        if self._job.done():
            raise AssertionError(f"fio has ended: {self._report()}")

    def _report(self) -> Report:
        result = self._job.wait(60.0 * self._t.client.slow)
        self._t.intact(VERIFY in result.err, False, f"fio found wrong data: {result.err[-500:]}")
        report = report_of(result.out)
        self._t.check(report.errors == 0, f"fio: exit code {result.rc}: {result.err[-500:]}")
        return report

    def stop(self) -> str:
        """End; fails on errors, on wrong data, and if requests hang or did not end exactly once.
        Says what was done."""
        self.go_on()
        self._job.kill(signal.SIGINT)
        report = self._report()
        inflight = self._t.client.read(f"/sys/block/{self._device.name}/inflight")
        self._t.equal(inflight.split(), ["0", "0"], "requests in flight")
        self._t.intact(self._writes() - self._before, report.write.ios,
                       "writes of fio that the disk has finished")
        return f"in batches {report.write.ios} writes, {report.read.ios} reads"
