# SPDX-License-Identifier: GPL-2.0
"""What builds of the checkout have made, kept in the cache for the next build of the same sources.

So the tests of another checkout of the same commit build nothing again, nor do those of a checkout that has gone
back to an earlier state.
"""

import filecmp
import shutil
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path

from . import cache

# Days. The modules of a kernel take 70 MiB, and a day of work on them has dozens of builds.
DAYS = 0.25


def results(name: str, where: Path, patterns: Sequence[str], build: Callable[[], object],
            **ingredients: object) -> None:
    """Has the results of a build in the folder `where`: those that are kept, or what `build` makes there.

    The results are the files that match `patterns`. Their contents depend on `ingredients` alone. A build that ends
    well and makes no result is an error: the next build would take the empty folder for its results.
    """
    kept = cache.artifact(f"built-{name}", **ingredients)

    def make(folder: Path) -> None:
        build()
        made = _results(where, patterns)
        if not made:
            raise RuntimeError(f"{name}: the build has made none of {', '.join(patterns)} in {where}")
        for file in made:
            shutil.copy2(file, folder / file.name)
        for old in cache.unused(DAYS):
            if old.name.startswith(f"built-{name}-"):
                cache.remove_tree(old)

    _put(_results(cache.made(kept, make), patterns), where)


def _results(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _put(files: list[Path], where: Path) -> None:
    """Copies files to a folder, but for those that it has already: their times say when they have changed."""
    where.mkdir(parents=True, exist_ok=True)
    for file in files:
        target = where / file.name
        if not target.is_file() or not filecmp.cmp(file, target, shallow=False):
            partial = target.with_name(f"{target.name}.partial")
            shutil.copyfile(file, partial)
            partial.chmod(file.stat().st_mode & 0o777)
            partial.rename(target)
