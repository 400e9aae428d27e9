# SPDX-License-Identifier: GPL-2.0
"""The architectures that the modules are built for, in the words of each tool."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arch:
    """One architecture.

    `name` is Debian's, `make` is what the kernel's make calls it (ARCH=), `rust_target` is what programs are
    compiled for, `prefix` begins the names of the C compiler and its programs, `image` is what make calls a
    kernel that can be booted. The rest is about the emulator: its
    name behind `qemu-system-`, the machine, the processors without KVM, the console, and what the kernel is told
    beside that. `cpu` is for machines whose instructions are counted, `test_cpu` for all others: it lacks what the
    emulator is slow at.
    """

    name: str
    make: str
    rust_target: str
    prefix: str
    image: str
    emulator: str
    machine: tuple[str, ...]
    cpu: str
    test_cpu: str
    console: str
    kernel_args: tuple[str, ...] = ()

    @property
    def triplet(self) -> str:
        """The name of its folders of libraries."""
        return self.prefix.removesuffix("-")

    @property
    def compiler(self) -> str:
        """The C compiler: the version that Debian builds its kernels with."""
        return f"{self.prefix}gcc-14"

    def make_options(self) -> list[str]:
        """What the kernel's make must be told, beside the compiler."""
        return [] if self is AMD64 else [f"ARCH={self.make}", f"CROSS_COMPILE={self.prefix}"]


# With `erms` and its successors the kernel copies by `rep movsb`, and the emulator makes a step for each byte. With
# `smap` each access to a program's memory ends two blocks of translated code, and with `la57` page tables have a
# fifth level. Without these features a selftest takes two thirds of the processor time.
AMD64 = Arch(
    name="amd64", make="x86", rust_target="x86_64-unknown-linux-gnu", prefix="x86_64-linux-gnu-", image="bzImage",
    emulator="x86_64", machine=("-M", "q35", "-bios", "qboot.rom"), cpu="max",
    test_cpu="max,-erms,-fsrm,-fsrs,-fzrm,-fsrc,-smap,-smep,-pku,-umip,-la57", console="ttyS0",
    kernel_args=("tsc=reliable", "no_timer_check"),
)  # fmt: skip
# Emulating the architecture's own pointer authentication is slow; `impdef` is another algorithm for it, and none is
# faster.
ARM64 = Arch(
    name="arm64", make="arm64", rust_target="aarch64-unknown-linux-gnu", prefix="aarch64-linux-gnu-", image="Image",
    emulator="aarch64", machine=("-M", "virt"), cpu="max,pauth-impdef=on",
    test_cpu="max,pauth=off,sve=off,sme=off", console="ttyAMA0",
)  # fmt: skip
ALL = {arch.name: arch for arch in (AMD64, ARM64)}
