# SPDX-License-Identifier: GPL-2.0
"""Hostile peers by the thousand, made up by a generator, beside an honest client.

`make hostile SECONDS=… MESSAGES=… SEED=… ROUND=…` says for how long, and what is sent: the same seed and round send
the same messages. A failure names both.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable

from lab.campaign_progress import Progress
from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_trouble import troubled
from lib import disks
from lib import hostile_peers
from lib import memory
from lib import policy
from lib import rnbd
from lib.stream import Stream

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
SECONDS = float(os.environ.get("HOSTILE_SECONDS") or 0)
MESSAGES = int(os.environ.get("HOSTILE_MESSAGES") or 0)
SEED = int(os.environ.get("HOSTILE_SEED") or 1)
ROUND = os.environ.get("HOSTILE_ROUND") or ""
# The honest client is looked at that often, in seconds.
SLICE = 60.0
# What is allocated with the first rounds stays; then the machine is looked at for the first time.
WARM_UP = 4.0
# Rounds at a time.
JOBS = 4
# How long a path that nobody uses lasts: heartbeats are missed; and one that was never established.
GONE = 90.0
# A run sends at least so many messages. On a busy host it goes on for them, with slices of so many seconds, so often.
LEAST = 200
MORE = 6.0
MOST_MORE = 15
# The servers that lie are on the same machine as the honest one.
LIAR_PORT = 1300
CLIENTS = "/sys/module/rtrs_server/clients"
# MESSAGES in so many seconds, at the rate of a busy machine; or the long form.
TIMEOUT = 600 + 2 * SECONDS + MESSAGES / 50


def objects(t: Test) -> dict[str, str]:
    """What the ends and the RDMA device have: objects by kind."""
    counts = {name: t.server.read(f"{CLIENTS}/{name}") for name in ("sessions", "paths", "connections", "half_open")}
    return counts | {"device": re.sub(r"\s+", " ", t.client.sh("rdma resource show"))}


class Watch:
    """Sees that nothing is left behind, and that the kernel has nothing to report."""

    def __init__(self, t: Test, scratch: list[str]) -> None:
        self._t, self._scratch = t, scratch
        self._mark = t.client.log_mark()
        self._objects = objects(t)
        self._empty()
        self._slabs = {} if t.debug else memory.slabs(t.client)

    def _empty(self) -> None:
        """Have the disks that are in memory keep nothing of what was written to them."""
        for disk in self._scratch:
            self._t.client.run(["blkdiscard", "-f", disk])

    def log(self) -> None:
        """The kernel has reported nothing yet."""
        lines, _ = troubled(self._t.client.log_since(self._mark))
        self._t.check(not lines, "the kernel reports:\n" + "\n".join(lines[:40]))

    def end(self, rounds: int) -> None:
        """All that so many rounds have made is gone."""
        now = objects(self._t)

        def gone() -> bool:
            nonlocal now
            now = objects(self._t)
            return now == self._objects

        try:
            wait_until(gone, GONE * self._t.client.slow, "the campaign's objects")
        except TimeoutError:
            self._t.equal(now, self._objects, "objects after the campaign")
        self._empty()
        # On the debug kernel kmemleak is asked when the modules are unloaded.
        if not self._t.debug:
            self._t.equal(memory.grown_slabs(self._t.client, self._slabs, rounds), {}, "slabs that have grown")


def told(counts: Counter[str]) -> str:
    """Counts for a report."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))


