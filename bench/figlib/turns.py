# SPDX-License-Identifier: Apache-2.0
"""Two measurements in turn, on a machine whose speed changes under them."""
import statistics

from .programs import Failed

ROUNDS, TRIES = 5, 16
AGREE = 0.07


def against(reference, ours):
    """{"ratio", "reference", "ours"}: medians over the rounds in which the reference gave the same, within 7 %, just before and just after ours.

    What a virtual machine gets of its host's memory may change by half from one second to the next: other rounds compare two machines."""
    rounds = []
    before = reference()
    for _ in range(TRIES):
        value, after = ours(), reference()
        if abs(before - after) <= AGREE * max(before, after):
            rounds.append(((before + after) / 2, value))
        before = after
        if len(rounds) == ROUNDS:
            break
    if not rounds:
        raise Failed(f"the reference changed by more than {AGREE:.0%} during each of {TRIES} rounds")
    return {"ratio": statistics.median(value / base for base, value in rounds), "reference": statistics.median(base for base, _ in rounds),
            "ours": statistics.median(value for _, value in rounds), "rounds": len(rounds)}
