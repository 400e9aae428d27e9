#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Guest end of the control channel.

Runs commands and file operations for the host over a virtio-serial port, so
that tests control a machine whose network they take away.  A frame is two
big-endian u32 (length of a JSON header, length of a payload) and those bytes;
``blobs`` in the header cuts the payload into pieces.  Every request carries an
``id`` that its one response repeats; requests run concurrently.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

# A header to answer with, and the pieces of its payload.
Reply = tuple[dict[str, Any], list[bytes]]
LENGTHS = struct.Struct(">II")
PORT_NAME = "lab.agent"
sys.path[:0] = ["/host/selftests"]


def find_port() -> str:
    """Path of the control port, by its name (no udev makes the link)."""
    base = "/sys/class/virtio-ports"
    while True:
        try:
            ports = os.listdir(base)
        except FileNotFoundError:
            ports = []
        for port in ports:
            with open(f"{base}/{port}/name", encoding="ascii") as name:
                if name.read().strip() == PORT_NAME:
                    return "/dev/" + port
        time.sleep(0.05)


class Channel:
    def __init__(self) -> None:
        self.fd = os.open(find_port(), os.O_RDWR)
        self.lock = threading.Lock()

    def read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = os.read(self.fd, count - len(data))
            if piece:
                data += piece
            else:  # the host end is not connected
                time.sleep(0.05)
        return bytes(data)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        header_len, payload_len = LENGTHS.unpack(self.read_exactly(LENGTHS.size))
        header = json.loads(self.read_exactly(header_len))
        return header, self.read_exactly(payload_len)

    def send(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        header["blobs"] = [len(blob) for blob in blobs]
        text = json.dumps(header).encode()
        data = LENGTHS.pack(len(text), sum(header["blobs"])) + text + b"".join(blobs)
        with self.lock:
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view[:32768]):]


class KernelLog:
    """The kernel's messages, read once each from /dev/kmsg."""

    def __init__(self) -> None:
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        self.records: list[tuple[int, str]] = []
        self.lock = threading.Lock()

    def drain(self) -> int:
        """Append what is new; return the number of records so far."""
        with self.lock:
            while True:
                try:
                    record = os.read(self.fd, 8192).decode(errors="replace")
                except BlockingIOError:
                    return len(self.records)
                except OSError as error:
                    if error.errno == errno.EPIPE:  # overwritten: say so
                        self.records.append((4, "agent: kernel log records lost"))
                        continue
                    raise
                meta, _, text = record.partition(";")
                level = int(meta.split(",")[0]) & 7
                self.records.append((level, text.split("\n")[0]))

    def wait(self, timeout: float) -> None:
        select.select([self.fd], [], [], timeout)


class Uevents:
    """Wakes waiters when the kernel announces a change of a device."""

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15)
        self.sock.bind((0, 1))

    def wait(self, timeout: float) -> None:
        if select.select([self.sock], [], [], timeout)[0]:
            try:
                self.sock.recv(65536)
            except OSError:  # overrun: something happened
                pass

    def close(self) -> None:
        self.sock.close()


def condition_holds(cond: dict[str, Any]) -> bool:
    """One of exists, gone, matches (regular expression on a file's text)."""
    path = cond["path"]
    if "matches" in cond:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return re.search(cond["matches"], file.read()) is not None
        except OSError:
            return False
    return os.path.lexists(path) == (cond.get("want", "exists") == "exists")


