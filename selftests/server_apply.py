# SPDX-License-Identifier: GPL-2.0
"""`rnbdctl server apply`: a server from its file, with keys, a disk and an image file."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import QUICK
from lab.selftest_case import Test
from lib import disks
from lib import documented
from lib import program
from lib import rnbd

TOPOLOGY = "one"
FILE = "/etc/rnbd/server.toml"
KEYS = "/etc/rnbd/keys"
IMAGE = "/srv/image"
SESSION_ID = f"{rnbd.SERVER_SESSIONS}/sess/client_id"
CONFIG = f"""
[parameters.rtrs_server]
sess_queue_depth = 64
ack_timeout_ms = 8000
require_auth = true

[keys]
clients = ["web1"]

[[export]]
client_ids = ["web*"]
devices = ["{disks.PLAIN}", "{IMAGE}"]
"""


def tidy(t: Test) -> None:
    """No modules, no keys, no files."""
    rnbd.unmap_all(t)
    # What modprobe has loaded, the test's own notes do not know.
    t.server.modules_unload_all()
    t.server.run(f"rm -rf /etc/rnbd {IMAGE}; rnbdctl key load")


def prepare(t: Test) -> None:
    """A machine with nothing loaded, on which modprobe and the program work."""
    t.server.modules_unload_all()
    program.install(t.server)
    documented.modprobe_finds_ours(t.server)
    t.defer(tidy, t)
    t.server.run(f"mkdir -p /etc/rnbd; truncate -s 64M {IMAGE}")
    t.server.create(FILE, CONFIG)


def new_key(t: Test) -> None:
    """One more key of web1, which this machine is as a client, too."""
    program.run(t.server, "key", "new", "web1")
    t.server.run(f"mkdir -m 700 -p {KEYS}/own && cp -p {KEYS}/clients/web1 {KEYS}/own/web1")


def load_client(t: Test) -> None:
    """The client's modules."""
    t.client.run("modprobe rtrs_client ack_timeout_ms=8000 && modprobe rnbd_client", timeout=120)


@case(module_sets=("ours",), quick=QUICK, kernels=("stock",))
def test_keys(t: Test) -> None:
    """A client is served what the file gives to its key: a disk and a file, and nothing else; keys are replaced."""
    prepare(t)
    missing = program.run(t.server, "server", "apply", code=9)
    t.check("rnbdctl key new web1" in missing.err, f"what is said of a client without a key: {missing.err}")
    new_key(t)
    shown = program.run(t.server, "server", "apply", "--dry-run").out
    t.check(shown.startswith("+ keys of web1\n+ module rtrs_server "), f"the dry run shows: {shown}")
    t.check("rtrs_server" not in t.server.read("/proc/modules"), "the dry run has loaded a module")
    t.equal(program.run(t.server, "server", "apply").out, shown, "what was done, and what was shown")
    load_client(t)
    disk = rnbd.map_device(t, disks.PLAIN)
    t.equal(t.server.read(SESSION_ID), "web1", "client id of the session")
    rnbd.works(t, disk)
    rnbd.works(t, rnbd.map_device(t, IMAGE), seed=2)
    with t.expect_errno(errno.EACCES):
        rnbd.map_device(t, disks.WITHOUT_DISCARD)

    again = program.run(t.server, "server", "apply").out
    t.check(again.startswith("= keys of web1, again") and again.endswith("nothing else to do\n"),
            f"a second run: {again}")
    # The old key goes; the session goes on with the new one.
    old = t.server.sh(f"grep -o '^rnbd-key-1:[0-9a-f]*' {KEYS}/clients/web1").split(":")[-1]
    new_key(t)
    program.run(t.server, "key", "remove", "web1", "--key", old)
    program.run(t.server, "key", "remove", "web1", "--own", "--key", old)
    program.run(t.server, "server", "apply")
    rnbd.reconnect(t, rnbd.client_path(t, "sess"))
    # The disk is mapped again after the path is connected; until then its requests fail.
    t.client.wait_for(f"{disk.sysfs}/state", matches="open")
    rnbd.works(t, disk, seed=3)


@case(module_sets=("ours",), kernels=("stock",))
def test_client_without_a_key(t: Test) -> None:
    """A client that has no key is refused by a server whose file asks for keys."""
    prepare(t)
    new_key(t)
    t.server.run(f"rm -r {KEYS}/own")
    program.run(t.server, "server", "apply")
    load_client(t)
    with t.expect_errno(errno.ENOKEY):
        rnbd.map_device(t, disks.PLAIN)
