# SPDX-License-Identifier: GPL-2.0
"""Running programs, on the host and inside a root tree.

A program in a root tree gets a mount namespace of its own, so nothing stays
mounted on the host however it ends.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PASSED = ("TERM", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL")
_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# The host's certificates inside a root tree, and who is told about them.
HOST_CA_INSIDE = "/etc/ssl/host-ca.crt"
_CA_VARIABLES = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "CARGO_HTTP_CAINFO", "GIT_SSL_CAINFO", "PIP_CERT")


class CommandFailed(RuntimeError):
    """A program ended with an error; the text names it and the log."""


@dataclass(frozen=True)
class Bind:
    """A host file or folder made visible at `target` inside a root tree."""

    source: Path
    target: str
    readonly: bool = False


_running: set[subprocess.Popen[bytes]] = set()
_stopping = False


def stop_all() -> None:
    """Ends every program that is running, and lets none start any more.

    `unshare` takes the programs of its namespace with it.
    """
    global _stopping  # noqa: PLW0603
    _stopping = True
    for process in list(_running):
        process.kill()


def _wait(argv: Sequence[str], shown: str, log: Path | None) -> None:
    if log is None:
        process = subprocess.Popen(argv)
    else:
        with open(log, "a") as out:
            out.write(f"$ {shown[:2000]}\n")
            out.flush()
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    _running.add(process)
    try:
        if _stopping:
            process.kill()
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        _running.discard(process)
    if _stopping:
        raise CommandFailed("interrupted")
    if status != 0:
        raise CommandFailed(f"`{shown[:200]}' ended with status {status}{f'; see {log}' if log else ''}")


def call(argv: Sequence[str], log: Path | None = None) -> None:
    """Runs `argv`; its output goes to the end of `log`, or to the terminal."""
    _wait(argv, shlex.join(argv), log)


def _host_files() -> list[Bind]:
    """What a program inside needs from the host to reach the network."""
    bundle = os.environ.get("SSL_CERT_FILE", _CA_BUNDLE)
    wanted = [("/etc/resolv.conf", "/etc/resolv.conf"), ("/etc/hosts", "/etc/hosts"), (bundle, HOST_CA_INSIDE)]
    return [Bind(Path(source).resolve(), target, True) for source, target in wanted if Path(source).is_file()]


def _mount_script(root: Path, binds: Sequence[Bind]) -> str:
    base = shlex.quote(str(root))
    lines = [
        f"mount --rbind /dev {base}/dev",
        f"mount -t proc proc {base}/proc",
        f"mount --rbind /sys {base}/sys",
        # Programs name temporary files by process id, which is not unique across namespaces.
        f"mount -t tmpfs -o mode=1777 tmp {base}/tmp",
    ]
    for bind in binds:
        source = shlex.quote(str(bind.source))
        target = shlex.quote(f"{root}{bind.target}")
        if bind.source.is_dir():
            lines.append(f"mkdir -p {target}")
        else:
            parent = shlex.quote(str(Path(f"{root}{bind.target}").parent))
            # A dangling link (resolv.conf of some systems) cannot be mounted on.
            lines.append(f"mkdir -p {parent}; [ ! -L {target} ] || rm {target}; [ -e {target} ] || : > {target}")
        lines.append(f"mount --rbind {source} {target}")
        if bind.readonly:
            lines.append(f"mount -o remount,bind,ro {target}")
    return "\n".join(lines)


def chroot_command(
    root: Path,
    argv: Sequence[str],
    binds: Sequence[Bind] = (),
    cwd: str = "/",
    env: Mapping[str, str] | None = None,
    image: Path | None = None,
) -> list[str]:
    """The command line that runs `argv` inside the tree `root`.

    With `image`, a file with a file system, that is mounted on `root` for the
    time and unmounted at the end.
    """
    inside = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    inside |= {name: os.environ[name] for name in _PASSED if name in os.environ}
    host_files = _host_files()
    if any(bind.target == HOST_CA_INSIDE for bind in host_files):
        inside |= dict.fromkeys(_CA_VARIABLES, HOST_CA_INSIDE)
    inside |= env or {}
    assignments = [f"{name}={value}" for name, value in inside.items()]
    script = f"mount -o loop {shlex.quote(str(image))} {shlex.quote(str(root))}\n" if image is not None else ""
    script += _mount_script(root, [*host_files, *binds])
    script += f'\nroot={shlex.quote(str(root))}\n'
    if image is None:
        script += 'exec chroot "$root" env -i "$@"'
    else:
        # What still runs in this namespace would keep the image in use, and takes a moment to end. The shell reaps it
        # when it waits for `sleep'.
        script += 'status=0\nchroot "$root" env -i "$@" || status=$?\n'
        script += 'while kill -KILL -1 2>/dev/null; do sleep 0.1; done\n'
        script += 'umount -R "$root"\nexit "$status"'
    program = ["sh", "-c", 'cd "$0" && exec "$@"', cwd, *argv]
    return [
        # Whoever runs this may be killed; what runs inside must not go on alone.
        "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child",
        "--propagation", "private", "sh", "-euc", script, "sh", *assignments, *program,
    ]  # fmt: skip


def chroot(
    root: Path,
    argv: Sequence[str],
    binds: Sequence[Bind] = (),
    log: Path | None = None,
    cwd: str = "/",
    env: Mapping[str, str] | None = None,
    image: Path | None = None,
) -> None:
    """Runs `argv` inside the tree `root` and waits for it; raises CommandFailed."""
    _wait(chroot_command(root, argv, binds, cwd, env, image), f"[{root.parent.name}] {shlex.join(argv)}", log)
