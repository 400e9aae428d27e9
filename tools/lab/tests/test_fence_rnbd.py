# SPDX-License-Identifier: GPL-2.0
"""The fencing agent, on a disk made up here that keeps to reservations as the server's do."""

import contextlib
import errno
import importlib.util
import io
import os
import stat
import struct
import sys
import tempfile
import unittest
from collections.abc import Callable
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from xml.etree import ElementTree

PROGRAM = Path(__file__).resolve().parents[3] / "packaging/pacemaker/fence_rnbd"
SETTINGS = "devices=/dev/rnbd0\nkeys=alpha:0x10;beta:0x20\n"
REGISTRANTS_ONLY = 3


def program() -> Any:
    """The agent itself, which has no .py in its name."""
    loader = SourceFileLoader("fence_rnbd", str(PROGRAM))
    spec = importlib.util.spec_from_loader("fence_rnbd", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fence_rnbd"] = module
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


class FakeDisk:
    """The registrants and the reservation of a disk, and which machine gives commands."""

    def __init__(self) -> None:
        self.machine = "alpha"
        self.registered: dict[str, int] = {}
        self.kind, self.holder = 0, ""
        self.error = 0
        self.in_use: set[str] = set()
        # What another machine does just before a command of this number.
        self.meanwhile: dict[int, Callable[[], None]] = {}

    def register(self, old: int, new: int, flags: int) -> int:
        if not flags & 1 and self.registered.get(self.machine, 0) != old:
            return 0x18
        self.registered[self.machine] = new
        return 0

    def preempt(self, own: int, other: int) -> int:
        gone = [name for name, key in self.registered.items() if key == other]
        if self.registered.get(self.machine) != own or not gone:
            return 0x18
        for name in gone:
            del self.registered[name]
        if self.holder in gone:
            self.holder = self.machine
        return 0

    def reserve(self, key: int, kind: int) -> int:
        if self.registered.get(self.machine) != key or (self.kind and self.holder != self.machine):
            return 0x18
        self.kind, self.holder = kind, self.machine
        return 0

    def forget_alpha(self) -> None:
        """Another machine removes the key of alpha."""
        del self.registered["alpha"]

    def forget_beta(self) -> None:
        """The same with beta's."""
        del self.registered["beta"]

    def control(self, path: str, number: int, direction: int, data: bytearray) -> int:
        """In the place of the ioctl."""
        assert path == "/dev/rnbd0"
        self.meanwhile.pop(number, lambda: None)()
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        if number == 200:
            old, new, flags, _ = struct.unpack("=QQII", data)
            return self.register(old, new, flags)
        if number == 201:
            key, kind, _ = struct.unpack("=QII", data)
            return self.reserve(key, kind)
        if number == 204:
            own, other, _, _ = struct.unpack("=QQII", data)
            return self.preempt(own, other)
        assert number == 207 and direction == 2, number
        struct.pack_into("=QII", data, 0, self.registered.get(self.holder, 0), 1, self.kind)
        return 0


class Agent(unittest.TestCase):
    def setUp(self) -> None:
        self.agent = program()
        self.disk = FakeDisk()
        # In the place of reading the keys.
        self.replaced: Callable[[Any], list[int]] | None = None
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.agent.SWITCHED_ON = f"{folder.name}/fence_rnbd"

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        block = SimpleNamespace(st_mode=stat.S_IFBLK)
        with contextlib.ExitStack() as stack:
            for target, name, value in (
                (self.agent, "control", self.disk.control),
                # Keys are read into memory whose address is in the message.
                (self.agent.Disk, "registered", self.replaced or (lambda _disk: sorted(self.disk.registered.values()))),
                (self.agent, "is_in_use", lambda _path: self.disk.machine in self.disk.in_use),
                (os, "uname", lambda: SimpleNamespace(nodename=f"{self.disk.machine}.example.org")),
                (os, "stat", lambda _path: block),
            ):
                stack.enter_context(mock.patch.object(target, name, value))
            yield

    def act(self, machine: str, action: str, node: str = "", settings: str = SETTINGS) -> tuple[int, str]:
        """Has Pacemaker call the agent on a machine; its exit code and what it says."""
        self.disk.machine = machine
        text = f"action={action}\n{settings}" + (f"nodename={node}\n" if node else "") + "crm_feature_set=3.20\n"
        out, err = io.StringIO(), io.StringIO()
        with self.patched(), mock.patch.object(sys, "stdin", io.StringIO(text)), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = self.agent.main([])
        return code, out.getvalue() + err.getvalue()

    def fails(self, why: str, machine: str, action: str, node: str = "", settings: str = SETTINGS) -> None:
        code, said = self.act(machine, action, node, settings)
        self.assertEqual(code, 1, said)
        self.assertIn(why, said)
        self.assertTrue(said.startswith("fence_rnbd: "), said)

    def both_on(self) -> None:
        for machine in ("alpha", "beta"):
            self.assertEqual(self.act(machine, "on", machine), (0, ""))

    def test_nodes_switch_themselves_on(self) -> None:
        self.both_on()
        self.assertEqual(self.disk.registered, {"alpha": 0x10, "beta": 0x20})
        self.assertEqual((self.disk.kind, self.disk.holder), (REGISTRANTS_ONLY, "alpha"))
        # Again, and with the disk in use: it has its key, so nothing was missed.
        self.disk.in_use.add("alpha")
        self.assertEqual(self.act("alpha", "on", "alpha"), (0, ""))
        self.assertEqual(self.act("alpha", "status", "beta"), (0, "Status: ON\n"))

    def test_a_node_is_taken_off(self) -> None:
        self.both_on()
        self.assertEqual(self.act("beta", "off", "alpha"), (0, ""))
        self.assertEqual(self.disk.registered, {"beta": 0x20})
        self.assertEqual((self.disk.kind, self.disk.holder), (REGISTRANTS_ONLY, "beta"))
        self.assertEqual(self.act("beta", "status", "alpha"), (2, "Status: OFF\n"))
        # Once more does no harm, and the node that was fenced cannot fence.
        self.assertEqual(self.act("beta", "off", "alpha"), (0, ""))
        self.fails("alpha is not registered, so it cannot fence beta", "alpha", "off", "beta")
        self.assertEqual(self.disk.registered, {"beta": 0x20})

    def test_a_fenced_node_comes_back_without_the_disk_in_use_only(self) -> None:
        self.both_on()
        self.act("beta", "off", "alpha")
        self.disk.in_use.add("alpha")
        self.fails("is in use, and alpha has lost it", "alpha", "on", "alpha")
        self.assertEqual(self.disk.registered, {"beta": 0x20})
        self.disk.in_use.clear()
        self.assertEqual(self.act("alpha", "on", "alpha"), (0, ""))
        self.assertEqual(self.disk.registered, {"alpha": 0x10, "beta": 0x20})

    def test_of_two_nodes_that_fence_each_other_one_wins(self) -> None:
        self.both_on()
        self.disk.meanwhile[204] = self.disk.forget_alpha
        self.fails("both fence each other", "alpha", "off", "beta")
        self.assertEqual(self.disk.registered, {"beta": 0x20})

    def test_a_reservation_that_is_gone_is_made_again(self) -> None:
        self.both_on()
        self.disk.kind, self.disk.holder = 0, ""
        self.assertEqual(self.act("beta", "off", "alpha"), (0, ""))
        self.assertEqual((self.disk.kind, self.disk.holder), (REGISTRANTS_ONLY, "beta"))

    def test_another_reservation_is_left_alone(self) -> None:
        self.disk.registered, self.disk.kind, self.disk.holder = {"other": 7}, 1, "other"
        self.fails("the reservation is `write-exclusive'", "alpha", "on", "alpha")
        self.assertEqual((self.disk.kind, self.disk.holder), (1, "other"))

    def test_a_key_that_another_machine_has_is_not_ours(self) -> None:
        self.disk.registered["stranger"] = 0x10
        self.fails("alpha is not registered", "alpha", "off", "beta")

    def test_errors_say_what_to_do(self) -> None:
        for number, said in ((errno.EPERM, "access_mode=migration"), (errno.EOPNOTSUPP, "has no reservations"),
                             (errno.EROFS, "state_dir"), (errno.ENOENT, "map the disk first")):
            self.disk.error = number
            self.fails(said, "alpha", "on", "alpha")
        self.disk.error = 0
        self.fails("runs on the node that it registers", "alpha", "on", "beta")
        self.fails("alpha cannot take itself off", "alpha", "off", "alpha")
        self.fails("say which node is meant", "alpha", "off")
        self.fails("keys has no node gamma", "alpha", "off", "gamma")
        self.fails("this machine is called gamma.example.org", "gamma", "monitor")
        self.fails("there is no action reboot", "alpha", "reboot", "beta")

    def watch(self, *events: Callable[[], None]) -> tuple[list[str], str]:
        """Runs `watch' on alpha, with something that happens after each look; alerts, and what else it says.

        It ends with an alert, or when all has happened.
        """
        alerts: list[str] = []
        left = list(events)
        err = io.StringIO()

        def sleep(_seconds: float) -> None:
            if not left:
                raise StopIteration
            left.pop(0)()

        def reboot(how: int) -> int:
            self.assertEqual(how, 0x01234567)
            raise StopIteration

        with self.patched(), mock.patch.object(self.agent.time, "sleep", sleep), \
                mock.patch.object(self.agent.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(reboot=reboot)), \
                mock.patch.object(self.agent, "say_last", alerts.append), contextlib.redirect_stderr(err), \
                self.assertRaises(StopIteration):
            self.agent.main(["-o", "watch"])
        self.assertEqual(left, [], "watch ended too soon")
        return alerts, err.getvalue()

    def test_a_fenced_node_reboots(self) -> None:
        self.both_on()
        self.act("alpha", "on", "alpha")
        alerts, said = self.watch(lambda: None, self.disk.forget_alpha)
        self.assertEqual(alerts, ["/dev/rnbd0: this machine has lost its key: it was fenced, and reboots now"])
        self.assertEqual(said, "")

    def test_a_node_that_has_its_key_runs_on(self) -> None:
        self.both_on()
        self.act("alpha", "on", "alpha")
        self.assertEqual(self.watch(lambda: None, self.disk.forget_beta), ([], ""))

    def test_a_node_that_was_never_switched_on_runs_on(self) -> None:
        self.assertEqual(self.watch(lambda: None), ([], ""))
        # Switching on another node has told this one nothing.
        self.fails("runs on the node that it registers", "alpha", "on", "beta")
        self.assertEqual(self.watch(lambda: None), ([], ""))

    def test_a_disk_that_cannot_be_asked_is_told_once(self) -> None:
        self.both_on()
        self.act("alpha", "on", "alpha")
        answers = iter(["", "x", "x", "y", "", "y"])

        def registered(_disk: object) -> list[int]:
            if text := next(answers):
                raise self.agent.Failed(f"no path: {text}")
            return [0x10]

        nothing: list[Callable[[], None]] = [lambda: None] * 5
        self.replaced = registered
        self.assertEqual(self.watch(*nothing), ([], "".join(f"fence_rnbd: no path: {text}\n" for text in "xyy")))

    def test_a_disk_that_cannot_be_asked_hides_no_other(self) -> None:
        self.agent.remember(0x10, ["/dev/gone", "/dev/rnbd0"])

        def registered(disk: Any) -> list[int]:
            if disk.path == "/dev/gone":
                raise self.agent.Failed("no path")
            return [0x20]

        self.replaced = registered
        alerts, _ = self.watch()
        self.assertEqual(len(alerts), 1)
        self.assertIn("/dev/rnbd0", alerts[0])

    def test_a_node_that_cannot_be_watched_is_not_switched_on(self) -> None:
        self.agent.SWITCHED_ON = "/dev/null/fence_rnbd"
        self.fails("has nothing to watch", "alpha", "on", "alpha")

    def test_settings_are_checked(self) -> None:
        for keys in ("alpha", "alpha:0;beta:1", "alpha:0x10;beta:16", "alpha:1;alpha:2", "alpha:1", "",
                     "alpha:1;beta:0x10000000000000000", "alpha:1;:2"):
            self.fails("keys: ", "alpha", "validate-all", settings=f"devices=/dev/rnbd0\nkeys={keys}\n")
        self.fails("devices: ", "alpha", "validate-all", settings="keys=alpha:1;beta:2\n")
        self.assertEqual(self.act("alpha", "validate-all"), (0, ""))
        self.assertEqual(self.act("alpha", "list"), (0, "alpha\nbeta\n"))
        self.assertEqual(self.act("alpha", "monitor"), (0, ""))

    def test_a_file_is_no_disk(self) -> None:
        out, err = io.StringIO(), io.StringIO()
        arguments = ["-o", "status", "-n", "alpha", "-k", "alpha:1;beta:2", "-d"]
        for path, said in ((str(PROGRAM), "is no block device"), ("/dev/rnbd-none", "map the disk first")):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                self.assertEqual(self.agent.main([*arguments, path]), 1)
            self.assertIn(said, err.getvalue())

    def test_metadata_tells_pacemaker_what_it_needs(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(self.agent.main(["-o", "metadata"]), 0)
        root = ElementTree.fromstring(out.getvalue())
        actions = {action.get("name"): action.attrib for action in root.iter("action")}
        self.assertEqual(set(actions), {"on", "off", "status", "monitor", "list", "validate-all", "metadata"})
        # Pacemaker then has each node switch itself on before it runs anything.
        self.assertEqual(actions["on"], {"name": "on", "on_target": "1", "automatic": "1"})
        self.assertEqual({parameter.get("name") for parameter in root.iter("parameter")},
                         {"action", "devices", "keys", "plug"})
