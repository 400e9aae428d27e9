# SPDX-License-Identifier: GPL-2.0
"""Two links that lose, double, reorder, spoil or delay packets, all the time, under verified IO."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import cable
from lib import disks
from lib import guest_io
from lib import guest_watch
from lib import rnbd
from lib.batches import Batches
from lib.fio import Report
from lib.fio import start
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"
LINKS = 2

SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"
COUNTERS = "/sys/class/infiniband/rxe{link}/ports/1/hw_counters"
# A link that loses each tenth packet loses heartbeats, too, so these are not the fastest.
SETTINGS = {"hb_interval_ms": 500, "hb_missed_max": 5, "reconnect_delay_ms": 1000,
            "connect_timeout_ms": 8000, "hold_io_ms": 120000}
# Noticing takes up to 3 s, connecting 8 s an attempt; all this several times over.
LONGEST = 60.0
FINE = "loss 0% corrupt 0%"


def map_on_both(t: Test) -> list[Device]:
    """Two disks over both links."""
    cable.prepare(t)
    rnbd.load(t, rtrs_client="connect_timeout_ms=120000",
              rtrs_server=f"{rnbd.fewer_buffers(t)}hb_interval_ms=500", ack_timeout_ms=0)
    devices = [rnbd.map_device(t, disk, paths=[f"ip:{address}" for address in t.server.addresses])
               for disk in (disks.PLAIN, disks.WITHOUT_DISCARD)]
    for name, value in SETTINGS.items():
        t.client.write(f"{SESSION}/{name}", str(value))
    return devices


def paths(t: Test) -> list[str]:
    """Folders of the session's paths."""
    return [f"{SESSION}/paths/{name}" for name in t.client.listdir(f"{SESSION}/paths")]


def counters(t: Test) -> dict[str, int]:
    """What soft-RoCE has counted, both machines and devices together."""
    total: dict[str, int] = {}
    for node in t.nodes:
        for link in range(LINKS):
            folder = COUNTERS.format(link=link)
            texts = node.call(guest_io.texts, paths=[f"{folder}/{name}"
                                                       for name in node.listdir(folder)])
            for path, text in texts.items():
                name = path.rsplit("/", 1)[1]
                if text.strip().isdigit():
                    total[name] = total.get(name, 0) + int(text)
    return total


def finished(t: Test, device: Device) -> int:
    """Reads and writes that the client's disk has seen the end of."""
    stats = rnbd.disk_stats(t.client, device.name)
    return stats["reads"] + stats["writes"]


def written(t: Test, device: Device) -> int:
    """Writes that the client's disk has seen the end of, merged ones each."""
    stats = rnbd.disk_stats(t.client, device.name)
    return stats["writes"] + stats["write_merges"]


def impair(t: Test, what: str, back: str = FINE) -> None:
    """Have both ends of both links do this to what they send."""
    for node in t.nodes:
        cable.change(t, node, range(LINKS), what, back)


def sound(t: Test, device: Device) -> bool:
    """Whether requests on all queues are answered now, and both paths are there."""
    try:
        t.client.call_within(LONGEST, guest_io.read_on_cpus, path=device.path, cpus=[0, 1],
                             count=2 if t.debug else 8)
    except OSError:
        return False
    return all(t.client.read(f"{path}/state") == "connected" for path in paths(t))


class ShortRuns:
    """fio with verification while the links are bad, each time anew."""

    def __init__(self, t: Test, device: Device, length: int) -> None:
        self._t, self._device, self._length = t, device, length
        self.reports: list[Report] = []

    def begin(self) -> None:
        """Before the links are."""
        self._before = written(self._t, self._device)
        # Requests of more than a page are registered, which is what soft-RoCE cannot repeat.
        self._job = start(self._t.client, self._device.path, rw="randrw", bssplit="4k/50:64k/50",
                          iodepth=8, size="32m", io_size="1g", runtime=self._length,
                          time_based=True, verify="crc32c", verify_backlog=64,
                          serialize_overlap=1, randseed=len(self.reports),
                          timeout=self._length + 3 * LONGEST)

    def end(self) -> None:
        """After they were."""
        report = self._job.wait()
        self._t.intact(written(self._t, self._device) - self._before, report.write.ios,
                       "writes of fio that the disk has finished")
        self.reports.append(report)

    def stop(self) -> str:
        """What was done."""
        return (f"fio {sum(one.read.ios for one in self.reports)} reads, "
                f"{sum(one.write.ios for one in self.reports)} writes")


class LongRun(Batches):
    """The same for the debug kernel, which takes seconds to start fio."""

    reports: Sequence[Report] = ()

    def begin(self) -> None:
        """It has begun."""

    def end(self) -> None:
        """It goes on."""
        self.go_on()


