# SPDX-License-Identifier: GPL-2.0
"""Requests that the block layer offers together are posted together."""

from __future__ import annotations

from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import rnbd
from lib.fio import fio
from lib.fio import verified
from lib.rnbd import Device

TOPOLOGY = "two"
TRACING = "/sys/kernel/tracing"
PROBE = f"{TRACING}/events/kprobes/posts/enable"
REQUESTS = 800
TOGETHER = {"iodepth": 8, "iodepth_batch_submit": 8, "iodepth_batch_complete_min": 8}


def posts_per_request(t: Test, device: Device, pattern: str, **options: Any) -> float:
    """How often the client's device was told to send, for each request."""
    t.client.run(f"echo 'p:posts rdma_rxe:rxe_post_send' > {TRACING}/kprobe_events; "
                 f"echo 1 > {PROBE}")
    try:
        report = fio(t.client, device.path, rw=pattern, bs=4096, number_ios=REQUESTS, **options)
        t.equal(report.errors, 0, "errors")
        name, hits, _ = t.client.read(f"{TRACING}/kprobe_profile").split()
        t.equal(name, "posts", "probe")
    finally:
        t.client.run(f"echo 0 > {PROBE}; echo > {TRACING}/kprobe_events")
    return int(hits) / REQUESTS


@case(module_sets=("ours",), kernels=("stock",), quick=())  # the debug kernel has no tracing
def test_one_post(t: Test) -> None:
    """Eight requests at a time are one post, or few"""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.null_blk(t, size=256), keep=True)
    for pattern in ("randread", "randwrite"):
        alone = posts_per_request(t, device, pattern, iodepth=1)
        together = posts_per_request(t, device, pattern, **TOGETHER)
        # All eight in one post are 0.125.
        t.check(0.95 < alone < 1.2 and together < 0.2,
                f"{pattern}: {alone:.2f} posts a request alone, {together:.2f} together")
    device.unmap()


@case()
def test_data(t: Test) -> None:
    """Requests of all sizes, with and without registration, in batches: the data is right"""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN, keep=True)
    report = verified(t.client, device.path, rw="randrw", size="32m", iodepth=32,
                      iodepth_batch_submit=16, iodepth_batch_complete_min=8,
                      bssplit="512/20:4k/40:12k/20:64k/15:128k/5", timeout=300)
    t.equal(report.errors, 0, "errors")
    device.unmap()
