# SPDX-License-Identifier: GPL-2.0
"""A server of a mirror is lost for good, and another server takes its place."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import mirrors
from lib import program
from lib import rnbd
from lib.mirrors import DISK
from lib.mirrors import leg
from lib.mirrors import Mirror
from lib.mirrors import NAME
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "five"
MEMORY_MIB = 512
OURS = ("ours",)
# The debug kernel has no md.
STOCK = ("stock",)
FILE = "/etc/rnbd/rnbd.toml"
NEW_SESSION = "new"
NEW_LEG = f"{DISK}@{NEW_SESSION}"
FAILED = 5


def configure(t: Test, sessions: dict[str, str], legs: list[str]) -> None:
    """Writes the client's configuration: sessions with their addresses, and the mirror."""
    tables = [f'[[session]]\nname = "{name}"\npaths = ["{address}"]\ndevices = ["{DISK}"]\n'
              for name, address in sessions.items()]
    names = ", ".join(f'"{one}"' for one in legs)
    t.client.run(f"mkdir -p {FILE.rsplit('/', 1)[0]}")
    t.client.create(FILE, "\n".join([*tables, f'[[mirror]]\nname = "{NAME}"\nlegs = [{names}]\n']))
    t.defer_once(t.client.run, f"rm -f {FILE}")


@case(module_sets=OURS, kernels=STOCK, timeout=900, quick=())
def test_lost_server(t: Test) -> None:
    """A server is lost for good under a verified stream: another server takes its place, and the mirror is whole, also
    after the client's next boot."""
    mirror = Mirror(t)
    near, far = mirror.servers
    addresses = dict(zip(mirrors.SESSIONS, [near.address, far.address], strict=True))
    configure(t, addresses, [leg(0), leg(1)])
    writer = Stream(t, mirror.device, name="mirror", operations=("write",), spares=True)
    # The last clean-up boots it again, for other cases.
    t.defer(mirror.power_back, 1)
    mirror.power_cut(1)
    mirror.wait("degraded")

    new = t.nodes[3]
    new.run(f"blkdiscard --force --zeroout {DISK}")
    new.modules_load("rnbd_server", rtrs_server=mirrors.FAST, rnbd_server="dev_search_path=/dev")
    t.check(DISK.rsplit("/", 1)[1] in new.sh("lsblk"), "lsblk of the new server")
    configure(t, addresses | {NEW_SESSION: new.address}, [leg(0), leg(1)])
    result = program.run(t.client, "apply", code=FAILED, timeout=120)
    t.check(mirrors.SESSIONS[1] in result.err and NEW_SESSION not in result.err, f"apply said {result.err!r}")
    t.equal([mirror.status()["state"], mirror.legs()[0]], ["degraded", "in-sync"], "mirror and leg after apply")
    said = program.run(t.client, "mirror", "replace", NAME, leg(1), NEW_LEG).out
    t.check("md copies all data to the leg" in said, f"said {said!r}")
    took = mirror.wait("whole", 120)
    writer.go_on()
    t.equal([one["name"] for one in mirror.status()["legs"]], [leg(0), NEW_LEG], "legs")

    final = {mirrors.SESSIONS[0]: near.address, NEW_SESSION: new.address}
    configure(t, final, [leg(0), NEW_LEG])
    program.run(t.client, "unmap", leg(1))
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), sorted(rnbd.link_name(DISK, session) for session in
                                                          (mirrors.SESSIONS[0], NEW_SESSION)), "mapped disks")
    program.run(t.client, "apply")
    writer.go_on()
    verdict = writer.stop()
    mirror.reboot_client()
    # The machine's root file system is as before; the disk with the records is not.
    configure(t, final, [leg(0), NEW_LEG])
    mirror.watch()
    program.run(t.client, "apply", "--wait", timeout=120)
    mirror.wait("whole", 120)
    mirror.servers = [near, new]
    mirror.devices = [rnbd.find_device(t.client, DISK, session) for session in (mirrors.SESSIONS[0], NEW_SESSION)]
    mirror.same()
    mirror.servers = [near, far]
    t.say(f"filled after {took:.1f} s; {verified(verdict)}")
