# SPDX-License-Identifier: GPL-2.0
"""The set-up: which steps there are and which of them a purpose needs."""

from . import c_modules
from . import deb_machine
from . import debian
from . import debug_kernel
from . import host
from . import image
from . import kernel
from . import packages
from . import python_tools
from . import steps
from .steps import Step


def table() -> dict[str, Step]:
    """Every step of the set-up by name."""
    every = [
        Step("base", f"Debian {debian.SUITE} by debootstrap", debian.base, debian.make_base),
        Step("buildroot", "compilers and QEMU", debian.buildroot, debian.make_buildroot, ("base",)),
        Step("guest", "programs of the virtual machines", debian.guest, debian.make_guest, ("base",)),
        Step("stock", "the stock kernel's packages", kernel.stock, kernel.make_stock, ("base",)),
        Step("source", "the stock kernel's source", kernel.source, kernel.make_source, ("base",)),
        Step("kdir", "Rust metadata of the stock kernel", kernel.kdir, kernel.make_kdir,
             ("buildroot", "stock", "source")),
        Step("python-tools", "ruff and mypy", python_tools.tree, python_tools.make_tree, ("base",)),
        Step("boot", "root image and initramfs", image.boot, image.make_boot, ("buildroot", "guest", "stock")),
        Step("debug", "the debug kernel", debug_kernel.debug, debug_kernel.make_debug, ("buildroot", "source"), True),
        Step("boot-debug", "root image of the debug kernel", debug_kernel.boot, debug_kernel.make_boot,
             ("debug", "guest")),
        Step("c-modules", "the C modules", c_modules.stock, c_modules.make_stock, ("kdir",)),
        Step("c-modules-debug", "the C modules, debug kernel", c_modules.debug, c_modules.make_debug, ("debug",)),
        Step("pkgbuild", "what packages are built with", packages.pkgbuild, packages.make_pkgbuild, ("buildroot",)),
        Step("machine", "a machine to install packages on", packages.machine, packages.make_machine,
             ("pkgbuild", "stock", "source")),
        Step("dkms-metadata", "Rust metadata as DKMS makes it", deb_machine.metadata, deb_machine.make_metadata,
             ("machine",)),
    ]
    return {step.name: step for step in every}


PURPOSES = {
    "build": ("kdir",),
    "lint": ("kdir", "python-tools"),
    "demo": ("kdir", "boot"),
    "test": ("kdir", "boot", "c-modules", "python-tools"),
    "deb": ("pkgbuild",),
    "deb-test": ("pkgbuild", "dkms-metadata", "boot", "c-modules"),
    "debug": ("boot-debug", "c-modules-debug"),
}


def setup(purpose: str, refresh: bool = False) -> bool:
    """Makes what `purpose` needs; returns whether that succeeded."""
    host.prepare()
    progress = steps.Progress()
    everything = table()
    if not steps.run(everything, ("base",), progress):
        return False
    known = kernel.is_chosen()
    refresh = refresh or kernel.is_stale()
    choice = kernel.resolve(steps.log_path("resolve"), refresh)
    if refresh or not known:
        progress.say(f"kernel: {choice.release} ({choice.version})")
    if not steps.run(everything, PURPOSES[purpose], progress):
        return False
    if progress.said:
        progress.say("set-up complete")
    return True
