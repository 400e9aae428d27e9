# SPDX-License-Identifier: GPL-2.0
"""What jsonschema says of documents."""

import unittest

from lab import json_schema
from lab.run import CommandFailed

SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema",
          "$defs": {"list": {"type": "object", "required": ["devices"],
                             "properties": {"devices": {"type": "array", "items": {"$ref": "#/$defs/name"}}}},
                    "name": {"type": "string"}}}


class JsonSchema(unittest.TestCase):
    def test_what_is_wrong_is_named(self) -> None:
        documents = [("list", {"devices": ["rnbd0"], "more": 1}), ("list", {"devices": ["rnbd0", 1]}), ("list", {})]
        found = json_schema.problems(SCHEMA, documents)
        self.assertEqual(len(found), 2, found)
        self.assertIn("list: $.devices[1]: 1 is not of type 'string'", found)
        self.assertIn("'devices' is a required property", found[1])

    def test_no_schema(self) -> None:
        with self.assertRaises(CommandFailed):
            json_schema.problems({"$defs": {"list": {"type": "objekt"}}}, [])
