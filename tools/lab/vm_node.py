# SPDX-License-Identifier: GPL-2.0
"""A test machine as tests see it: commands, files, modules, kernel log."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Generic
from typing import ParamSpec
from typing import TypeVar

from lib import guest_modules

from . import vm_trouble
from .vm_channel import Answer
from .vm_channel import Channel
from .vm_machine import Machine
from .vm_machine import Spec

P = ParamSpec("P")
R = TypeVar("R")

# What each module needs loaded before it; the same in all module sets but for `NEEDS_OF_SET`. C has no samples.
MODULE_NEEDS = {
    "rtrs_core": [],
    "rtrs_client": ["rtrs_core"],
    "rtrs_server": ["rtrs_core"],
    "rnbd_client": ["rtrs_client"],
    "rnbd_server": ["rtrs_server"],
    "rtrs_client_c": ["rtrs_client"],
    "rtrs_server_c": ["rtrs_server"],
    "rtrs_caller": ["rtrs_client_c"],
    "rtrs_srv_asker": ["rtrs_client_c"],
    "rtrs_srv_caller": ["rtrs_server_c"],
    "rtrs_group": ["rtrs_client"],
    "rtrs_group_c": ["rtrs_group", "rtrs_client_c"],
    "rtrs_group_caller": ["rtrs_group_c"],
    "rtrs_test": ["rtrs_core"],
    "rtrs_test_client": ["rtrs_test", "rtrs_client"],
    "rtrs_test_server": ["rtrs_test", "rtrs_server"],
    "rtrs_kv_client": ["rtrs_client"],
    "rtrs_kv_group": ["rtrs_group"],
    "rtrs_kv_server": ["rtrs_server"],
}
# There client and server are the kernel's.
NEEDS_OF_SET = {"c-users": {"rnbd_client": ["rtrs_client_c"], "rnbd_server": ["rtrs_server_c"]}}

# How long a killed program may take to end.
END_SECONDS = 20.0

UNLOAD_ORDER = ("rtrs_caller", "rtrs_srv_asker", "rtrs_srv_caller", "rtrs_group_caller", "rtrs_kv_client",
                "rtrs_kv_group", "rtrs_kv_server", "rtrs_test_client", "rtrs_test_server", "rtrs_test", "rnbd_client",
                "rtrs_group_c", "rtrs_client_c", "rtrs_group", "rtrs_client", "rnbd_server", "rtrs_server_c",
                "rtrs_server", "rtrs_core")


class CommandFailed(RuntimeError):
    """A program in a guest failed where it was to succeed."""


@dataclass
class Result:
    """What a program in a guest did. ``rc`` is negative for a signal."""

    rc: int
    out: str
    err: str
    timed_out: bool = False


class Job:
    """A program that runs in a guest while the test goes on."""

    def __init__(self, node: Node, number: int, slot: Any, what: str, timeout: float) -> None:
        self._node, self._number, self._slot = node, number, slot
        self._what, self._timeout = what, timeout
        self._waited = False

    def __str__(self) -> str:
        return self._what

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the program's end, by default a little longer than it may run."""
        limit = self._timeout + 15 if timeout is None else timeout
        self._waited = True
        return _result(Channel.finish(self._slot, self._what, limit))

    def done(self) -> bool:
        """Whether the program has ended."""
        return self._waited or not self._slot.empty()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the program and its children."""
        self._node.request("signal", f"kill {self._what}", job=self._number, signal=int(number))


class PendingCall(Generic[R]):
    """A function that runs in a guest while the test goes on."""

    def __init__(self, slot: Any, what: str, timeout: float) -> None:
        self._slot, self._what, self._timeout = slot, what, timeout

    def wait(self) -> R:
        """Wait for the function's end and return its result."""
        result: R = Channel.finish(self._slot, self._what, self._timeout).header["result"]
        return result