class Agent:
    def __init__(self) -> None:
        self.channel = Channel()
        self.log = KernelLog()
        self.jobs: dict[int, subprocess.Popen[bytes]] = {}

    def op_run(self, header: dict[str, Any], stdin: bytes) -> Reply:
        """Run a program; both outputs whole, at most header['limit'] bytes each."""
        argv = header["argv"]
        env = dict(os.environ, **header.get("env", {}))
        try:
            proc = subprocess.Popen(
                argv, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                cwd=header.get("cwd", "/tmp"), start_new_session=True)
        except OSError as error:
            return {"rc": 127}, [b"", f"{argv[0]}: {error.strerror}\n".encode()]
        self.jobs[header["id"]] = proc
        timed_out = False
        try:
            out, err = proc.communicate(stdin or None, header.get("timeout"))
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(proc.pid, signal.SIGKILL)
            try:
                out, err = proc.communicate(timeout=5)
            except subprocess.TimeoutExpired as again:  # asleep in the kernel
                out, err = again.stdout or b"", again.stderr or b""
        finally:
            self.jobs.pop(header["id"], None)
        rc = proc.returncode
        return {"rc": -9 if rc is None else rc, "timed_out": timed_out}, [out, err]

    def op_signal(self, header: dict[str, Any], _payload: bytes) -> Reply:
        proc = self.jobs.get(header["job"])
        if proc:
            os.killpg(proc.pid, header["signal"])
        return {"found": proc is not None}, []

    def op_read(self, header: dict[str, Any], _payload: bytes) -> Reply:
        fd = os.open(header["path"], os.O_RDONLY)
        try:
            pieces = []
            while piece := os.read(fd, 65536):
                pieces.append(piece)
        finally:
            os.close(fd)
        return {}, [b"".join(pieces)]

    def op_write(self, header: dict[str, Any], payload: bytes) -> Reply:
        """One write(2), so that a sysfs store sees the text whole."""
        flags = os.O_WRONLY | (os.O_CREAT | os.O_TRUNC if header.get("create") else 0)
        fd = os.open(header["path"], flags, 0o755)
        try:
            written = os.write(fd, payload)
            while header.get("create") and written < len(payload):
                written += os.write(fd, payload[written:])
        finally:
            os.close(fd)
        return {"written": written}, []

    def op_list(self, header: dict[str, Any], _payload: bytes) -> Reply:
        return {"names": sorted(os.listdir(header["path"]))}, []

    def op_stat(self, header: dict[str, Any], _payload: bytes) -> Reply:
        path = header["path"]
        if not os.path.lexists(path):
            return {"exists": False}, []
        info = os.lstat(path)
        link = os.readlink(path) if os.path.islink(path) else None
        return {"exists": True, "mode": info.st_mode, "size": info.st_size,
                "link": link, "real": os.path.realpath(path)}, []

    def op_wait(self, header: dict[str, Any], _payload: bytes) -> Reply:
        """Wait for a path condition; uevents wake it, else it looks often."""
        deadline = time.monotonic() + header["seconds"]
        uevents = Uevents()
        try:
            while not condition_holds(header["cond"]):
                left = deadline - time.monotonic()
                if left <= 0:
                    return {"held": False}, []
                uevents.wait(min(left, header["interval"]))
        finally:
            uevents.close()
        return {"held": True}, []

    def op_log(self, header: dict[str, Any], _payload: bytes) -> Reply:
        """Kernel messages from record ``since`` on."""
        count = self.log.drain()
        return {"next": count}, [json.dumps(self.log.records[header["since"]:]).encode()]

    def op_log_wait(self, header: dict[str, Any], _payload: bytes) -> Reply:
        deadline = time.monotonic() + header["seconds"]
        pattern = re.compile(header["pattern"])
        at = header["since"]
        while True:
            count = self.log.drain()
            for _level, text in self.log.records[at:count]:
                if pattern.search(text):
                    return {"text": text}, []
            at = count
            left = deadline - time.monotonic()
            if left <= 0:
                return {"text": None}, []
            self.log.wait(min(left, 0.2))

    def op_call(self, header: dict[str, Any], _payload: bytes) -> Reply:
        """Call ``module.function(*args, **named)`` of the guest library."""
        import importlib

        module, function = header["function"].rsplit(".", 1)
        called = getattr(importlib.import_module(module), function)
        return {"result": called(*header["args"], **header["named"])}, []

    def serve(self, header: dict[str, Any], payload: bytes) -> None:
        answer = {"id": header["id"]}
        blobs: list[bytes] = []
        try:
            more, blobs = getattr(self, "op_" + header["op"])(header, payload)
            answer.update(more)
        except OSError as error:
            answer["errno"] = error.errno or errno.EIO
            answer["error"] = str(error)
        except Exception as error:
            import traceback

            answer["exception"] = f"{type(error).__name__}: {error}"
            answer["traceback"] = traceback.format_exc()
        self.channel.send(answer, blobs)

    def main(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
        with open("/proc/uptime", encoding="ascii") as uptime:
            seconds = float(uptime.read().split()[0])
        self.channel.send({"id": 0, "hello": os.uname().release, "uptime": seconds})
        while True:
            header, payload = self.channel.receive()
            threading.Thread(target=self.serve, args=(header, payload), daemon=True).start()


if __name__ == "__main__":
    Agent().main()