class Campaign:
    """Rounds against one end, a slice at a time, beside an honest client's stream."""

    def __init__(self, t: Test, end: str, *, port: int = 1234, scratch: list[str] | None = None) -> None:
        self._t, self._end, self._port, self._disks = t, end, port, scratch or []
        self._progress = Progress(str(t.lab.platform.kernel), end)
        self._first = int(ROUND) if ROUND else self._progress.next(SEED) if MESSAGES else 0
        self._next = self._first
        self._counts, self._outcomes = Counter[str](), Counter[str]()
        hostile_peers.install(t.client)
        t.client.run("modprobe rdma_ucm")

    def slice(self, stream: Stream, seconds: float) -> None:
        """Run rounds for a while; the honest client goes on."""
        begin = self._next
        try:
            done = hostile_peers.attack(self._t.client, self._end, seconds=seconds, disks=self._disks, port=self._port,
                                        address=self._t.server.address, address6=self._t.server.address6, seed=SEED,
                                        first=begin, jobs=JOBS)
            stream.go_on(timeout=60)
        except Exception as error:
            raise AssertionError(f"HOSTILE_SEED={SEED} HOSTILE_ROUND={begin}: {error}") from error
        self._next = done.next
        self._counts.update(done.messages)
        self._outcomes.update(done.outcomes)
        if MESSAGES and not ROUND:
            self._progress.add(SEED, done.next, done.messages, done.outcomes)

    def slices(self) -> Iterable[float]:
        """How long each slice is to take, until enough was sent."""
        if MESSAGES:
            while self._progress.messages().total() < MESSAGES:
                yield SLICE
            return
        left = SECONDS or self._t.rounds(6, 120)
        while left > 0:
            yield min(left, SLICE)
            left -= SLICE
        for _ in range(MOST_MORE):
            if self._counts.total() > LEAST:
                return
            yield MORE

    def run(self, stream: Stream) -> None:
        """Run all of it, and see that nothing is left of it."""
        self.slice(stream, WARM_UP)
        watch, warm = Watch(self._t, self._disks), self._next
        for seconds in self.slices():
            self.slice(stream, seconds)
            watch.log()
        self._t.say(f"campaign {self._end}: seed {SEED}, rounds {self._first} to {self._next - 1}, "
                    f"{self._counts.total()} messages: {told(self._counts)}; {told(self._outcomes)}")
        if MESSAGES:
            every = self._progress.messages()
            self._t.say(f"campaign {self._end}: in all, seeds {sorted(self._progress.seeds)}, "
                        f"{every.total()} messages: {told(every)}; {told(self._progress.outcomes())}")
        watch.end(self._next - warm)
        self._t.check(self._counts.total() > LEAST, f"only {self._counts.total()} messages: {told(self._counts)}")


@case(module_sets=ONLY_OURS, timeout=300, quick=())
def test_same_messages(t: Test) -> None:
    """The same seed and round send the same messages, and another round sends others."""
    rnbd.load(t, client=False, rtrs_server="sess_queue_depth=64 hb_interval_ms=1000")
    disk = disks.null_blk(t, size=64, discard=1)
    policy.load(t, policy.rule("hostile*", device=disk))
    t.client.run("modprobe rdma_ucm")
    hostile_peers.install(t.client)
    # A round of many messages. Where its path ends may differ, and so which steps send something.
    number = next(number for number in range(20) if len(sent(t, number, disk)) > 50)
    first, second, other = sent(t, number, disk), sent(t, number, disk), sent(t, number + 1, disk)
    same = [step for step in first if step in second]
    t.check(len(same) > 50, f"round {number}: steps of both: {len(same)} of {len(first)} and {len(second)}")
    # A path may end in the midst of a step.
    wrong = {step: (first[step], second[step]) for step in same
             if any(one != another for one, another in zip(first[step], second[step], strict=False))}
    t.equal(wrong, {}, f"messages of round {number} that differ")
    t.check(any(first[step] != other[step] for step in first if step in other), "another round sends the same")


def sent(t: Test, number: int, disk: str) -> dict[str, list[str]]:
    """What the client of a round sends, by its step."""
    return hostile_peers.messages(t.client, number, address=t.server.address, seed=SEED, disk=disk)


@case(module_sets=ONLY_OURS, quick=("stock",), timeout=TIMEOUT)
def test_server(t: Test) -> None:
    """Clients that lie do no harm to an honest one, whose data stay right, and leave nothing behind."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64 hb_interval_ms=1000")
    scratch = [disks.null_blk(t, size=64, discard=1) for _ in range(JOBS)]
    policy.load(t, policy.rule("sess", device=disks.PLAIN), *(policy.rule("hostile*", device=disk) for disk in scratch))
    campaign = Campaign(t, "clients", scratch=scratch)
    device = rnbd.map_device(t, disks.PLAIN)
    stream = Stream(t, device, spares=True)
    campaign.run(stream)
    stream.stop()
    device.unmap()


@case(module_sets=ONLY_OURS, quick=("stock",), timeout=TIMEOUT)
def test_client(t: Test) -> None:
    """A server that lies does no harm to the session with another server, and leaves nothing behind."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64", rtrs_client="reconnect_delay_ms=100", connect_timeout_ms=3000)
    campaign = Campaign(t, "servers", port=LIAR_PORT)
    device = rnbd.map_device(t, disks.PLAIN)
    stream = Stream(t, device, spares=True)
    campaign.run(stream)
    stream.stop()
    device.unmap()
