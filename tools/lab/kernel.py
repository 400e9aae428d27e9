# SPDX-License-Identifier: GPL-2.0
"""Stock kernels: their packages, and a tree to build Rust modules against.

Debian ships the kernel with Rust enabled but without the Rust metadata that a
module's build needs, so that part is made again, from the same source, with
the same configuration and compiler.
"""

import math
import shutil
from pathlib import Path

from . import arch
from . import archive
from . import cache
from . import debian
from . import kernel_choice
from . import run
from .kernel_choice import chosen
from .kernel_choice import STOCK
from .steps import Work

WITHOUT_BTF = "CONFIG_DEBUG_INFO_BTF_MODULES="
# Where source and trees are inside the build root: paths get recorded in them.
SOURCE_INSIDE = "/kernel/source"
STOCK_INSIDE = "/kernel/stock"


def is_stale(name: str) -> bool:
    """Whether the choice is old, and the kernel's packages, not all here yet, may be gone from the mirror."""
    if not 24 * 3600 < kernel_choice.age(name) < math.inf:
        return False
    return not (kernel_choice.is_chosen(name) and stock(name).is_complete() and source(name).is_complete())


def stock(name: str = STOCK) -> cache.Artifact:
    choice = chosen(name)
    return cache.artifact("stock", version=choice.version, packages=choice.packages, recipe=1)


def source(name: str = STOCK) -> cache.Artifact:
    return cache.artifact("source", version=chosen(name).version, recipe=1)


def kdir(name: str = STOCK) -> cache.Artifact:
    choice = chosen(name)
    return cache.artifact(
        "kdir",
        release=choice.release,
        version=choice.version,
        toolchain=buildroot(name).stamp()["toolchain"],
        recipe=1,
    )


def machine(name: str = STOCK) -> arch.Arch:
    """The architecture of a kernel."""
    return kernel_choice.wanted(name).machine


def buildroot(name: str = STOCK) -> cache.Artifact:
    """The root tree that a kernel and its modules are built in."""
    kernel = kernel_choice.wanted(name)
    if kernel.suite is debian.TRIXIE:
        return debian.buildroot(kernel.machine)
    return debian.kernel_buildroot(kernel.suite, chosen(name).compiler)


def make_other_buildroot(work: Work, name: str) -> None:
    """Makes the root tree for a kernel of another release than Debian 13."""
    debian.make_kernel_buildroot(work, kernel_choice.wanted(name).suite, chosen(name).compiler)


def _download(package: str, name: str, log: Path) -> Path:
    """Downloads one of a kernel's packages into the cache; gives its file. Apt checks its digest."""
    version = chosen(name).version
    folder = cache.root() / "debs" / version.replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    have = sorted(folder.glob(f"{package}_*.deb"))
    if not have:
        partial = folder / f"{package}.partial"
        cache.remove_tree(partial)
        partial.mkdir()
        kernel = kernel_choice.wanted(name)
        archive.of(kernel.suite, kernel.machine).download([f"{package}={version}"], partial, log)
        for deb in partial.glob("*.deb"):
            deb.rename(folder / f"{package}_{deb.name.split('_', 1)[1]}")
        partial.rmdir()
        have = sorted(folder.glob(f"{package}_*.deb"))
    return have[0]


