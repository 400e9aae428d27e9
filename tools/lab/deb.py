# SPDX-License-Identifier: GPL-2.0
"""`lab deb`: the Debian packages, built from this checkout."""

import argparse
import re
import shutil
from pathlib import Path

from . import arch
from . import build as lab_build
from . import cache
from . import kept
from . import packages
from . import paths
from . import run
from . import sources
from . import steps
from .arch import AMD64
from .arch import Arch

OUT = paths.CHECKOUT / "build/deb"
CRATES = ("tools/rnbdctl", "tools/rnbd-csi")
# Where nothing is that a package contains. Of tools/lab this file decides how packages are built.
NO_PACKAGES = ("proto/fuzz", "proto/tests", "selftests", "tools/lab")
_CHANGELOG_TOP = re.compile(r"\A(\S+) \(([^)]*)\)")
# rnbd-csi is built on the library of rnbdctl, so its Cargo.lock has both.
_CARGO_VERSION = re.compile(r'(\nname = "(?:rnbdctl|rnbd-csi)"\nversion = )"([^"]*)"')


def version(tree: Path = paths.CHECKOUT) -> str:
    """The version of everything in a tree."""
    return (tree / "VERSION").read_text().strip()


def set_version(tree: Path, to: str, crate: bool = True) -> None:
    """Makes a tree say another version: VERSION, debian/changelog and, unless told not to, the crates."""
    (tree / "VERSION").write_text(f"{to}\n")
    changelog = tree / "debian/changelog"
    old = changelog.read_text()
    last = next(line for line in old.splitlines() if line.startswith(" -- "))
    name = old.split(" ", 1)[0]
    changelog.write_text(f"{name} ({to}) unstable; urgency=medium\n\n  * Version {to}.\n\n{last}\n\n{old}")
    for file in _cargo_files(tree):
        if crate and file.is_file():
            file.write_text(_CARGO_VERSION.sub(rf'\g<1>"{to}"', file.read_text()))


def versions(tree: Path = paths.CHECKOUT) -> dict[str, str]:
    """The version as each file has it, which must all be the same."""
    found = {"VERSION": version(tree)}
    changelog = _CHANGELOG_TOP.match((tree / "debian/changelog").read_text())
    found["debian/changelog"] = changelog[2] if changelog else ""
    for file in _cargo_files(tree):
        if file.is_file():
            have = {match[2] for match in _CARGO_VERSION.finditer(file.read_text())}
            found[file.relative_to(tree).as_posix()] = " and ".join(sorted(have))
    return found


def _cargo_files(tree: Path) -> list[Path]:
    """The files that say which version the programs' crates have."""
    return [tree / crate / name for crate in CRATES for name in ("Cargo.toml", "Cargo.lock")]


def _copy(to: Path) -> None:
    cache.remove_tree(to)
    for name in sources.files():
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(paths.CHECKOUT / name, target)


def inside(argv: list[str], folder: Path, cwd: str, log: Path | None = None, env: dict[str, str] | None = None,
           built_for: Arch = AMD64) -> None:
    """Runs a program among the build dependencies, with `folder` in the place of the one that the checkout is in.

    The copy of the checkout in it then has the checkout's own path, so that
    cargo takes what `lab build' has compiled for up to date.
    """
    cargo = cache.root() / "cargo"
    cargo.mkdir(parents=True, exist_ok=True)
    binds = [run.Bind(folder, str(paths.CHECKOUT.parent)), run.Bind(cargo, "/root/.cargo")]
    every = {"CARGO_HOME": "/root/.cargo", "CARGO_TARGET_DIR": f"/root/.{lab_build.CARGO_TARGET}", "RUSTFLAGS": "",
             **(env or {})}
    run.chroot(packages.pkgbuild(built_for).path / "root", argv, binds, log, cwd=cwd, env=every)


