# SPDX-License-Identifier: GPL-2.0
"""Export policies of the server."""

from __future__ import annotations

from lab.selftest_case import Test
from lib import disks
from lib import guest_policy

FILE = guest_policy.FILE


def rule(session: str = "*", client: str = "*", device: str = disks.PLAIN,
         mode: str = "ro,rw,migration") -> str:
    """One line of a policy."""
    return f"allow session={session} client={client} device={device} mode={mode}\n"


def file_text(*rules: str) -> str:
    """The text of a policy as the server's file takes and shows it."""
    text = "".join(rules)
    return f"policy {len(text)}\n{text}"


def load(t: Test, *rules: str) -> None:
    """Put a policy in force until the test is over."""
    t.server.call(guest_policy.write, pieces=[file_text(*rules)])
    t.defer_once(clear, t)


def allow(t: Test) -> None:
    """The policy by which the server gives all that it has to everybody."""
    load(t, rule(device="/**"))


def clear(t: Test) -> None:
    """No policy, if the modules are still there."""
    if t.server.exists(FILE):
        t.server.write(FILE, "clear")
