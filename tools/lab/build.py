# SPDX-License-Identifier: GPL-2.0
"""Building this checkout's modules inside the build root."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import arch
from . import cache
from . import debian
from . import debug_kernel
from . import kept
from . import kernel
from . import paths
from . import run
from . import sources

_OWN_PATH = re.compile(r"^export KBUILD_OUTPUT = (/\S+)$", re.MULTILINE)
_SOURCE_PATH = re.compile(r"^include (/\S+)/Makefile$", re.MULTILINE)
KBUILD_FLAGS = ("-s", "--no-print-directory")
# Where no sources of modules are.
NO_MODULES = ("Documentation", "debian", "packaging", "proto/fuzz", "proto/tests", "selftests", "tools")
# The results that tests and other builds use: the modules, their exported symbols, and their order.
MODULES = ("*.ko", "Module.symvers", "modules.order")
# Below the cache root: what cargo compiled serves all checkouts.
CARGO_TARGET = "cargo/target"


@dataclass(frozen=True)
class KernelTree:
    """A tree to build modules against, as it is seen inside the build root."""

    root: Path
    inside: str
    binds: tuple[run.Bind, ...]
    options: tuple[str, ...]


def stock_tree(name: str = kernel.STOCK) -> KernelTree:
    """The tree of a stock kernel."""
    root = kernel.buildroot(name).path / "root"
    return KernelTree(root, kernel.STOCK_INSIDE, kernel.tree_binds(name), tuple(kernel.module_make_options(name)))


def debug_tree(built_for: arch.Arch = arch.AMD64) -> KernelTree:
    """The tree of a debug kernel."""
    return KernelTree(debian.buildroot(built_for).path / "root", debug_kernel.DEBUG_INSIDE,
                      tuple(debug_kernel.binds(built_for)), tuple(debug_kernel.make_options(built_for)))


def other_tree(kdir: Path) -> KernelTree:
    """A tree of the user's own, seen at its own path; built with the build root's compilers.

    Raises RuntimeError when the folder is not a kernel build tree with Rust.
    """
    kdir = kdir.resolve()
    for tree in (stock_tree(), debug_tree()):
        if any(bind.source.resolve() == kdir for bind in tree.binds):
            return tree
    for needed in ("Makefile", ".config", "rust/libkernel.rmeta"):
        if not (kdir / needed).exists():
            raise RuntimeError(f"KDIR={kdir}: not a kernel tree prepared for Rust modules, it has no {needed}")
    # A tree records its own path and its source's, perhaps as they were inside a build root.
    recorded = (kdir / "Makefile").read_text(errors="replace")[:4096]
    own = _OWN_PATH.search(recorded)
    inside = own[1] if own else str(kdir)
    binds = [run.Bind(kdir, inside)]
    source = _SOURCE_PATH.search(recorded)
    if source is not None and source[1] == kernel.SOURCE_INSIDE:
        binds.append(_source_of(kdir))
    elif source is not None:
        binds.append(run.Bind(Path(source[1]), source[1], readonly=True))
    clang = "CONFIG_CC_IS_CLANG=y" in (kdir / ".config").read_text().splitlines()
    options = debug_kernel.make_options(arch.AMD64) if clang else [f"CC={arch.AMD64.compiler}"]
    if not (kdir / "vmlinux").exists():
        options.append(kernel.WITHOUT_BTF)
    return KernelTree(paths.build_root(), inside, tuple(binds), tuple(options))


def _source_of(kdir: Path) -> run.Bind:
    """The source of a tree that some set-up made: in the same cache, else this one's."""
    stamp = kdir.parent / cache.STAMP
    name = json.loads(stamp.read_text()).get("source", "") if stamp.is_file() else ""
    beside = kdir.parent.parent / name / "linux"
    return run.Bind(beside, kernel.SOURCE_INSIDE, readonly=True) if name and beside.is_dir() else kernel.source_bind()


def kernel_tree(name: str, kdir: Path | None) -> KernelTree:
    if kdir is not None:
        return other_tree(kdir)
    return debug_tree(paths.machine(name)) if paths.is_debug(name) else stock_tree(name)