def _extract(deb: Path, into: Path, log: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    run.call(["dpkg-deb", "-x", str(deb), str(into)], log)


def make_stock(work: Work, name: str = STOCK) -> None:
    """Fills a folder with vmlinuz, all modules, the configuration and the symbol list."""
    choice = chosen(name)
    unpacked = work.folder / "unpacked"
    for package in choice.packages:
        if not package.startswith("linux-source-"):
            _extract(_download(package, name, work.log), unpacked, work.log)
    headers = unpacked / "usr/src" / f"linux-headers-{choice.release}"
    config = (headers / ".config").read_text()
    if "\nCONFIG_RUST=y\n" not in config:
        raise RuntimeError(f"{choice.release} is built without CONFIG_RUST")
    shutil.move(headers / ".config", work.folder / "config")
    shutil.move(headers / "Module.symvers", work.folder / "Module.symvers")
    images = [unpacked / f"usr/lib/modules/{choice.release}/vmlinuz", unpacked / f"boot/vmlinuz-{choice.release}"]
    shutil.move(next(image for image in images if image.is_file()), work.folder / "vmlinuz")
    trees = [unpacked / f"{prefix}lib/modules/{choice.release}" for prefix in ("usr/", "")]
    shutil.move(next(tree for tree in trees if (tree / "kernel").is_dir()), work.folder / "modules")
    cache.remove_tree(unpacked)
    work.facts["release"] = choice.release


def make_source(work: Work, name: str = STOCK) -> None:
    """Unpacks the kernel's source."""
    package = f"linux-source-{chosen(name).series}"
    unpack_source(_download(package, name, work.log), package, work.folder / "linux", work.log)


def unpack_source(deb: Path, package: str, tree: Path, log: Path) -> None:
    """Unpacks the source in a source package."""
    tree.mkdir()
    pipe = 'dpkg-deb --fsys-tarfile "$1" | tar -xOf - "./usr/src/$2.tar.xz" | xz -dcT0 | tar -xf - -C "$3" --strip=1'
    run.call(["sh", "-euc", pipe, "sh", str(deb), package, str(tree)], log)
    if not (tree / "rust/kernel/lib.rs").is_file():
        raise RuntimeError(f"{deb}: no kernel source with Rust in it")


def source_bind(name: str = STOCK) -> run.Bind:
    return run.Bind(source(name).path / "linux", SOURCE_INSIDE, readonly=True)


def tree_binds(name: str = STOCK) -> tuple[run.Bind, ...]:
    """The tree to build modules against, and its source, where they are inside the build root."""
    return (source_bind(name), run.Bind(kdir(name).path / "tree", STOCK_INSIDE))


def make_options(name: str = STOCK) -> list[str]:
    """What every make in a stock kernel's tree must be told, so that it matches Debian's kernel."""
    built_for = machine(name)
    compiler = chosen(name).compiler
    options = [f"CC={built_for.prefix}{compiler}", f"HOSTCC={arch.AMD64.prefix}{compiler}",
               f"KERNELRELEASE={chosen(name).release}"]
    return [*built_for.make_options(), *options]


def module_make_options(name: str = STOCK) -> list[str]:
    """For building modules: type information for BPF would need Debian's vmlinux, and nothing here uses it."""
    return [*make_options(name), WITHOUT_BTF]


def prepare(tree: Path, config: Path, source_of: run.Bind, root: Path, options: list[str], log: Path) -> None:
    """Prepares a tree with a configuration for building modules; `root` has the compilers."""
    tree.mkdir()
    shutil.copy(config, tree / ".config")
    make = ["make", "-s", "-C", SOURCE_INSIDE, f"O={STOCK_INSIDE}", *options]
    for goals in (["olddefconfig"], ["-j3", "prepare"], ["-j3", "modules_prepare"]):
        run.chroot(root, [*make, *goals], [source_of, run.Bind(tree, STOCK_INSIDE)], log)


def make_kdir(work: Work, name: str = STOCK) -> None:
    """Makes the tree for building modules: Debian's configuration, Rust metadata, symbols."""
    tree = work.folder / "tree"
    prepare(tree, stock(name).path / "config", source_bind(name), buildroot(name).path / "root", make_options(name),
            work.log)
    shutil.copy(stock(name).path / "Module.symvers", tree / "Module.symvers")
    _check_config(stock(name).path / "config", tree / ".config")
    work.facts["release"] = chosen(name).release
    work.facts["source"] = source(name).path.name


def _check_config(ours: Path, made: Path) -> None:
    """Refuses a tree whose configuration drifted from Debian's, which would not load there."""
    wanted = set(filter(_matters, ours.read_text().splitlines()))
    got = set(filter(_matters, made.read_text().splitlines()))
    lost = sorted(wanted - got)
    if lost:
        raise RuntimeError(f"the configuration differs from Debian's, first in: {lost[0]}")


def _matters(line: str) -> bool:
    # Texts and versions describe the build machine, not the kernel. The vDSO of 32-bit programs needs a
    # compiler for them, and modules see nothing of it.
    return (line.startswith("CONFIG_") and line.endswith(("=y", "=m"))
            and "_HAS_" not in line and not line.startswith(("CONFIG_COMPAT_VDSO=", "CONFIG_THUMB2_COMPAT_VDSO=")))
