# SPDX-License-Identifier: GPL-2.0
"""What is asked of the curves of `lab scale`."""

from __future__ import annotations

from collections.abc import Sequence

from .scale_report import curves
from .scale_report import Point
from .scale_report import ratio

# A request takes at most so many times the instructions with many of something that it takes with the fewest.
FLAT = 1.05
OWN = "own instructions"
CONNECTIONS = "by connections"
OURS, C = "ours", "c"


def missed(points: Sequence[Point]) -> list[str]:
    """A line for each point that misses: own instructions that grow, and times and memory above those of C.

    Times and memory are compared at the largest count of a curve, where C was measured, too.
    """
    lines = []
    for curve in curves(points):
        own = sorted((point for point in points if point.curve == curve and point.system == OURS),
                     key=lambda point: point.count)
        if not own:
            continue
        if curve.startswith(OWN):
            # Fewer connections are the exception, as each processor has its own without the parameter.
            least = own[-1] if curve.endswith(CONNECTIONS) else own[0]
            lines += [f"{curve}: {point.figure:.0f} with {point.count:,}, {point.figure / least.figure:.2f} times what "
                      f"it is with {least.count:,}, more than {FLAT}"
                      for point in own if point.figure > FLAT * least.figure]
            continue
        over = ratio(points, own[-1], C)
        if over is not None and over > 1:
            lines.append(f"{curve}: {own[-1].figure:.2f} with {own[-1].count:,}, {over:.2f} times what C takes")
    return lines
