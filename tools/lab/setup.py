# SPDX-License-Identifier: GPL-2.0
"""The set-up: which steps there are and which of them a purpose needs."""

from collections.abc import Callable
from collections.abc import Iterable
from functools import partial

from . import arch
from . import bench_image
from . import c_modules
from . import cache
from . import cluster_machine
from . import deb_machine
from . import debian
from . import debug_kernel
from . import foreign
from . import host
from . import hostile_peers
from . import image
from . import kernel
from . import kernel_choice
from . import packages
from . import paths
from . import python_tools
from . import steps
from .kernel_choice import STOCK
from .steps import Step
from .steps import Work


def step_of(step: str, name: str) -> str:
    """The name of a step that is made for each kernel, for the kernel `name`."""
    if paths.is_debug(name) and step == "kdir":
        # A debug kernel is built whole.
        return name
    return step if name == STOCK else f"{step}-{name}"


def _kernel_steps(name: str) -> list[Step]:
    """What is made for a stock kernel."""
    machine, suite = kernel.machine(name), kernel_choice.wanted(name).suite
    root = "buildroot" if machine is arch.AMD64 else f"buildroot-{machine.name}"
    if suite is not debian.TRIXIE:
        root = f"buildroot-{suite.name}"
    guest = "guest" if machine is arch.AMD64 else f"guest-{machine.name}"
    title = "the stock kernel" if name == STOCK else f"kernel {name}"
    steps_of_root = [
        Step(f"base-{suite.name}", f"Debian {suite.name} by debootstrap", partial(debian.base, suite),
             partial(debian.make_base, suite=suite)),
        Step(root, f"compilers of {suite.name}", partial(kernel.buildroot, name),
             partial(kernel.make_other_buildroot, name=name), (f"base-{suite.name}",)),
    ] if suite is not debian.TRIXIE else []

    def of(step: str, what: str, target: Callable[[str], cache.Artifact], make: Callable[[Work, str], None],
           *needs: str) -> Step:
        return Step(step_of(step, name), what.format(title), partial(target, name),
                    lambda work: make(work, name), needs)

    stock, source, kdir = (step_of(step, name) for step in ("stock", "source", "kdir"))
    return [
        *steps_of_root,
        of("stock", "{}'s packages", kernel.stock, kernel.make_stock, "base"),
        of("source", "{}'s source", kernel.source, kernel.make_source, "base"),
        of("kdir", "Rust metadata of {}", kernel.kdir, kernel.make_kdir, root, stock, source),
        of("boot", "root image and initramfs of {}", image.boot, image.make_boot, "buildroot", guest, stock),
        of("c-modules", "the C modules for {}", c_modules.stock, c_modules.make_stock, kdir),
    ]


def _debug_steps(name: str) -> list[Step]:
    """What is made for a debug kernel."""
    machine = paths.machine(name)
    foreign_part = "" if machine is arch.AMD64 else f"-{machine.name}"
    kdir, boot, modules = (step_of(step, name) for step in ("kdir", "boot", "c-modules"))
    return [
        Step(kdir, f"the {name} kernel", partial(debug_kernel.debug, machine),
             partial(debug_kernel.make_debug, machine=machine), (f"buildroot{foreign_part}", "source"), True),
        Step(boot, f"root image of the {name} kernel", partial(debug_kernel.boot, machine),
             partial(debug_kernel.make_boot, machine=machine), (kdir, f"guest{foreign_part}")),
        Step(modules, f"the C modules, {name} kernel", partial(c_modules.debug, machine),
             partial(c_modules.make_debug, machine=machine), (kdir,)),
    ]


def table(names: Iterable[str] = (STOCK,)) -> dict[str, Step]:
    """Every step of the set-up by name; `names` are the kernels."""
    every = [
        Step("base", f"Debian {debian.TRIXIE.name} by debootstrap", debian.base, debian.make_base),
        Step("buildroot", "compilers and QEMU", debian.buildroot, debian.make_buildroot, ("base",)),
        Step("guest", "programs of the virtual machines", debian.guest, debian.make_guest, ("base",)),
        Step("rdma-headers", "headers of the RDMA libraries", hostile_peers.headers, hostile_peers.make_headers,
             ("guest",)),
        Step("python-tools", "ruff, mypy, hunspell and jsonschema", python_tools.tree, python_tools.make_tree,
             ("base",)),
        Step("pkgbuild", "programs that build packages", packages.pkgbuild, packages.make_pkgbuild, ("buildroot",)),
        Step("machine", "a machine to install packages on", packages.machine, packages.make_machine,
             ("pkgbuild", "stock", "source")),
        Step("machine-initramfs", "the same with an initial RAM disk", partial(packages.machine, own_initramfs=True),
             partial(packages.make_machine, own_initramfs=True), ("pkgbuild", "stock", "source")),
        Step("cluster-machine", "a host of a cluster", cluster_machine.machine, cluster_machine.make_machine,
             ("buildroot", "stock")),
        Step(bench_image.STEP, "root image of the benchmark with iSCSI", bench_image.root_image,
             bench_image.make_root_image, ("boot",)),
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
            every.append(Step(f"pkgbuild-{machine.name}", f"programs that build packages for {machine.name}",
                              partial(packages.pkgbuild, machine), partial(packages.make_pkgbuild, built_for=machine),
                              ("buildroot",)))
    for name in dict.fromkeys((STOCK, *names)):
        every += _debug_steps(name) if paths.is_debug(name) else _kernel_steps(name)
    return {step.name: step for step in every}


# `_kernel_steps` and `_debug_steps` say which steps are made for each kernel.
PURPOSES = {
    "build": ("kdir",),
    "lint": ("kdir", "python-tools"),
    "demo": ("kdir", "boot"),
    "test": ("kdir", "boot", "c-modules", "python-tools", "rdma-headers"),
    "deb": ("pkgbuild", "pkgbuild-arm64"),
    "deb-test": ("pkgbuild", "dkms-metadata", "boot", "c-modules"),
    "initramfs": ("machine-initramfs",),
    "first-hour": ("pkgbuild", "dkms-metadata", "boot"),
    "cluster-test": ("kdir", "pkgbuild", "boot", "cluster-machine"),
}


def _resolve(name: str, refresh: bool, progress: steps.Progress) -> None:
    """Finds out which kernels there are of a release for an architecture, and says so when that is new."""
    before = kernel_choice.age(name)
    kernel_choice.resolve(name, steps.log_path(f"resolve-{name}"), refresh)
    if kernel_choice.age(name) < before:
        for other in kernel_choice.served(name):
            choice = kernel_choice.chosen(other)
            progress.say(f"kernel {other}: {choice.release} ({choice.version}), {choice.compiler}")


def setup(purpose: str, refresh: bool = False, names: Iterable[str] = (STOCK,)) -> bool:
    """Makes what `purpose` needs for the kernels `names`; returns whether that succeeded.

    Raises RuntimeError if the archive has no kernel of one of the names.
    """
    host.prepare()
    progress = steps.Progress()
    names = list(names)
    if not steps.run(table(), ("base",), progress):
        return False
    for name in dict.fromkeys((STOCK, *(name for name in names if not paths.is_debug(name)))):
        _resolve(name, refresh or kernel.is_stale(name), progress)
        kernel_choice.chosen(name)
    every = table(names)
    per_kernel = {step.name for step in _kernel_steps(STOCK)}
    wanted = [made for step in PURPOSES[purpose]
              for made in ([step_of(step, name) for name in names] if step in per_kernel else [step])]
    if not steps.run(every, wanted, progress):
        return False
    if progress.said:
        progress.say("set-up complete")
    return True
