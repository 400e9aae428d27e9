# SPDX-License-Identifier: GPL-2.0
"""Hostile peers by the thousand, made up by a generator, beside an honest client.

`make hostile SECONDS=… SEED=… ROUND=…` says for how long, and what is sent: the same seed and round send the
same messages. A failure names both.
"""

from __future__ import annotations

import os
from collections import Counter

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_campaign
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


@case(module_sets=ONLY_OURS, quick=EVERYWHERE, timeout=SECONDS * 2 + 300)
def test_server(t: Test) -> None:
    """Clients that lie do no harm to an honest one, whose data stay right, and leave nothing behind."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64 hb_interval_ms=1000")
    scratch = disks.null_blk(t, size=64)
    policy.load(t, policy.rule("sess", device=disks.PLAIN), policy.rule("hostile*", device=scratch))
    t.client.run("modprobe rdma_ucm")
    device = rnbd.map_device(t, disks.PLAIN)
    stream = Stream(t, device)
    left = SECONDS or t.rounds(10, 120)
    number, counts = ROUND, Counter[str]()
    while left > 0:
        begin = number
        try:
            number, sent = t.client.call_within(SLICE + 120, guest_campaign.attack, address=t.server.address, seed=SEED,
                                                first=number, seconds=min(left, SLICE), disk=scratch)
            stream.go_on(timeout=60)
        except Exception as error:
            raise AssertionError(f"HOSTILE_SEED={SEED} HOSTILE_ROUND={begin}: {error}") from error
        counts.update(sent)
        left -= SLICE
    stream.stop()
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    t.check(counts.total() > 100, f"only {counts.total()} messages: {kinds}")
    t.say(f"    # campaign: seed {SEED}, rounds {ROUND} to {number - 1}, {counts.total()} messages: {kinds}")
    for name in t.server.listdir(rnbd.SERVER_SESSIONS):
        if name.startswith("hostile"):
            t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/{name}", gone=True, timeout=GONE)
    device.unmap()
