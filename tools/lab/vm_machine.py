# SPDX-License-Identifier: GPL-2.0
"""One QEMU process: command line, console log, monitor, life and death."""

from __future__ import annotations

import ctypes
import os
import queue
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import host_clock
from .arch import AMD64
from .arch import Arch
from .vm_channel import Channel
from .vm_channel import MachineDied
from .vm_qmp import Qmp
from .vm_qmp import QmpError

AGENT_PORT = "lab.agent"
KERNEL_ARGS = ("panic=-1", "loglevel=5", "mitigations=off", "nokaslr", "apparmor=0", "audit=0",
               "random.trust_cpu=on", "raid=noautodetect", "printk.time=1", "log_buf_len=4M")

# A boot takes some ten seconds of a processor. On a busy host a machine that got less than twice that has more time, up
# to this many times as much.
BOOT_PROCESSOR_SECONDS = 20.0
BUSY_HOST = 4.0

# Hundreds of times a second the emulator's main loop wakes up, and looks at an event of each virtio queue. Without a
# number of ports a serial device has 64 queues. These two are the agent's port and port 0, which is a console's.
PORTS = 2

# What a kernel says that waits for ever for a timer that the emulator has lost.
NO_TIMER = "kthread timer wakeup didn't happen"


@dataclass(frozen=True)
class Disk:
    """A virtio disk of a machine, /dev/vdb on in the order given.

    ``block_size`` is the logical one in bytes. ``snapshot`` discards writes
    when the machine ends. With ``wwn``, 16 hexadecimal digits, it is a SCSI disk
    with that wwid.
    """

    path: Path
    read_only: bool = False
    snapshot: bool = False
    discard: bool = True
    write_cache: bool = True
    block_size: int = 512
    serial: str = ""
    wwn: str = ""


@dataclass(frozen=True)
class Ethernet:
    """One end of a cable between two machines: a Unix socket both know."""

    socket: Path
    listen: bool
    mtu: int
    mac: str
    # Of packets that were received. With it soft-RoCE can stop the machine for ever when a path ends
    # (Documentation/test-results.md); it is what a network card does, so that speed is measured with it.
    recycle_pages: bool


@dataclass
class Spec:
    """What a machine is made of."""

    name: str
    qemu: list[str]
    kernel: Path
    initrd: Path | None
    root_image: Path
    share: Path
    # What the machine writes to its root image is lost when it ends.
    root_snapshot: bool = True
    arch: Arch = AMD64
    cpus: int = 2
    memory_mib: int = 1024
    accel: str = "tcg"
    icount: bool = False
    # A plugin of the emulator that counts instructions, see vm_count.py.
    plugin: Path | None = None
    # One that yields where the machine spins, see vm_yield.c; for emulated processors side by side.
    yield_plugin: Path | None = None
    disks: list[Disk] = field(default_factory=list)
    ethernet: list[Ethernet] = field(default_factory=list)
    kernel_args: list[str] = field(default_factory=list)
    shell: bool = False


