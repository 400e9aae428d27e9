# SPDX-License-Identifier: GPL-2.0
"""Hostile peers by the thousand, made up by a generator, beside an honest client.

`make hostile SECONDS=… SEED=… ROUND=…` says for how long, and what is sent: the same seed and round send the
same messages. A failure names both.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_campaign
from lib import guest_liar
from lib import policy
from lib import rnbd
from lib.stream import Stream

TOPOLOGY = "one"
ONLY_OURS = ("ours",)
SECONDS = float(os.environ.get("HOSTILE_SECONDS") or 0)
SEED = int(os.environ.get("HOSTILE_SEED") or 1)
ROUND = int(os.environ.get("HOSTILE_ROUND") or 0)
# The honest client is looked at that often, in seconds.
SLICE = 15.0
# How long a path that nobody uses lasts: heartbeats are missed.
GONE = 90.0
# How many messages there are at least, on a machine that is busy with others.
LEAST = 10
# The server that lies is on the same machine as the honest one.
LIAR_PORT = 1235


def campaign(t: Test, stream: Stream, attack: Callable[[int, float], tuple[int, dict[str, int]]]) -> None:
    """Have rounds run, from a number and for so many seconds at a time, beside an honest client's stream."""
    left = SECONDS or t.rounds(10, 120)
    number, counts = ROUND, Counter[str]()
    while left > 0:
        begin = number
        try:
            number, sent = attack(number, min(left, SLICE))
            stream.go_on(timeout=60)
        except Exception as error:
            raise AssertionError(f"HOSTILE_SEED={SEED} HOSTILE_ROUND={begin}: {error}") from error
        counts.update(sent)
        left -= SLICE
    stream.stop()
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    t.say(f"    # campaign: seed {SEED}, rounds {ROUND} to {number - 1}, {counts.total()} messages: {kinds}")
    t.check(counts.total() > LEAST, f"only {counts.total()} messages: {kinds}")


@case(module_sets=ONLY_OURS, quick=("stock",), timeout=SECONDS * 2 + 300)
def test_server(t: Test) -> None:
    """Clients that lie do no harm to an honest one, whose data stay right, and leave nothing behind."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64 hb_interval_ms=1000")
    scratch = disks.null_blk(t, size=64)
    policy.load(t, policy.rule("sess", device=disks.PLAIN), policy.rule("hostile*", device=scratch))
    t.client.run("modprobe rdma_ucm")
    device = rnbd.map_device(t, disks.PLAIN)

    def attack(first: int, seconds: float) -> tuple[int, dict[str, int]]:
        return t.client.call_within(seconds + 120, guest_campaign.attack, address=t.server.address, seed=SEED,
                                    first=first, seconds=seconds, disk=scratch)

    campaign(t, Stream(t, device), attack)
    for name in t.server.listdir(rnbd.SERVER_SESSIONS):
        if name.startswith("hostile"):
            t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/{name}", gone=True, timeout=GONE)
    device.unmap()


@case(module_sets=ONLY_OURS, quick=(), timeout=SECONDS * 2 + 300)
def test_client(t: Test) -> None:
    """A server that lies does no harm to the session with another server, and leaves nothing behind."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64", rtrs_client="reconnect_delay_ms=100", connect_timeout_ms=3000)
    t.client.run("modprobe rdma_ucm")
    device = rnbd.map_device(t, disks.PLAIN)

    def attack(first: int, seconds: float) -> tuple[int, dict[str, int]]:
        return t.client.call_within(seconds + 120, guest_liar.attack, address=t.server.address, port=LIAR_PORT,
                                    seed=SEED, first=first, seconds=seconds)

    campaign(t, Stream(t, device), attack)
    device.unmap()
