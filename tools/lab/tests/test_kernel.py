# SPDX-License-Identifier: GPL-2.0
"""Choosing the stock kernel, and checking the debug kernel's configuration."""

import itertools
import unittest

from lab import debug_kernel
from lab import kernel
from lab.kernel import Package


def of(release: str, version: str, series: str, kinds: tuple[str, ...] = ("binary", "modules")) -> list[Package]:
    names = [f"linux-headers-{release}", f"linux-source-{series}", *(f"linux-{kind}-{release}" for kind in kinds)]
    return [Package(name, version) for name in names]


OLD = of("7.3.2+deb13-amd64", "7.3.2-1~bpo13+1", "7.3")
NEW = of("7.3.10+deb13-amd64", "7.3.10-1~bpo13+1", "7.3")
NEXT = of("7.4.1+deb13-amd64", "7.4.1-1~bpo13+1", "7.4", ("image",))
BEFORE = of("7.2.9+deb13-amd64", "7.2.9-1~bpo13+1", "7.2", ("image",))


class Candidates(unittest.TestCase):
    def releases(self, *packages: list[Package]) -> list[str]:
        return [choice.release for choice in kernel.candidates(itertools.chain(*packages))]

    def test_newest_7_3_comes_first_and_numbers_are_not_compared_as_text(self) -> None:
        order = ["7.3.10+deb13-amd64", "7.3.2+deb13-amd64", "7.4.1+deb13-amd64", "7.2.9+deb13-amd64"]
        self.assertEqual(self.releases(OLD, NEXT, NEW, BEFORE), order)

    def test_without_7_3_the_newest_other_7_is_taken(self) -> None:
        self.assertEqual(self.releases(BEFORE, NEXT), ["7.4.1+deb13-amd64", "7.2.9+deb13-amd64"])

    def test_other_flavours_and_majors_are_ignored(self) -> None:
        rt = of("7.3.4+deb13-rt-amd64", "7.3.4-1", "7.3")
        cloud = of("7.3.4+deb13-cloud-amd64", "7.3.4-1", "7.3")
        six = of("6.12.1+deb13-amd64", "6.12.1-1", "6.12")
        self.assertEqual(self.releases(rt, cloud, six), [])

    def test_source_and_image_must_be_of_the_same_version(self) -> None:
        headers = [package for package in NEW if "headers" in package.name]
        self.assertEqual(self.releases(headers, OLD), ["7.3.2+deb13-amd64"])

    def test_an_image_that_only_depends_on_a_binary_is_not_downloaded(self) -> None:
        both = of("7.3.4+deb13-amd64", "7.3.4-1", "7.3", ("binary", "image", "modules"))
        (choice,) = kernel.candidates(both)
        self.assertNotIn("linux-image-7.3.4+deb13-amd64", choice.packages)
        self.assertIn("linux-modules-7.3.4+deb13-amd64", choice.packages)

    def test_package_lists_are_read(self) -> None:
        text = "Package: a\nDescription: x\nVersion: 1-1\n\nPackage: b\nVersion: 2\n"
        self.assertEqual(list(kernel.parse_packages(text)), [Package("a", "1-1"), Package("b", "2")])


class DebugConfiguration(unittest.TestCase):
    def test_options_that_disappeared_are_named(self) -> None:
        wanted = debug_kernel.options("CONFIG_KASAN=y\n# CONFIG_SLUB_TINY is not set\nCONFIG_X=m\n# a remark\n")
        final = debug_kernel.options("CONFIG_SLUB_TINY=y\nCONFIG_X=m\n")
        self.assertEqual(debug_kernel.lost(wanted, final), ["CONFIG_KASAN=y", "CONFIG_SLUB_TINY=n"])

    def test_an_option_that_is_absent_counts_as_off(self) -> None:
        self.assertEqual(debug_kernel.lost(debug_kernel.options("# CONFIG_SLUB_TINY is not set"), {}), [])

    def test_the_fragment_asks_for_every_detector(self) -> None:
        wanted = debug_kernel.options(debug_kernel.FRAGMENT.read_text())
        for name in ("KASAN", "PROVE_LOCKING", "DEBUG_ATOMIC_SLEEP", "DEBUG_KMEMLEAK", "FAILSLAB", "KUNIT", "RUST"):
            self.assertEqual(wanted.get(f"CONFIG_{name}"), "y", name)
