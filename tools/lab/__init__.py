# SPDX-License-Identifier: GPL-2.0
"""The project's laboratory: build root, kernels, guest images, virtual machines.

Everything it makes is kept outside the checkout (see `lab.cache`), so that a
clean checkout on the same machine starts warm.
"""

import sys
from pathlib import Path

# What tests share (`lib`) is used here, too: machines call functions of the guest library.
_SELFTESTS = str(Path(__file__).resolve().parents[2] / "selftests")
if _SELFTESTS not in sys.path:
    sys.path.append(_SELFTESTS)