def build(to: str | None = None, lintian: bool = False, crate: bool = True, built_for: Arch = AMD64) -> list[Path]:
    """Builds all packages, with another version if `to` is given; gives their files.

    rnbd-dkms is the same for all architectures, and comes with the programs for amd64.
    Without `crate` the programs do not know of their other version, and need
    not be compiled again.
    """
    if paths.CHECKOUT.parent == Path("/"):
        raise RuntimeError("packages cannot be built from a checkout that is directly in /")
    wanted = to or version()
    folder = OUT if to is None else OUT / to
    source = folder / paths.CHECKOUT.name
    inside_source, inside_folder = str(paths.CHECKOUT), str(paths.CHECKOUT.parent)
    log = steps.log_path("deb")
    log.write_text("")
    # The packages of all checkouts are compiled in the same folder, which no other build uses.
    with cache.lock("deb"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob("rnbd*.deb"), *folder.glob("rnbd*.changes"), *folder.glob("rnbd*.buildinfo")]:
            if old.stem.endswith((f"_{built_for.name}", "_all") if built_for is AMD64 else f"_{built_for.name}"):
                old.unlink()
        _copy(source)
        if to is not None:
            set_version(source, to, crate)
        first, *others = [f"{crate}/Cargo.toml" for crate in CRATES]
        more = [word for manifest in others for word in ("--sync", manifest)]
        inside(["cargo", "vendor", "-q", "--locked", "--manifest-path", first, *more, "debian/vendor"], folder,
               inside_source, log)
        # As a build machine of Debian does: with what the source has, and nothing of the network.
        env = {"CARGO_HOME": f"{inside_source}/debian/cargo",
               "CARGO_TARGET_DIR": f"/root/.{lab_build.CARGO_TARGET}-deb", "DEB_BUILD_OPTIONS": "noautodbgsym"}
        kind = ["--build=binary"] if built_for is AMD64 else ["--build=any", f"--host-arch={built_for.name}"]
        inside(["unshare", "--net", "dpkg-buildpackage", *kind, "-us", "-uc"], folder, inside_source, log, env,
               built_for)
        cache.remove_tree(source)
    if lintian:
        changes = next(folder.glob(f"rnbd*_{built_for.name}.changes"))
        inside(["lintian", "--fail-on", "error,warning", "--info", "--allow-root", changes.name], folder, inside_folder)
    return packages_of(folder, wanted, built_for)


def build_to_test(to: str | None = None, crate: bool = True, built_for: Arch = AMD64) -> list[Path]:
    """As `build`, but takes packages that were built of the same sources before.

    They are checked with lintian, unless they have another version.
    """
    lintian = to is None
    wanted = to or version()
    folder = OUT if to is None else OUT / to
    names = [built_for.name, "all"] if built_for is AMD64 else [built_for.name]
    patterns = [f"rnbd*_{wanted}_{name}.{kind}" for name in names for kind in ("deb", "changes", "buildinfo")]
    kept.results(f"packages-{built_for.name}", folder, patterns, lambda: build(to, lintian, crate, built_for),
                 sources=sources.digest(NO_PACKAGES), how=Path(__file__).read_text(), version=wanted,
                 lintian=lintian, crate=crate, root=str(packages.pkgbuild(built_for).path))
    return packages_of(folder, wanted, built_for)


def packages_of(folder: Path, wanted: str, built_for: Arch) -> list[Path]:
    """The packages of a version that are in a folder, with those that are the same for all architectures."""
    return sorted(deb for deb in folder.glob(f"rnbd*_{wanted}_*.deb") if deb.stem.endswith((built_for.name, "_all")))


def main(options: argparse.Namespace) -> int:
    made = [deb for built_for in arch.ALL.values()
            for deb in build(options.version, options.lintian, built_for=built_for)]
    for deb in sorted(set(made)):
        print(deb.relative_to(paths.CHECKOUT))
    return 0


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser("deb", help="build the Debian packages")
    command.add_argument("--version", help="give them another version than this checkout's")
    command.add_argument("--lintian", action="store_true", help="check them with lintian")
    command.set_defaults(run=main)
