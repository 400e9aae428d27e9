# SPDX-License-Identifier: GPL-2.0
"""What the host itself must have: a few programs, and root's rights."""

import os
import shutil
import subprocess

# Program -> Debian package.
PROGRAMS = {
    "debootstrap": "debootstrap",
    "dpkg-deb": "dpkg",
    "mount": "mount",
    "setpriv": "util-linux",
    "tar": "tar",
    "tmux": "tmux",
    "unshare": "util-linux",
    "xz": "xz-utils",
}


def missing() -> list[str]:
    """The packages whose programs are not installed."""
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})


def prepare() -> None:
    """Installs what is missing; raises RuntimeError when that is impossible."""
    if os.geteuid() != 0:
        raise RuntimeError("run this as root: the build root and the guest images need chroot and mount")
    packages = missing()
    if not packages:
        return
    print(f"installing on this machine: {' '.join(packages)}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        if subprocess.run(["apt-get", "-q", *argv], env=environment, check=False).returncode != 0:
            raise RuntimeError(f"apt-get {argv[0]} failed; install {' '.join(packages)} yourself")
