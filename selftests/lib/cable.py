# SPDX-License-Identifier: GPL-2.0
"""Links between the two machines that stop to carry anything, or become slow.

What a machine sends is dropped behind its stack, as by a switch that died. To take the carrier
away, or to exchange a queueing discipline that is in use, is no good for tests that go on: a
packet that cannot be sent for a moment is an error for soft-RoCE, and if it was one of the
connection manager no connection can be made on that device any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.selftest_case import Test
from lab.vm_node import Node
from lib import guest_links


def prepare(t: Test) -> None:
    """To be called before there are connections."""
    for node in t.nodes:
        for link in range(len(node.addresses)):
            node.run(f"tc qdisc replace dev eth{link} root netem limit 10000")
            t.defer(node.run, f"tc qdisc del dev eth{link} root", check=False)


def have(node: Node, links: Sequence[int], what: str) -> None:
    """Have a machine's end of these links do this."""
    node.call(guest_links.tc, commands=[
        f"qdisc change dev eth{link} root netem limit 10000 {what}" for link in links])


def change(t: Test, node: Node, links: Sequence[int], what: str, back: str) -> None:
    """The same until the test is over."""
    have(node, links, what)
    t.defer_once(have, node, links, back)


def cut(t: Test, *links: int) -> None:
    """Drop everything on these links."""
    # The server first: from then on the client hears nothing.
    for node in reversed(t.nodes):
        change(t, node, links, "loss 100%", "loss 0%")


def mend(t: Test, *links: int) -> None:
    """Let these links carry again."""
    for node in t.nodes:
        have(node, links, "loss 0%")
