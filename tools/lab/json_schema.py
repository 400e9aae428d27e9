# SPDX-License-Identifier: GPL-2.0
"""Checks what programs print with a JSON schema, by the library jsonschema of the root tree of python_tools.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

from . import python_tools
from . import run

# The name of a schema in `$defs`, and what it is to describe.
Document: TypeAlias = "tuple[str, Any]"

_CHECKER = """
import json, sys
import jsonschema
given = json.load(sys.stdin)
found = []
jsonschema.Draft202012Validator.check_schema(given["schema"])
for name, document in given["documents"]:
    schema = {"$ref": "#/$defs/" + name, "$defs": given["schema"]["$defs"]}
    for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
        found.append(f"{name}: {error.json_path}: {error.message}")
json.dump(found, sys.stdout)
"""


def problems(schema: dict[str, Any], documents: Sequence[Document]) -> list[str]:
    """Where documents are not as the schemas in `$defs` say; CommandFailed if the schema is none of draft 2020-12."""
    argv = run.chroot_command(python_tools.tree().path / "root", ["python3", "-c", _CHECKER])
    text = json.dumps({"schema": schema, "documents": documents})
    result = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise run.CommandFailed(f"jsonschema: {result.stderr.strip()[-2000:]}")
    found: list[str] = json.loads(result.stdout)
    return found
