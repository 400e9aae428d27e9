# SPDX-License-Identifier: GPL-2.0
"""Reading apt's configuration."""

import unittest

from lab import mirror
from lab.mirror import Source

DEB822 = """\
Types: deb deb-src
# a comment within
URIs: https://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 first line
 second line

Types: deb
URIs: https://mirror.example/security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: https://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: https://source.example/debian
Suites: bookworm
Components: main
"""

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] http://tool.example/apt stable-x main
deb [ trusted=yes ] cdrom:[disc]/ bookworm main
deb-src http://source.example/debian bookworm main
deb http://mirror.example/debian bookworm main # the system's
deb
"""


class Mirror(unittest.TestCase):
    def test_deb822_gives_enabled_binary_sources(self) -> None:
        components = ("main", "contrib")
        self.assertEqual(
            mirror.parse_deb822(DEB822),
            [
                Source("https://mirror.example/debian/", "bookworm", components),
                Source("https://mirror.example/debian/", "bookworm-updates", components),
                Source("https://mirror.example/security", "bookworm-security", ("main",)),
            ],
        )

    def test_one_line_format_skips_options_and_comments(self) -> None:
        found = mirror.parse_one_line(ONE_LINE)
        self.assertEqual(found[0], Source("http://tool.example/apt", "stable-x", ("main",)))
        self.assertEqual(found[-1], Source("http://mirror.example/debian", "bookworm", ("main",)))
        self.assertEqual(len(found), 3)

    def test_the_archive_of_the_system_itself_is_chosen(self) -> None:
        every = mirror.parse_one_line(ONE_LINE)
        self.assertEqual(mirror.choose(every, "bookworm"), "http://mirror.example/debian")
        self.assertEqual(mirror.choose(mirror.parse_deb822(DEB822), "bookworm"), "https://mirror.example/debian")

    def test_without_a_usable_archive_there_is_none(self) -> None:
        self.assertIsNone(mirror.choose([Source("cdrom:[disc]/", "bookworm", ("main",))], "bookworm"))
        self.assertIsNone(mirror.choose(mirror.parse_deb822(DEB822), "trixie"))
