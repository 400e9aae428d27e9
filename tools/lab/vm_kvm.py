# SPDX-License-Identifier: GPL-2.0
"""Choice of accelerator: KVM only where a guest kernel was seen to start."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from pathlib import Path

from .arch import AMD64
from .arch import Arch

PROBE_SECONDS = 4.0


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _probe(qemu: list[str], kernel: Path) -> bool:
    """Whether a kernel says anything on its console within the probe's time."""
    command = [*qemu, "-M", "q35", "-nodefaults", "-nographic", "-no-reboot", "-accel", "kvm",
               "-cpu", "host", "-m", "512", "-bios", "qboot.rom", "-kernel", str(kernel),
               "-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1", "-serial", "stdio"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as proc:
        assert proc.stdout is not None
        said = b""
        deadline = time.monotonic() + PROBE_SECONDS
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(proc.stdout, selectors.EVENT_READ)
                while b"Linux version" not in said:
                    left = deadline - time.monotonic()
                    if left <= 0 or not selector.select(left):
                        return False
                    piece = os.read(proc.stdout.fileno(), 65536)
                    if not piece:
                        return False
                    said += piece
                return True
        finally:
            proc.kill()


def choose_accelerator(qemu: list[str], kernel: Path, machine: Arch) -> str:
    """``kvm`` or ``tcg``. A probe's result is good until the host reboots."""
    # What runs here are the build root's programs, which are for this architecture.
    if machine is not AMD64 or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    memory = Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp")) / f"rnbd-kvm-probe-{os.getuid()}"
    try:
        boot_id, _, accel = memory.read_text(encoding="ascii").strip().partition(" ")
        if boot_id == _boot_id() and accel in ("kvm", "tcg"):
            return accel
    except (OSError, ValueError):
        pass
    accel = "kvm" if _probe(qemu, kernel) else "tcg"
    with contextlib.suppress(OSError):
        memory.write_text(f"{_boot_id()} {accel}\n", encoding="ascii")
    return accel