class Node(Machine):
    """A machine with its place in the topology.

    ``addresses`` are what others reach it by, one for each link; ``slow`` multiplies
    every timeout (debug kernels); ``module_set`` names the directory modules come from.
    """

    def __init__(self, spec: Spec, directory: Path, *, module_set: str = "ours",
                 slow: float = 1.0) -> None:
        super().__init__(spec, directory)
        self.module_set = module_set
        self.slow = slow
        self.addresses: list[str] = []
        self.addresses6: list[str] = []
        self.loaded_parameters: dict[str, str] = {}
        self._dependencies_loaded = False
        self._log_mark = 0
        self.known_reports: list[str] = []
        # A test has had allocations fail since the machine booted.
        self.allocations_fail = False
        self._jobs: list[Job] = []

    @property
    def address(self) -> str:
        """Its address on the first link."""
        return self.addresses[0]

    @property
    def address6(self) -> str:
        """Its IPv6 address on the first link."""
        return self.addresses6[0]

    def start(self) -> None:
        """Start the emulator; nothing of an earlier start is remembered."""
        self.loaded_parameters.clear()
        self._dependencies_loaded = False
        self._log_mark = 0
        self._jobs.clear()
        super().start()

    def request(self, op: str, what: str, timeout: float = 20.0, payload: bytes = b"",
                **header: Any) -> Answer:
        """One request to the agent; OSError carries the guest's errno."""
        return self.channel.request(op, f"{self.name}: {what}", timeout * self.slow + 10,
                                    payload, **header)

    # Programs

    def start_job(self, command: str | list[str], *, timeout: float = 60.0,
                  stdin: bytes | str = b"", env: dict[str, str] | None = None) -> Job:
        """Start a program (a list) or shell text (a string)."""
        argv = command if isinstance(command, list) else ["/bin/bash", "-c", command]
        what = shlex.join(command) if isinstance(command, list) else command
        data = stdin.encode() if isinstance(stdin, str) else stdin
        limit = timeout * self.slow
        number, slot = self.channel.start("run", data, argv=argv, timeout=limit, env=env or {})
        job = Job(self, number, slot, f"{self.name}: {what}", limit)
        self._jobs = [other for other in self._jobs if not other.done()] + [job]
        return job

    def end_jobs(self) -> list[str]:
        """Kill the programs that still run; which they were."""
        running = [job for job in self._jobs if not job.done()]
        self._jobs.clear()
        for job in running:
            with contextlib.suppress(ProcessLookupError):
                job.kill()
            job.wait(END_SECONDS * self.slow)
        return [str(job) for job in running]

    def run(self, command: str | list[str], *, check: bool = True, timeout: float = 60.0,
            stdin: bytes | str = b"", env: dict[str, str] | None = None) -> Result:
        """Run a program to its end; ``check`` raises unless it exits with 0."""
        result = self.start_job(command, timeout=timeout, stdin=stdin, env=env).wait()
        if check and result.rc != 0:
            text = command if isinstance(command, str) else shlex.join(command)
            why = f"timed out after {timeout * self.slow:.0f} s" if result.timed_out \
                else f"exit code {result.rc}"
            raise CommandFailed(f"{self.name}: `{text}`: {why}\n"
                                f"{result.out[-2000:]}{result.err[-2000:]}")
        return result

    def sh(self, command: str | list[str], **options: Any) -> str:
        """Run and return what it printed, without the last newline."""
        return self.run(command, **options).out.rstrip("\n")

    def call(self, function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """Call a function of the guest library (``lib/guest_*.py``) in the guest.

        Arguments and result travel as JSON: a tuple arrives as a list, a key as text.
        """
        return self._start_call(30.0, function, args, named).wait()

    def call_within(self, timeout: float, function: Callable[P, R], *args: P.args,
                    **named: P.kwargs) -> R:
        """The same, of a function that may take longer: ``timeout`` in seconds."""
        return self._start_call(timeout, function, args, named).wait()

    def start_call(self, timeout: float, function: Callable[P, R], *args: P.args,
                   **named: P.kwargs) -> PendingCall[R]:
        """Start a function that runs while the test goes on: ``timeout`` in seconds."""
        return self._start_call(timeout, function, args, named)

    def _start_call(self, timeout: float, function: Callable[..., R], args: tuple[object, ...],
                    named: dict[str, Any]) -> PendingCall[R]:
        name = f"{function.__module__}.{function.__qualname__}"
        _number, slot = self.channel.start("call", function=name, args=args, named=named)
        return PendingCall(slot, f"{self.name}: {name}", timeout * self.slow + 10)

    # Files

    def read(self, path: str, timeout: float = 20.0) -> str:
        """A file's text without the last newline."""
        return self.read_bytes(path, timeout).decode(errors="replace").rstrip("\n")

    def read_bytes(self, path: str, timeout: float = 20.0) -> bytes:
        """A file's bytes."""
        return self.request("read", f"read {path}", timeout, path=path).blobs[0]

    def write(self, path: str, text: str | bytes, timeout: float = 60.0) -> None:
        """Write to an existing file by one write(2), as sysfs wants it."""
        data = text.encode() if isinstance(text, str) else text
        self.request("write", f"write {path}", timeout, data, path=path)

    def create(self, path: str, data: str | bytes) -> None:
        """Make or replace a regular file."""
        data = data.encode() if isinstance(data, str) else data
        self.request("write", f"create {path}", 60.0, data, path=path, create=True)

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty if there is none."""
        try:
            return self.request("list", f"list {path}", path=path).header["names"]
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return []

    def exists(self, path: str) -> bool:
        """Whether a path exists (a dangling link does)."""
        return self.request("stat", f"stat {path}", path=path).header["exists"]

    def realpath(self, path: str) -> str:
        """Where a path leads."""
        return self.request("stat", f"stat {path}", path=path).header.get("real", "")

    def mode(self, path: str) -> int:
        """Permission bits."""
        return self.request("stat", f"stat {path}", path=path).header["mode"] & 0o7777

    def wait_for(self, path: str, *, gone: bool = False, matches: str | None = None,
                 timeout: float = 15.0) -> None:
        """Wait until a path is there (or gone, or its text matches)."""
        cond: dict[str, Any] = {"path": path, "want": "gone" if gone else "exists"}
        if matches is not None:
            cond["matches"] = matches
        # A look costs the debug kernel some 10 ms of a processor.
        answer = self.request("wait", f"wait for {path}", timeout, cond=cond,
                              seconds=timeout * self.slow, interval=min(0.05 * self.slow, 0.2))
        if not answer.header["held"]:
            what = f"match {matches!r}" if matches is not None else cond["want"]
            now = ""
            if matches is not None and self.exists(path):
                now = f"; it reads {self.read(path)!r}"
            raise TimeoutError(f"{self.name}: {path} did not become `{what}` within "
                               f"{timeout * self.slow:.0f} s{now}")

    # Kernel log

    def log_mark(self) -> int:
        """A place in the kernel log; give it to ``log_since`` or ``wait_log``."""
        return self.request("log", "read kernel log", since=1 << 60).header["next"]

    def log_since(self, mark: int) -> list[str]:
        """Kernel messages since a mark."""
        answer = self.request("log", "read kernel log", since=mark)
        return [text for _level, text in json.loads(answer.blobs[0])]

    def wait_log(self, pattern: str, since: int, timeout: float = 15.0) -> str:
        """Wait for a kernel message that matches; returns it."""
        answer = self.request("log_wait", f"wait for log {pattern!r}", timeout, since=since,
                              pattern=pattern, seconds=timeout * self.slow)
        if answer.header["text"] is None:
            said = "\n  ".join(self.log_since(since)[-15:]) or "nothing"
            raise TimeoutError(f"{self.name}: no kernel message matches {pattern!r}; "
                               f"it said:\n  {said}")
        return answer.header["text"]

    def dmesg_check(self) -> list[str]:
        """Troubled kernel messages since the last call, with what follows each.

        Reports that are known not to be of these modules are added to ``known_reports``.
        """
        lines = self.log_since(self._log_mark)
        self._log_mark += len(lines)
        trouble, known = vm_trouble.troubled(lines, self.allocations_fail)
        self.known_reports += known
        return trouble

    # Modules

    def module_loaded(self, name: str) -> bool:
        """Whether a module is loaded."""
        return self.exists(f"/sys/module/{name}/refcnt")

    def modules_load(self, *names: str, **parameters: str) -> None:
        """Load modules of the set and what they need, unless they are loaded.

        ``parameters`` are module parameters by module name.
        """
        order: list[str] = []
        for name in names:
            _with_needs(name, order, self.module_set)
        if not self._dependencies_loaded:
            self.run(["modprobe", "-a", "ib_core", "rdma_cm"])
            self._dependencies_loaded = True
        self.call_within(60, guest_modules.load, folder=f"/host/modules/{self.module_set}", names=order,
                         parameters=parameters)
        for name in order:
            self.loaded_parameters.setdefault(name, parameters.get(name, ""))

    def module_unload(self, *names: str) -> None:
        """Unload modules in this order; OSError EWOULDBLOCK while one is in use."""
        try:
            self.call_within(60, guest_modules.unload, names=names)
        finally:
            for name in names:
                if not self.module_loaded(name):
                    self.loaded_parameters.pop(name, None)

    def modules_unload_all(self) -> None:
        """Unload the project's modules that are loaded, users first."""
        self.call_within(60, guest_modules.unload, names=UNLOAD_ORDER)
        self.loaded_parameters.clear()

    # Network

    def network_up(self, device: str, link: int, address: str, address6: str, mtu: int) -> None:
        """Address an interface and put a soft-RoCE device, rxe<link>, on it."""
        self.addresses.append(address)
        self.addresses6.append(address6)
        make = f"modprobe dummy numdummies=0; ip link show {device} >/dev/null 2>&1 || " \
               f"ip link add {device} type dummy" \
            if device.startswith("dummy") else "modprobe virtio_net"
        self.run(f"set -e; {make}; modprobe rdma_rxe; ip link set lo up\n"
                 f"ip link set {device} mtu {mtu} up\n"
                 f"ip addr add {address}/24 dev {device}\n"
                 f"ip addr add {address6}/64 dev {device} nodad\n"
                 f"rdma link add rxe{link} type rxe netdev {device}")


def _result(answer: Answer) -> Result:
    out, err = (blob.decode(errors="replace") for blob in answer.blobs)
    return Result(answer.header["rc"], out, err, answer.header.get("timed_out", False))


def _with_needs(name: str, order: list[str], module_set: str) -> None:
    needs = MODULE_NEEDS | NEEDS_OF_SET.get(module_set, {})
    for need in needs.get(name, []):
        _with_needs(need, order, module_set)
    if name not in order:
        order.append(name)


def os_error(number: int) -> str:
    """`EINVAL`-like name of an errno."""
    return errno.errorcode.get(abs(number), os.strerror(abs(number)))
