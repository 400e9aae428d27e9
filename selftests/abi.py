# SPDX-License-Identifier: GPL-2.0
"""The files in sysfs are those that Documentation/ABI describes."""

from __future__ import annotations

import re
from pathlib import Path

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import policy
from lib import rnbd

TOPOLOGY = "one"
DOCUMENTS = Path(__file__).resolve().parent.parent / "Documentation/ABI/testing"

# What a placeholder stands for.
PLACEHOLDERS = {"<N>": r"\d+"}
# Folders of the driver core, and what it puts there.
OF_THE_CORE = re.compile(r"/(uevent|subsystem|power|dev|range|ro|removable)(/|$)|/power/")


def documented() -> list[tuple[str, re.Pattern[str]]]:
    """Each path that is described, and what it looks like in a machine."""
    entries = []
    for document in sorted(DOCUMENTS.iterdir()):
        for what in re.findall(r"^What:\s*(\S.*)$", document.read_text(), re.M):
            parts = re.split(r"(<[^>]*>)", what)
            pattern = "".join(PLACEHOLDERS.get(part, r"[^/]+") if part.startswith("<")
                              else re.escape(part) for part in parts)
            entries.append((what, re.compile(pattern)))
    return entries


def there(t: Test, *folders: str) -> list[str]:
    """Files and links below some folders; links are not followed."""
    text = t.client.sh("find " + " ".join(f"{folder}/" for folder in folders)
                       + " -not -type d | sed 's,//,/,g'")
    return [path for path in text.split("\n") if path and not OF_THE_CORE.search(path)]


@case(module_sets=("ours",))
def test_every_file(t: Test) -> None:
    """With disks mapped, every file is described, and every described file is there."""
    rnbd.load(t, rtrs_server="chunk_pool_mb=1")
    device = rnbd.map_device(t, disks.PLAIN)
    policy.allow(t)
    image = "/var/tmp/abi.img"
    t.server.run(f"truncate -s 1M {image}")
    t.defer(t.server.run, f"rm {image}")
    of_file = rnbd.map_device(t, image)
    t.client.modules_load("rtrs_test_client")
    sessions = [rnbd.CLIENT_SESSIONS, rnbd.SERVER_SESSIONS]
    folders = [f"{folder}/sess" for folder in sessions]
    folders += [device.sysfs, "/sys/class/rnbd-client/ctl", "/sys/class/rnbd-server/ctl",
                "/sys/module/rtrs_server/chunk_pool", "/sys/module/rtrs_server/clients",
                "/sys/class/rtrs-test/fabric"]
    alone = [f"/sys/block/{of_file.name}/wwid", "/dev/rnbd-discover"]
    for path in alone:
        t.check(t.client.exists(path), f"there is no {path}")
    found = [*there(t, *folders), *alone]
    entries = documented()
    undescribed = [path for path in found
                   if not any(pattern.fullmatch(path) for _, pattern in entries)]
    t.equal(undescribed, [], "files that no document describes")
    for what, pattern in entries:
        if "/parameters/" in what:
            t.check(t.client.exists(what), f"{what} is described but not there")
        else:
            # A described folder has files.
            t.check(any(re.match(pattern.pattern + "(/|$)", path) for path in found),
                    f"{what} is described but not there")
