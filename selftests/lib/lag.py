# SPDX-License-Identifier: GPL-2.0
"""How long the machines stand still meanwhile, for tests that look at times."""

from __future__ import annotations

from lab.selftest_case import Test
from lib import guest_lag


class Lag:
    """Measures it on all machines until the test is over."""

    def __init__(self, t: Test) -> None:
        self._nodes = t.nodes
        for node in t.nodes:
            node.call(guest_lag.start)
            t.defer(node.call, guest_lag.stop)

    def lost(self) -> float:
        """The seconds that a machine stood still since this was last asked: of the one that did longest."""
        return max(node.call(guest_lag.lost) for node in self._nodes)
