# SPDX-License-Identifier: GPL-2.0
"""How far the campaign has come: rounds and messages by seed, kept in the cache as long as the sources are the same.

Each slice is written when it has ended, so what was done when a machine went away is not lost, and a campaign with
the same seed goes on behind it. Another seed adds to the same sum.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import cache
from . import paths
from . import results

PEERS = ("selftests/campaign", "selftests/campaign.py")


@dataclass
class Seed:
    """What was done with one seed."""

    next: int = 0
    messages: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)


class Progress:
    """The progress against one end on one kernel."""

    def __init__(self, kernel: str, end: str, checkout: Path = paths.CHECKOUT) -> None:
        key = cache.digest({"kernel": kernel, "modules": results.modules(checkout),
                            "peers": results.digest(checkout, [checkout / name for name in PEERS])})
        self._path = cache.root() / results.FOLDER / f"campaign-{end}-{key}.json"
        self.seeds: dict[int, Seed] = {}
        if self._path.exists():
            kept = json.loads(self._path.read_text())
            self.seeds = {int(seed): Seed(**values) for seed, values in kept.items()}

    def next(self, seed: int) -> int:
        """The first round of a seed that was not run yet."""
        return self.seeds.get(seed, Seed()).next

    def add(self, seed: int, next_round: int, messages: dict[str, int], outcomes: dict[str, int]) -> None:
        """A slice has ended: the next round, and what was sent in it."""
        mine = self.seeds.setdefault(seed, Seed())
        mine.next = next_round
        mine.messages = dict(Counter(mine.messages) + Counter(messages))
        mine.outcomes = dict(Counter(mine.outcomes) + Counter(outcomes))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps({number: asdict(one) for number, one in self.seeds.items()}, indent=1) + "\n")
        partial.rename(self._path)

    def messages(self) -> Counter[str]:
        """Messages of all seeds, by kind."""
        return sum((Counter(one.messages) for one in self.seeds.values()), Counter[str]())

    def outcomes(self) -> Counter[str]:
        """What became of them, by kind."""
        return sum((Counter(one.outcomes) for one in self.seeds.values()), Counter[str]())
