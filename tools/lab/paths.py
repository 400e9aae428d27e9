# SPDX-License-Identifier: GPL-2.0
"""Where everything is that a virtual machine or a build needs."""

import argparse
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

from . import arch
from . import debian
from . import image
from . import kernel
from . import kernel_choice
from .arch import AMD64
from .arch import Arch

CHECKOUT = Path(__file__).resolve().parents[2]
STOCK = kernel_choice.STOCK
DEBUG = "debug"
KERNEL_HELP = ("`stock', `debug', `debug-arm64', a series such as `7.2', an architecture such as `arm64', "
               "`7.2-arm64', or `sid'")


@dataclass(frozen=True)
class Artifacts:
    """Paths of one kernel's artefacts, on the host; what is missing is named by `missing`."""

    name: str
    release: str
    arch: Arch
    vmlinuz: Path
    initramfs: Path | None
    root_image: Path
    kdir: Path
    modules_ours: Path
    c_modules_dir: Path
    qemu: list[str]

    def missing(self) -> list[str]:
        """The names of the artefacts that have not been made yet."""
        fields = {name: getattr(self, name) for name in ("vmlinuz", "initramfs", "root_image", "kdir")}
        return [name for name, path in fields.items() if path is not None and not path.exists()]

    def json(self) -> dict[str, object]:
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return plain | {"arch": self.arch.name, "missing": self.missing()}


def debug_name(built_for: Arch) -> str:
    """The name of the debug kernel of an architecture."""
    return DEBUG if built_for is AMD64 else f"{DEBUG}-{built_for.name}"


_DEBUG_KERNELS = {debug_name(built_for): built_for for built_for in arch.ALL.values()}


def is_debug(kernel_name: str) -> bool:
    """Whether a name is that of a debug kernel."""
    return kernel_name in _DEBUG_KERNELS


def kernel_name(text: str) -> str:
    """A kernel's name, as a command line may have it, in its shortest form."""
    if is_debug(text):
        return text
    try:
        return kernel_choice.name_of(kernel_choice.wanted(text))
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def machine(kernel_name: str) -> Arch:
    """The architecture of a kernel."""
    return _DEBUG_KERNELS[kernel_name] if is_debug(kernel_name) else kernel.machine(kernel_name)


def build_root() -> Path:
    return debian.buildroot().path / "root"


def qemu(built_for: Arch = AMD64) -> list[str]:
    """How to run a build root's QEMU on the host, with the host's own paths."""
    root = debian.buildroot(built_for).path / "root"
    return [
        str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(root / "usr/lib/x86_64-linux-gnu"),
        str(root / "usr/bin" / f"qemu-system-{built_for.emulator}"), "-L", str(root / "usr/share/qemu"),
        "-L", str(root / "usr/share/seabios"),
    ]  # fmt: skip


def modules_dir(name: str, checkout: Path = CHECKOUT) -> Path:
    """Where `lab build` puts this checkout's modules for the kernel `name`."""
    return checkout / "build" / name


def artifacts(kernel_name: str = "stock") -> Artifacts:
    """The artefacts of a debug kernel, or of a stock kernel (kernel_choice.py says how these are called).

    Raises RuntimeError for a name that means none, and before the set-up has got far enough to know them.
    """
    # Here, because the C modules' build looks up paths itself.
    from . import c_modules
    from . import debug_kernel

    built_for = machine(kernel_name)
    try:
        if is_debug(kernel_name):
            made = debug_kernel.debug(built_for).path
            release = str(debug_kernel.debug(built_for).stamp()["release"]) if made.is_dir() else ""
            kdir = made / "tree"
            boot = debug_kernel.boot(built_for).path
        else:
            made = kernel.stock(kernel_name).path
            release = kernel.chosen(kernel_name).release
            kdir = kernel.kdir(kernel_name).path / "tree"
            boot = image.boot(kernel_name).path
        c_folder = c_modules.folder(kernel_name)
    except FileNotFoundError as error:
        raise RuntimeError(f"not set up yet ({error.filename} is missing); run `make setup'") from error
    return Artifacts(
        name=kernel_name,
        release=release,
        arch=built_for,
        vmlinuz=made / "vmlinuz",
        initramfs=None if is_debug(kernel_name) else boot / "initramfs.cpio",
        root_image=boot / "root.img",
        kdir=kdir,
        modules_ours=modules_dir(kernel_name),
        c_modules_dir=c_folder,
        qemu=qemu(built_for),
    )
