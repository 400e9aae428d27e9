# SPDX-License-Identifier: GPL-2.0
"""Where things that take long to make are kept, and when they are remade.

An artefact is a folder `NAME-KEY` below the cache root; KEY is a digest of
what it is made from, so a changed ingredient gives a new folder and old
checkouts go on working. A folder is filled as `NAME-KEY.partial` and renamed
when finished: what carries the final name is complete, whatever interrupted
the run before.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STAMP = "stamp.json"


def root() -> Path:
    """The cache root: `$RNBD_CACHE`, or `~/.cache/rnbd`."""
    named = os.environ.get("RNBD_CACHE")
    return Path(named).absolute() if named else Path.home() / ".cache" / "rnbd"


def digest(ingredients: object) -> str:
    """Twelve hex digits that change when any of `ingredients` (plain JSON data) does."""
    text = json.dumps(ingredients, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Artifact:
    """A named folder of the cache, with all that decides its contents."""

    name: str
    key: str

    @property
    def path(self) -> Path:
        return root() / f"{self.name}-{self.key}"

    @property
    def partial(self) -> Path:
        return root() / f"{self.name}-{self.key}.partial"

    def is_complete(self) -> bool:
        return (self.path / STAMP).is_file()

    def stamp(self) -> dict[str, object]:
        """What was recorded when the artefact was finished."""
        facts: dict[str, object] = json.loads((self.path / STAMP).read_text())
        return facts

    def touch(self) -> None:
        """Note the use, for a later clean-up by age."""
        with contextlib.suppress(OSError):
            os.utime(self.path / STAMP)


def artifact(name: str, **ingredients: object) -> Artifact:
    return Artifact(name, digest(ingredients))


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Holds the lock called `name`, across processes; waits for it."""
    folder = root() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def mounts_below(path: Path) -> list[str]:
    """The mount points at or below `path` in this mount namespace."""
    below = []
    prefix = str(path.resolve())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].replace("\\040", " ")
        if point == prefix or point.startswith(prefix + "/"):
            below.append(point)
    return below


def remove_tree(path: Path) -> None:
    """Removes a folder of the cache; refuses when anything is mounted in it."""
    if not path.is_symlink() and not path.exists():
        return
    mounted = mounts_below(path)
    if mounted:
        raise RuntimeError(f"{path}: not removed, {mounted[0]} is a mount point")
    shutil.rmtree(path)


@contextlib.contextmanager
def building(target: Artifact, resume: bool = False) -> Iterator[tuple[Path, dict[str, object]]]:
    """Gives the folder to fill and a dict to put facts about it into.

    The caller holds `lock(NAME-KEY)`. With `resume` a folder left by an
    interrupted run is handed back as it is instead of being emptied.
    """
    if not resume:
        remove_tree(target.partial)
    target.partial.mkdir(parents=True, exist_ok=True)
    facts: dict[str, object] = {}
    started = time.monotonic()
    yield target.partial, facts
    facts["seconds"] = round(time.monotonic() - started, 1)
    (target.partial / STAMP).write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    remove_tree(target.path)
    target.partial.rename(target.path)


def made(target: Artifact, make: Callable[[Path], None]) -> Path:
    """The folder of an artefact; at first use `make` fills it, while the same artefact is waited for elsewhere."""
    with lock(f"{target.name}-{target.key}"):
        if not target.is_complete():
            with building(target) as (folder, _facts):
                make(folder)
    target.touch()
    return target.path


def unused(days: float) -> list[Path]:
    """The complete artefacts that no set-up has used for `days` days, and old unfinished ones."""
    limit = time.time() - days * 24 * 3600
    found = []
    for folder in sorted(root().glob("*-*")):
        mark = folder if folder.suffix == ".partial" else folder / STAMP
        if folder.is_dir() and mark.exists() and mark.stat().st_mtime < limit:
            found.append(folder)
    return found
