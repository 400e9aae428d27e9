# SPDX-License-Identifier: GPL-2.0
"""The set-up: which steps there are and which of them a purpose needs."""

from collections.abc import Callable
from collections.abc import Iterable
from functools import partial

from . import arch
from . import c_modules
from . import cache
from . import deb_machine
from . import debian
from . import debug_kernel
from . import foreign
from . import host
from . import image
from . import kernel
from . import kernel_choice
from . import packages
from . import python_tools
from . import steps
from .kernel_choice import STOCK
from .steps import Step
from .steps import Work


def step_of(step: str, name: str) -> str:
    """The name of a step that is made for each kernel, for the kernel `name`."""
    return step if name == STOCK else f"{step}-{name}"


def _kernel_steps(name: str) -> list[Step]:
    """What is made for a stock kernel."""
    machine = kernel.machine(name)
    root = "buildroot" if machine is arch.AMD64 else f"buildroot-{machine.name}"
    guest = "guest" if machine is arch.AMD64 else f"guest-{machine.name}"
    title = "the stock kernel" if name == STOCK else f"kernel {name}"

    def of(step: str, what: str, target: Callable[[str], cache.Artifact], make: Callable[[Work, str], None],
           *needs: str) -> Step:
        return Step(step_of(step, name), what.format(title), partial(target, name),
                    lambda work: make(work, name), needs)

    stock, source, kdir = (step_of(step, name) for step in ("stock", "source", "kdir"))
    return [
        of("stock", "{}'s packages", kernel.stock, kernel.make_stock, "base"),
        of("source", "{}'s source", kernel.source, kernel.make_source, "base"),
        of("kdir", "Rust metadata of {}", kernel.kdir, kernel.make_kdir, root, stock, source),
        of("boot", "root image and initramfs of {}", image.boot, image.make_boot, "buildroot", guest, stock),
        of("c-modules", "the C modules for {}", c_modules.stock, c_modules.make_stock, kdir),
    ]


def table(names: Iterable[str] = (STOCK,)) -> dict[str, Step]:
    """Every step of the set-up by name; `names` are the kernels."""
    every = [
        Step("base", f"Debian {debian.SUITE} by debootstrap", debian.base, debian.make_base),
        Step("buildroot", "compilers and QEMU", debian.buildroot, debian.make_buildroot, ("base",)),
        Step("guest", "programs of the virtual machines", debian.guest, debian.make_guest, ("base",)),
        Step("python-tools", "ruff and mypy", python_tools.tree, python_tools.make_tree, ("base",)),
        Step("debug", "the debug kernel", debug_kernel.debug, debug_kernel.make_debug, ("buildroot", "source"), True),
        Step("boot-debug", "root image of the debug kernel", debug_kernel.boot, debug_kernel.make_boot,
             ("debug", "guest")),
        Step("c-modules-debug", "the C modules, debug kernel", c_modules.debug, c_modules.make_debug, ("debug",)),
        Step("pkgbuild", "what packages are built with", packages.pkgbuild, packages.make_pkgbuild, ("buildroot",)),
        Step("machine", "a machine to install packages on", packages.machine, packages.make_machine,
             ("pkgbuild", "stock", "source")),
        Step("dkms-metadata", "Rust metadata as DKMS makes it", deb_machine.metadata, deb_machine.make_metadata,
             ("machine",)),
    ]
    for machine in arch.ALL.values():
        if machine is not arch.AMD64:
            every.append(Step(f"buildroot-{machine.name}", f"cross compilers for {machine.name}",
                              partial(debian.buildroot, machine), partial(foreign.make_buildroot, machine=machine),
                              ("buildroot",)))
            every.append(Step(f"guest-{machine.name}", f"programs of the virtual machines for {machine.name}",
                              partial(debian.guest, machine), partial(foreign.make_guest, machine=machine), ("guest",)))
    for name in dict.fromkeys((STOCK, *names)):
        every += _kernel_steps(name)
    return {step.name: step for step in every}


# Which of these are made for each kernel is said by `_kernel_steps`.
PURPOSES = {
    "build": ("kdir",),
    "lint": ("kdir", "python-tools"),
    "demo": ("kdir", "boot"),
    "test": ("kdir", "boot", "c-modules", "python-tools"),
    "deb": ("pkgbuild",),
    "deb-test": ("pkgbuild", "dkms-metadata", "boot", "c-modules"),
    "debug": ("boot-debug", "c-modules-debug"),
}


def _resolve(machine: arch.Arch, refresh: bool, progress: steps.Progress) -> None:
    """Finds out which kernels there are for an architecture, and says so when that is new."""
    before = kernel_choice.age(machine)
    kernel_choice.resolve(machine, steps.log_path(f"resolve-{machine.name}"), refresh)
    if kernel_choice.age(machine) < before:
        for name in kernel_choice.served(machine):
            choice = kernel_choice.chosen(name)
            progress.say(f"kernel {name}: {choice.release} ({choice.version})")


def setup(purpose: str, refresh: bool = False, names: Iterable[str] = (STOCK,)) -> bool:
    """Makes what `purpose` needs for the kernels `names`; returns whether that succeeded."""
    host.prepare()
    progress = steps.Progress()
    names = list(names)
    if not steps.run(table(), ("base",), progress):
        return False
    for name in dict.fromkeys((STOCK, *names)):
        _resolve(kernel.machine(name), refresh or kernel.is_stale(name), progress)
    every = table(names)
    per_kernel = {step.name for step in _kernel_steps(STOCK)}
    wanted = [made for step in PURPOSES[purpose]
              for made in ([step_of(step, name) for name in names] if step in per_kernel else [step])]
    if not steps.run(every, wanted, progress):
        return False
    if progress.said:
        progress.say("set-up complete")
    return True