def checkout_bind() -> run.Bind:
    """The checkout at its own path, so that messages name files as the user knows them."""
    return run.Bind(paths.CHECKOUT, str(paths.CHECKOUT))


def cargo_binds() -> list[run.Bind]:
    """The checkout and cargo's downloads."""
    cargo = cache.root() / "cargo"
    cargo.mkdir(parents=True, exist_ok=True)
    return [checkout_bind(), run.Bind(cargo, "/root/.cargo")]


def inside(argv: list[str], binds: tuple[run.Bind, ...] = (), cwd: Path | None = None,
           root: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Runs a program in the build root, with the checkout and cargo's downloads in place."""
    every = [*cargo_binds(), *binds]
    # Cargo rewrites the snapshots of tests only if the caller of the lab asks for that (INSTA_UPDATE=always). Lines are
    # all that a backtrace needs; types and variables would make each build of the tests a third longer.
    variables = {"CARGO_TARGET_DIR": "/root/.cargo/target", "CARGO_PROFILE_DEV_DEBUG": "line-tables-only",
                 "INSTA_UPDATE": os.environ.get("INSTA_UPDATE", "no")}
    run.chroot(root or paths.build_root(), argv, every, cwd=str(cwd or paths.CHECKOUT), env=variables | dict(env or {}))


def _make_command(tree: KernelTree, out: Path, goals: list[str]) -> list[str]:
    argv = ["make", *KBUILD_FLAGS, f"-j{os.cpu_count() or 1}", "-C", tree.inside]
    return [*argv, f"M={paths.CHECKOUT}", f"MO={out}", *tree.options, *goals]


def make(tree: KernelTree, out: Path, goals: list[str]) -> None:
    """Runs the kernel's make for this checkout, with its output in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    binds = list(tree.binds)
    if not out.is_relative_to(paths.CHECKOUT):
        binds.append(run.Bind(out, str(out)))
    with cache.lock(f"build-{cache.digest(str(out))}"):
        inside(_make_command(tree, out, goals), tuple(binds), root=tree.root)


def output_of(tree: KernelTree, out: Path, goals: list[str]) -> tuple[int, str]:
    """How the kernel's make ends when it is run for this checkout, and what it says."""
    out.mkdir(parents=True, exist_ok=True)
    command = run.chroot_command(tree.root, _make_command(tree, out, goals), [checkout_bind(), *tree.binds],
                                 cwd=str(paths.CHECKOUT))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.returncode, done.stdout


def output(name: str, kdir: Path | None, clippy: bool, kunit: bool) -> Path:
    """Where a build goes; each kind has a folder of its own, so none undoes another's work."""
    base = f"kdir-{cache.digest(str(kdir.resolve()))}" if kdir is not None else name
    return paths.modules_dir(base + ("-clippy" if clippy else "") + ("-kunit" if kunit else ""))


def modules(name: str, kdir: Path | None = None, clippy: bool = False, kunit: bool = False,
            out: Path | None = None) -> Path:
    """Builds the modules, or with `clippy` only checks them; gives the output folder."""
    where = (out or output(name, kdir, clippy, kunit)).absolute()
    goals = ["CLIPPY=1"] if clippy else []
    goals += ["RNBD_KUNIT=y"] if kunit else []
    make(kernel_tree(name, kdir), where, [*goals, "modules"])
    return where


def modules_to_test(name: str, kunit: bool = False) -> Path:
    """Builds the modules for a kernel of the cache, unless the same sources were built before; gives their folder.

    Modules that were built before may name another checkout in their debug information.
    """
    where = output(name, None, False, kunit).absolute()
    tree = kernel_tree(name, None)
    # The name of a folder of the cache has a digest of its contents.
    kernel_and_tools = [str(tree.root), *(str(bind.source) for bind in tree.binds), *tree.options]
    kept.results(where.name, where, MODULES, lambda: modules(name, kunit=kunit), sources=sources.digest(NO_MODULES),
                 kunit=kunit, tree=kernel_and_tools)
    return where