def run(t: Test, what: str, must_count: Sequence[str] = ()) -> Sequence[Report]:
    """Verified IO over links that do this for a while; then none of it, and everything must be
    whole; over and over. Returns what fio says, of each time."""
    small, large = map_on_both(t)
    length = 3 if t.rounds(1) > 1 else 6
    before, began = counters(t), finished(t, small)
    # As large ones do not get through where many packets are lost.
    stream = Stream(t, small, sizes=(4096,))
    t.client.call(guest_watch.start, name="paths", text="connected",
                  interval=0.02 * t.client.slow,
                  paths=[f"{path}/state" for path in paths(t)])
    batches: LongRun | ShortRuns = LongRun(t, large) if t.debug else ShortRuns(t, large, length)
    whole = []
    started = time.monotonic()
    for _number in range(t.rounds(1)):
        batches.begin()
        impair(t, what)
        time.sleep(length)
        stream.go_on(requests=1, timeout=LONGEST)
        impair(t, FINE)
        batches.end()
        mended = time.monotonic()
        wait_until(lambda: sound(t, large), LONGEST * t.client.slow, "both paths and their queues")
        whole.append(time.monotonic() - mended)
    taken = time.monotonic() - started
    outages = t.client.call(guest_watch.stop, name="paths")
    result, done = stream.stop(wait=LONGEST), batches.stop()
    # A completion too few would be a request that hangs; one too many would be counted here.
    t.intact(finished(t, small) - began, result["writes"] + result["reads"] + result["verified"],
             "requests that the disk has finished")
    t.equal(t.client.read(f"/sys/block/{small.name}/inflight").split(), ["0", "0"], "in flight")
    t.equal([t.client.read(f"{path}/stats/rdma").split()[4] for path in paths(t)], ["0", "0"],
            "requests in flight on the paths")
    counted = {name: value - before.get(name, 0) for name, value in counters(t).items()}
    totals(t, what, taken, whole, outages, result, done)
    t.say("counted by the RDMA devices: " + ", ".join(
        f"{name} {value}" for name, value in sorted(counted.items()) if value
        and "pkts" not in name and "ack_deferred" not in name))
    t.check(result["longest"] < LONGEST * t.client.slow, f"a request took {result['longest']} s")
    for name in must_count:
        t.check(counted.get(name), f"{what}: nothing happened to the packets: {counted}")
    return batches.reports


def totals(t: Test, what: str, taken: float, whole: list[float], outages: list[list[float]],
           result: dict[str, Any], done: str) -> None:
    """Say what there was."""
    reconnects = [t.client.read(f"{path}/stats/reconnects").split() for path in paths(t)]
    back = [one for path in outages for one in path]
    t.say(f"TOTAL {what}, {len(whole)} times: {taken:.0f} s; {verified(result)}, "
          f"longest request {result['longest']:.2f} s; {done}")
    t.say(f"TOTAL {what}: reconnects {sum(int(good) for good, _ in reconnects)}, attempts that "
          f"failed {sum(int(bad) for _, bad in reconnects)}; path back after "
          f"{seconds(back) if back else '(none was lost)'}; all whole {seconds(whole)} after "
          "the end")


@case(timeout=600, module_sets=("ours",), quick=())
def test_loss_1(t: Test) -> None:
    """1 % of the packets are lost."""
    run(t, "loss 1%", ("out_of_seq_request",))


@case(timeout=600, quick=(), module_sets=("ours",))
def test_loss_10(t: Test) -> None:
    """10 % of the packets are lost."""
    run(t, "loss 10%", ("out_of_seq_request",))


@case(timeout=600, module_sets=("ours",), quick=())
def test_duplication(t: Test) -> None:
    """10 % of the packets come twice."""
    run(t, "duplicate 10%", ("duplicate_request",))


@case(timeout=600, quick=(), module_sets=("ours",))
def test_reordering(t: Test) -> None:
    """5 % of the packets overtake those of 2 ms before them."""
    run(t, "delay 2ms reorder 5%", ("out_of_seq_request",))


@case(timeout=600, quick=(), module_sets=("ours",))
def test_corruption(t: Test) -> None:
    """1 % of the packets have a bit turned over; their checksums tell."""
    run(t, "corrupt 1%", ("out_of_seq_request",))


@case(timeout=600, quick=(), module_sets=("ours",))
def test_delay(t: Test) -> None:
    """Each packet takes 30 ms longer."""
    reports = run(t, "delay 30ms")
    # On the debug kernel reads take longer than that by themselves.
    if not t.debug:
        latency = max(one.read.mean_latency_us for one in reports)
        t.check(latency > 30000, f"reads of fio took {latency} us at most, on an average")
