# SPDX-License-Identifier: GPL-2.0
"""Building this checkout's `rnbdctl`, the administrator's program, inside the build root."""

import filecmp
import shutil
from pathlib import Path

from . import build
from . import cache
from . import debian
from . import paths
from .arch import AMD64
from .arch import Arch

MANIFEST = paths.CHECKOUT / "tools/rnbdctl/Cargo.toml"


def binary(checkout: Path = paths.CHECKOUT, machine: Arch = AMD64) -> Path:
    """Where `lab build` puts the program."""
    return checkout / ("build/rnbdctl" if machine is AMD64 else f"build/rnbdctl-{machine.name}") / "rnbdctl"


def program(machine: Arch = AMD64) -> Path:
    """Builds the program as it is shipped, for an architecture; gives its file."""
    argv = ["cargo", "build", "-q", "--release", "--locked", "--manifest-path", str(MANIFEST)]
    made = cache.root() / build.CARGO_TARGET
    env = {}
    if machine is not AMD64:
        argv += ["--target", machine.rust_target]
        made /= machine.rust_target
        env[f"CARGO_TARGET_{machine.rust_target.upper().replace('-', '_')}_LINKER"] = machine.compiler
    made /= "release/rnbdctl"
    # Other checkouts build into the same folder.
    with cache.lock("rnbdctl"):
        build.inside(argv, root=debian.buildroot(machine).path / "root", env=env)
        target = binary(machine=machine)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or not filecmp.cmp(made, target, shallow=False):
            partial = target.with_suffix(".partial")
            shutil.copyfile(made, partial)
            partial.chmod(0o755)
            partial.rename(target)
    return target
