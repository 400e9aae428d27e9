# SPDX-License-Identifier: GPL-2.0
"""The frequency of the host's counter, and the machines that are told of it."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
import time
import unittest
from pathlib import Path

from lab import host_clock
from lab.arch import ARM64
from lab.vm_machine import Machine
from lab.vm_machine import Spec

NOWHERE = Path("/nowhere")
SPEC = Spec(name="test", qemu=["qemu"], kernel=NOWHERE, initrd=None, root_image=NOWHERE, share=NOWHERE)


@unittest.skipUnless(platform.machine() == "x86_64", "only amd64 has the counter")
class HostClock(unittest.TestCase):
    def test_the_counter_agrees_with_the_clock(self) -> None:
        khz = host_clock.tsc_khz()
        begin, first = host_clock.moment()
        time.sleep(0.2)
        end, last = host_clock.moment()
        self.assertAlmostEqual((last - first) / (khz * (end - begin) / 1e6), 1.0, delta=0.001)

    def test_who_is_told(self) -> None:
        """Emulated processors of amd64 have the host's counter, unless instructions are counted."""
        def told(spec: Spec) -> bool:
            with tempfile.TemporaryDirectory() as folder:
                return any("tsc_early_khz=" in word for word in Machine(spec, Path(folder)).command_line())

        self.assertTrue(told(SPEC))
        for other in ({"accel": "kvm"}, {"icount": True}, {"arch": ARM64}):
            self.assertFalse(told(dataclasses.replace(SPEC, **other)), other)
