# SPDX-License-Identifier: GPL-2.0
"""The Debian mirror that the host's own apt uses, in either of apt's formats."""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import run

APT = Path("/etc/apt")


@dataclass(frozen=True)
class Source:
    """One archive that apt installs binary packages from."""

    uri: str
    suite: str
    components: tuple[str, ...]


def parse_one_line(text: str) -> list[Source]:
    """Reads `deb [options] uri suite component...` lines."""
    sources = []
    for line in text.splitlines():
        words = line.split("#", 1)[0].replace("[", " [ ", 1).replace("]", " ] ", 1).split()
        if not words or words[0] != "deb":
            continue
        rest = words[1:]
        if rest and rest[0] == "[":
            rest = rest[rest.index("]") + 1 :] if "]" in rest else []
        if len(rest) >= 2:
            sources.append(Source(rest[0], rest[1], tuple(rest[2:])))
    return sources


def _stanzas(text: str) -> Iterable[dict[str, str]]:
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0].isspace():
            if last:
                fields[last] += " " + line.strip()
        elif ":" in line:
            last, value = line.split(":", 1)
            last = last.strip().lower()
            fields[last] = value.strip()


def parse_deb822(text: str) -> list[Source]:
    """Reads the stanzas of a `.sources` file; disabled ones are left out."""
    sources = []
    for fields in _stanzas(text):
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        components = tuple(fields.get("components", "").split())
        for uri in fields.get("uris", "").split():
            sources += [Source(uri, suite, components) for suite in fields.get("suites", "").split()]
    return sources


def host_sources(apt: Path = APT) -> list[Source]:
    """All archives of the host's apt configuration."""
    sources = []
    lists = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]
    for path in lists:
        if path.is_file():
            sources += parse_one_line(path.read_text())
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        sources += parse_deb822(path.read_text())
    return sources


def choose(sources: Iterable[Source], codename: str) -> str | None:
    """The archive that the system `codename` itself was installed from."""
    for source in sources:
        usable = source.uri.startswith(("http://", "https://", "file:/"))
        if usable and "main" in source.components and source.suite in (codename, "stable", "testing", "unstable"):
            return source.uri.rstrip("/")
    return None


def host_codename(os_release: Path = Path("/etc/os-release")) -> str:
    for line in os_release.read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.split("=", 1)[1].strip().strip('"')
    return ""


def mirror() -> str:
    """The mirror to use: `$MIRROR`, or the host's own."""
    named = os.environ.get("MIRROR")
    if named:
        return named.rstrip("/")
    found = choose(host_sources(), host_codename())
    if found is None:
        raise RuntimeError("no Debian mirror in the host's apt configuration; name one with MIRROR=")
    return found


def apt_options() -> list[str]:
    """The host's proxy and certificates as options for the apt of a root tree."""
    options = ["-o", f"Acquire::https::CaInfo={run.HOST_CA_INSIDE}"]
    dump = subprocess.run(
        ["apt-config", "dump", "--format", "%f=%v%n", "Acquire::http::Proxy", "Acquire::https::Proxy"],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in dump.stdout.splitlines():
        if line.split("=", 1)[-1]:
            options += ["-o", line]
    return options
