# SPDX-License-Identifier: GPL-2.0
"""Building this checkout's `rnbdctl`, the administrator's program, inside the build root."""

import filecmp
import shutil
from pathlib import Path

from . import build
from . import cache
from . import paths

MANIFEST = paths.CHECKOUT / "tools/rnbdctl/Cargo.toml"


def binary(checkout: Path = paths.CHECKOUT) -> Path:
    """Where `lab build` puts the program."""
    return checkout / "build/rnbdctl/rnbdctl"


def program() -> Path:
    """Builds the program as it is shipped; gives its file."""
    made = cache.root() / build.CARGO_TARGET / "release/rnbdctl"
    # Other checkouts build into the same folder.
    with cache.lock("rnbdctl"):
        build.inside(["cargo", "build", "-q", "--release", "--locked", "--manifest-path", str(MANIFEST)])
        target = binary()
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or not filecmp.cmp(made, target, shallow=False):
            partial = target.with_suffix(".partial")
            shutil.copyfile(made, partial)
            partial.chmod(0o755)
            partial.rename(target)
    return target
