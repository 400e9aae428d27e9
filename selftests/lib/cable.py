# SPDX-License-Identifier: GPL-2.0
"""Links between the two machines that stop to carry anything, or become slow.

What a machine sends is dropped behind its stack, as by a switch that died. To take the carrier
away, or to exchange a queueing discipline that is in use, is no good for tests that go on: a
packet that cannot be sent for a moment is an error for soft-RoCE, and if it was one of the
connection manager no connection can be made on that device any more.
"""

from __future__ import annotations

from lab.selftest_case import Test
from lab.vm_node import Node


def prepare(t: Test) -> None:
    """To be called before there are connections."""
    for node in t.nodes:
        for link in range(len(node.addresses)):
            node.run(f"tc qdisc replace dev eth{link} root netem limit 10000")
            t.defer(node.run, f"tc qdisc del dev eth{link} root", check=False)


def change(t: Test, node: Node, link: int, what: str, back: str) -> None:
    """Change what a machine's end of a link does, until the test is over."""
    node.run(f"tc qdisc change dev eth{link} root netem limit 10000 {what}")
    t.defer(node.run, f"tc qdisc change dev eth{link} root netem limit 10000 {back}", check=False)


def cut(t: Test, link: int = 0) -> None:
    """Drop everything on a link."""
    # The server first: from then on the client hears nothing.
    for node in reversed(t.nodes):
        change(t, node, link, "loss 100%", "loss 0%")


def mend(t: Test, link: int = 0) -> None:
    """Let a link carry again."""
    for node in t.nodes:
        change(t, node, link, "loss 0%", "loss 0%")