class Machine:
    """A running emulator. Use ``start``, then ``wait_ready``."""

    def __init__(self, spec: Spec, directory: Path) -> None:
        self.spec = spec
        self.name = spec.name
        self.directory = directory
        self.console_log = directory / f"{spec.name}.console"
        self.release = ""
        self.boot_seconds = 0.0
        self._generation = 0
        # By emulators that have ended.
        self._processor_seconds = 0.0
        self._proc: subprocess.Popen[bytes] | None = None
        self._qmp: Qmp | None = None
        self._channel: Channel | None = None

    def _socket(self, kind: str) -> Path:
        return self.directory / f"{self.name}.{kind}"

    def command_line(self) -> list[str]:
        """The emulator's arguments."""
        spec = self.spec
        args = list(spec.qemu)
        args += ["-name", spec.name, *spec.arch.machine, "-nodefaults", "-no-user-config", "-nographic",
                 "-no-reboot", "-smp", str(spec.cpus), "-m", str(spec.memory_mib)]
        if spec.icount:
            args += ["-accel", "tcg,thread=single", "-cpu", spec.arch.cpu,
                     "-icount", "shift=0,sleep=off"]
            if spec.plugin:
                args += ["-plugin", f"{spec.plugin},socket={self._socket('count')}"]
        elif spec.accel == "kvm":
            args += ["-accel", "kvm", "-cpu", "host"]
        else:
            args += ["-accel", "tcg,thread=multi", "-cpu", spec.arch.test_cpu]
            if spec.yield_plugin:
                args += ["-plugin", str(spec.yield_plugin)]
        args += ["-kernel", str(spec.kernel)]
        kernel_args = [f"console={spec.arch.console}", *KERNEL_ARGS, *spec.arch.kernel_args, *spec.kernel_args]
        if spec.arch is AMD64 and spec.accel != "kvm" and not spec.icount and host_clock.tsc_khz():
            kernel_args.append(f"tsc_early_khz={host_clock.tsc_khz()}")
        if spec.initrd:
            args += ["-initrd", str(spec.initrd)]
        else:
            kernel_args += ["root=/dev/vda", "rootfstype=ext4", "rw", "init=/sbin/labinit"]
        if spec.shell:
            kernel_args.append("lab.shell")
        args += ["-append", " ".join(kernel_args)]
        console = f"socket,id=console,path={self._socket('tty')},server=on,wait=off," \
            if spec.shell else f"file,id=console,append=on,path={self.console_log},"
        if spec.shell:
            console += f"logfile={self.console_log},logappend=on,"
        args += ["-chardev", console.rstrip(","), "-serial", "chardev:console",
                 "-chardev", f"socket,id=qmp,path={self._socket('qmp')},server=on,wait=off",
                 "-mon", "chardev=qmp,mode=control",
                 "-device", f"virtio-serial-pci,max_ports={PORTS}",
                 "-chardev", f"socket,id=agent,path={self._socket('agent')},server=on,wait=off",
                 "-device", f"virtserialport,chardev=agent,name={AGENT_PORT}",
                 "-fsdev", f"local,id=host,path={spec.share},security_model=none,readonly=on",
                 "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
                 "-object", "rng-random,id=rng,filename=/dev/urandom",
                 "-device", "virtio-rng-pci,rng=rng"]
        args += self._disk_args(0, Disk(spec.root_image, snapshot=spec.root_snapshot))
        if any(disk.wwn for disk in spec.disks):
            args += ["-device", "virtio-scsi-pci,id=scsi"]
        for index, disk in enumerate(spec.disks, start=1):
            args += self._disk_args(index, disk)
        for index, end in enumerate(spec.ethernet):
            args += self._ethernet_args(index, end)
        return args

    def _disk_args(self, index: int, disk: Disk) -> list[str]:
        drive = f"if=none,id=disk{index},file={disk.path},format=raw,aio=threads"
        drive += ",cache=writeback" if disk.write_cache else ",cache=writethrough"
        drive += ",discard=unmap,detect-zeroes=off" if disk.discard else ",discard=ignore"
        drive += ",readonly=on" if disk.read_only else ""
        drive += ",snapshot=on" if disk.snapshot else ""
        kind = f"scsi-hd,bus=scsi.0,scsi-id={index},wwn=0x{disk.wwn}" if disk.wwn else "virtio-blk-pci"
        device = f"{kind},drive=disk{index},serial={disk.serial or f'disk{index}'}"
        device += f",logical_block_size={disk.block_size},physical_block_size={disk.block_size}"
        if not disk.discard:
            device += ",discard=off,write-zeroes=off"
        if not disk.write_cache:
            device += ",write-cache=off"
        return ["-drive", drive, "-device", device]

    @staticmethod
    def _ethernet_args(index: int, end: Ethernet) -> list[str]:
        netdev = f"stream,id=net{index},addr.type=unix,addr.path={end.socket}"
        netdev += ",server=on" if end.listen else ",server=off,reconnect-ms=100"
        device = f"virtio-net-pci,netdev=net{index},mac={end.mac},host_mtu={end.mtu},romfile="
        if not end.recycle_pages:
            # Without these buffers, and with more than 1500 bytes a packet, the driver takes new ones.
            device += ",mrg_rxbuf=off"
        return ["-netdev", netdev, "-device", device]

    def start(self) -> None:
        """Start the emulator. From the thread that outlives it: the machine
        is killed with the thread that started it."""
        for kind in ("tty", "qmp", "agent", "count"):
            self._socket(kind).unlink(missing_ok=True)
        self._generation += 1
        if self._generation > 1:
            with open(self.console_log, "ab") as log:
                log.write(b"\n---- started again ----\n")
        libc = ctypes.CDLL(None)

        def die_with_parent() -> None:
            libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

        with open(self.directory / f"{self.name}.qemu", "ab") as log:
            self._proc = subprocess.Popen(
                self.command_line(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "TMPDIR": str(self.directory)},
                start_new_session=True, preexec_fn=die_with_parent)  # noqa: PLW1509 (it takes no lock)
        try:
            self._channel = Channel(self._socket("agent"))
        except OSError as error:
            self.kill()
            raise MachineDied(f"{self.name}: emulator did not start: {error}\n"
                              + self._emulator_says()) from error

    def _emulator_says(self) -> str:
        try:
            text = (self.directory / f"{self.name}.qemu").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-10:])

    def wait_ready(self, timeout: float) -> None:
        """Wait until the guest's agent has said hello; not if its clock has been lost. The time is in seconds."""
        started, worked = time.monotonic(), self.processor_seconds()
        hello = None

        def is_over() -> bool:
            waited = time.monotonic() - started
            has_run = self.processor_seconds() - worked >= BOOT_PROCESSOR_SECONDS * timeout / 60.0
            return waited >= timeout * (1.0 if has_run or not self.alive() else BUSY_HOST)

        while hello is None and not is_over():
            try:
                hello = self.channel.hello.get(timeout=min(5.0, timeout))
            except queue.Empty:
                if NO_TIMER in self.last_console():
                    break
            else:
                break
        if hello is None:
            raise MachineDied(f"{self.name}: no agent after "
                              f"{time.monotonic() - started:.0f} s\n"
                              + self._emulator_says() + self.last_console())
        self.release = hello.header["hello"]
        self.boot_seconds = hello.header["uptime"]

    @property
    def channel(self) -> Channel:
        """The control channel of a started machine."""
        if self._channel is None:
            raise MachineDied(f"{self.name} is not running")
        return self._channel

    @property
    def qmp(self) -> Qmp:
        """The monitor, connected at first use."""
        if self._qmp is None:
            self._qmp = Qmp(self._socket("qmp"))
        return self._qmp

    @property
    def count_socket(self) -> Path:
        """Where the plugin that counts instructions listens, if there is one."""
        return self._socket("count")

    def alive(self) -> bool:
        """Whether the emulator still runs."""
        return self._proc is not None and self._proc.poll() is None

    def processor_seconds(self) -> float:
        """How long the host's processors have worked for the machine, in all its lives."""
        if self._proc is None or self._proc.returncode is not None:
            return self._processor_seconds
        # Behind the program's name: fields 14 and 15 of proc_pid_stat(5), the first of these is field 3.
        fields = Path(f"/proc/{self._proc.pid}/stat").read_text().rpartition(")")[2].split()
        return self._processor_seconds + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def set_link(self, index: int, up: bool) -> None:
        """Plug or pull the cable of an interface."""
        self.qmp.command("set_link", name=f"net{index}", up=up)

    def pause(self) -> None:
        """Stop all processors: the machine falls silent without closing anything."""
        self.qmp.command("stop")

    def resume(self) -> None:
        """Let a paused machine run on."""
        self.qmp.command("cont")

    def disk_stats(self, index: int) -> dict[str, int]:
        """The emulator's counters of a disk (rd_operations, flush_operations, ...)."""
        for entry in self.qmp.command("query-blockstats"):
            if entry.get("device") == f"disk{index}":
                return entry["stats"]
        raise QmpError(f"no disk{index}")

    def stop_emulator(self) -> None:
        """Kill the emulator and nothing else; safe from any thread."""
        proc = self._proc
        if proc is not None and proc.poll() is None:
            proc.kill()

    def kill(self) -> None:
        """Power cut. Harmless when already dead."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._qmp is not None:
            self._qmp.close()
            self._qmp = None
        if self._proc is not None:
            self._processor_seconds = self.processor_seconds()
            if self._proc.poll() is None:
                self._proc.kill()
            self._proc.wait()
            self._proc = None

    def last_console(self, lines: int = 30) -> str:
        """The console's last lines, without terminal control sequences."""
        try:
            text = self.console_log.read_text(errors="replace")
        except OSError:
            return "(no console output)"
        text = text.replace("\x1b[?7l", "").replace("\x1bc", "").replace("\r", "")
        return "\n".join(text.splitlines()[-lines:])


def stage_share(share: Path, init: Path, trees: dict[str, Path]) -> None:
    """Copy what guests see on /host, so that a run is not disturbed by edits."""
    share.mkdir()
    for name, source in trees.items():
        shutil.copytree(source, share / name,
                        ignore=shutil.ignore_patterns("__pycache__", "*.o", "*.cmd"))
    shutil.copy(init, share / "init")
    os.chmod(share / "init", 0o755)
