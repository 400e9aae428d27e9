# SPDX-License-Identifier: GPL-2.0
"""The documents: every block of commands says where it belongs, and what they name is there."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab import documents


class Documents(unittest.TestCase):
    def test_every_block_says_where_it_runs(self) -> None:
        places = {block.place for path in documents.documents() for block in documents.blocks(path)}
        self.assertLessEqual({"client", "server", "here"}, places)

    def test_every_make_target_is_one(self) -> None:
        for path in documents.documents():
            for block in documents.blocks(path):
                for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE) if block.place == "here" else ():
                    argv = ["make", "-n", "-C", str(documents.CHECKOUT), target]
                    result = subprocess.run(argv, capture_output=True, text=True, check=False)
                    self.assertEqual(result.returncode, 0, f"{block}: make {target}: {result.stderr}")

    def test_every_test_that_security_names_is_one(self) -> None:
        tests = {path.stem: set(re.findall(r"^def test_(\w+)", path.read_text(), re.MULTILINE))
                 for path in (documents.CHECKOUT / "selftests").glob("*.py")}
        text = (documents.CHECKOUT / "Documentation/security.md").read_text()
        named = [(subject, case) for subject, case in re.findall(r"`(\w+)\.(\w+)`", text) if subject in tests]
        self.assertGreater(len(named), 20)
        for subject, case in named:
            self.assertIn(case, tests[subject], f"security.md names {subject}.{case}")
        for name, rest in re.findall(r"`(proto/tests/\w+\.rs)`(?:: `(\w+)`)?", text):
            source = (documents.CHECKOUT / name).read_text()
            self.assertIn(f"fn {rest}(" if rest else "#[test]", source, f"security.md names {name}: {rest}")

    def test_a_block_without_a_name_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "a.md"
            for text, said in (("a\n```\nb\n```\n", "a.md:2"), ("```sh client\nb\n", "without an end")):
                document.write_text(text)
                with self.assertRaisesRegex(ValueError, said):
                    documents.blocks(document)

    def test_alerts_use_metrics_that_there_are(self) -> None:
        text = (documents.CHECKOUT / "Documentation/monitoring.md").read_text()
        rows = re.findall(r"^\| `(rnbd_\w+)` \| \w+ \|([^|]*)\|", text, re.MULTILINE)
        metrics = {name: set(re.findall(r"\w+", labels)) | {"instance", "job"} for name, labels in rows}
        rules = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "alert:" in block]
        self.assertEqual(len(rules), 1)
        alerts = re.split(r"- alert: ", rules[0])[1:]
        self.assertGreater(len(alerts), 6)
        for alert in alerts:
            used = set(re.findall(r"\brnbd_\w+", alert))
            self.assertLessEqual(used, set(metrics), f"a metric that there is not, in the alert {alert}")
            labels = set(re.findall(r"\$labels\.(\w+)", alert))
            for group in re.findall(r"\b(?:on|by) \(([^)]*)\)", alert):
                labels |= set(re.findall(r"\w+", group))
            for name in used:
                self.assertLessEqual(labels, metrics[name], f"a label that {name} has not, in the alert {alert}")

    def test_the_messages_of_the_protocol_are_the_programs(self) -> None:
        tables = {}
        for part in (documents.CHECKOUT / "Documentation/protocol.md").read_text().split("\n### ")[1:]:
            if size := re.search(r", (\d+) bytes$", part.split("\n", 1)[0]):
                rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", part, re.MULTILINE)
                tables[int(size[1]), tuple(name for _, _, name in rows)] = rows
        for part in ("rtrs", "rnbd"):
            source = (documents.CHECKOUT / f"proto/{part}/wire.rs").read_text()
            structs = re.findall(r"struct (\w+): (\d+) \{(.*?)\n    \}", source, re.DOTALL)
            self.assertGreater(len(structs), 5)
            for struct, length, text in structs:
                fields = re.findall(r"(\d+) => (?:r#)?(\w+):", text)
                ends = [int(offset) for offset, _ in fields[1:]] + [int(length)]
                found = tables.get((int(length), tuple(name for _, name in fields)))
                wanted = [(offset, str(end - int(offset)), name)
                          for (offset, name), end in zip(fields, ends, strict=True)]
                self.assertEqual(found, wanted, f"{part} {struct}: protocol.md has another table, or none")

    def test_the_registry_has_every_extension(self) -> None:
        text = (documents.CHECKOUT / "Documentation/protocol.md").read_text()
        rows = re.findall(r"^\| (\d+) \| `(FEATURE_\w+)` \|", text, re.MULTILINE)
        bits = {}
        for part in ("rtrs", "rnbd"):
            source = (documents.CHECKOUT / f"proto/{part}/features.rs").read_text()
            found = re.findall(r"^pub const (FEATURE_\w+): u32 = 1 << (\d+);", source, re.MULTILINE)
            self.assertGreater(len(found), 5)
            bits[part] = [(bit, name) for name, bit in found]
        self.assertEqual(sorted(rows), sorted(bits["rtrs"] + bits["rnbd"]))
        for _, name in rows:
            self.assertIn(f"\n### `{name}`\n", text, f"protocol.md has no section about {name}")
        known = re.search(r"KNOWN_FEATURES: u32 = (.*?);", source, re.DOTALL)
        campaign = re.search(r"ALL_RNBD_FEATURES (0x[0-9a-f]+)",
                             (documents.CHECKOUT / "selftests/campaign/wire.h").read_text())
        assert known and campaign
        self.assertEqual(re.findall(r"\w+", known[1]), [name for _, name in bits["rnbd"]])
        self.assertEqual(int(campaign[1], 16), sum(1 << int(bit) for bit, _ in bits["rnbd"]))

    def test_commands_are_counted(self) -> None:
        text = "# a comment\n\none --with 'a;b'\ncat > file <<'END'\nx; y\n\nz\nEND\ntwo \\\n\tmore\nthree # why\n"
        self.assertEqual(documents.commands(text), ["one --with 'a;b'", "cat > file <<'END'\nx; y\n\nz\nEND",
                                                    "two \\\n\tmore", "three # why"])
        for line in ("a && b", "a; b", "a | b", "a || b"):
            with self.assertRaises(ValueError):
                documents.commands(line)

    def test_blocks_are_found(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "a.md"
            document.write_text("```sh client\none\ntwo\n```\ntext\n```text\nx\n```\n```sh server\nthree\n```\n")
            found = [(block.line, block.place, block.text) for block in documents.blocks(document)]
        self.assertEqual(found, [(1, "client", "one\ntwo\n"), (9, "server", "three\n")])
