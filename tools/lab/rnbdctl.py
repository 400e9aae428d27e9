# SPDX-License-Identifier: GPL-2.0
"""Building this checkout's programs inside the build root: `rnbdctl`, the administrator's, and others."""

import shutil
from pathlib import Path

from . import build
from . import cache
from . import debian
from . import kept
from . import paths
from . import sources
from .arch import AMD64
from .arch import Arch

NAME = "rnbdctl"
# Where no sources of programs are.
NO_PROGRAMS = ("Documentation", "debian", "selftests", "tools/lab")


def binary(checkout: Path = paths.CHECKOUT, machine: Arch = AMD64) -> Path:
    """Where `lab build` puts the program."""
    return checkout / ("build/rnbdctl" if machine is AMD64 else f"build/rnbdctl-{machine.name}") / "rnbdctl"


def program(machine: Arch = AMD64) -> Path:
    """Builds `rnbdctl` as it is shipped, for an architecture; gives its file."""
    return built(NAME, binary(machine=machine), machine)


def built(name: str, target: Path, machine: Arch = AMD64, features: tuple[str, ...] = ()) -> Path:
    """Builds the program of the crate `tools/NAME` for an architecture, and puts it at `target`; gives that."""
    manifest = paths.CHECKOUT / "tools" / name / "Cargo.toml"
    argv = ["cargo", "build", "-q", "--release", "--locked", "--manifest-path", str(manifest)]
    argv += ["--features", ",".join(features)] if features else []
    made = cache.root() / build.CARGO_TARGET
    env = {}
    if machine is not AMD64:
        argv += ["--target", machine.rust_target]
        made /= machine.rust_target
        env[f"CARGO_TARGET_{machine.rust_target.upper().replace('-', '_')}_LINKER"] = machine.compiler
    made = made / "release" / name
    root = debian.buildroot(machine).path / "root"

    def compile_program() -> None:
        # Other checkouts build into the same folder; each architecture has its own.
        with cache.lock(f"{NAME}-{machine.name}"):
            build.inside(argv, root=root, env=env)
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            shutil.copy(made, partial)
            partial.rename(target)

    kept.results(f"{target.parent.name}-{target.name}", target.parent, (target.name,), compile_program,
                 sources=sources.digest(NO_PROGRAMS), root=str(root), features=features, machine=machine.name)
    return target
