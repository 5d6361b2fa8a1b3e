"""The look of each encoding: a colour, a dash and a point shape that its label has in every chart of every page.

There are ten slots. Their colours can be distinguished with the common colour-vision deficiencies, on light and on dark
backgrounds (tests measure it). Dashes and point shapes differ too, so colour never carries the meaning alone.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

# (light, dark, name for tests and people)
COLOURS = (
    ("#86877c", "#d5dfee", "grey"),
    ("#2635a9", "#3980c8", "blue"),
    ("#de7619", "#f5c644", "orange"),
    ("#227257", "#72eaad", "green"),
    ("#c22e24", "#e05d30", "red"),
    ("#1894d5", "#5abaf0", "sky"),
    ("#821c70", "#f783bb", "plum"),
    ("#6b4ac8", "#977ff8", "violet"),
    ("#4e3f00", "#a3b52c", "olive"),
    ("#9a5c87", "#bc9678", "mauve"),
)

# Point shapes as SVG paths in the square −1.1 ... 1.1: the charts and the HTML legend draw the same ones.
SHAPES = (
    "M0,-.82A.82,.82,0,1,1,0,.82A.82,.82,0,1,1,0,-.82Z",  # circle
    "M-.72,-.72H.72V.72H-.72Z",  # square
    "M0,-.92L.94,.72H-.94Z",  # triangle
    "M0,-1L.92,0L0,1L-.92,0Z",  # diamond
    "M0,.92L.94,-.72H-.94Z",  # triangle on its tip
    "M-.4,-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",  # plus
    "M-.95,-.42L-.42,-.95L0,-.53L.42,-.95L.95,-.42L.53,0L.95,.42L.42,.95L0,.53L-.42,.95L-.95,.42L-.53,0Z",  # cross
    "M.92,0L-.72,.94V-.94Z",  # triangle to the right
    "M-.92,0L.72,.94V-.94Z",  # triangle to the left
    "M-.4,-.95H.4L.95,-.4V.4L.4,.95H-.4L-.95,.4V-.4Z",  # octagon
)

DASHES = ((1, 0), (7, 3), (2, 2.5), (9, 3, 2, 3), (1, 0), (5, 2), (1, 0), (8, 2, 2, 2, 2, 2), (3, 3), (12, 3))

# These labels have the same look in every study. Another label takes a free slot, chosen by the hash of its name.
USUAL = ("NoPE", "RoPE", "ALiBi", "FIRE", "Sinusoidal", "T5", "KerpleLog", "Learned", "KerplePower")


@dataclass(frozen=True)
class Look:
    """How an encoding is drawn. `colour` is a CSS variable, so light, dark and print need no redrawing."""

    slot: int
    cycle: int  # how many times all slots were already taken

    @property
    def colour(self) -> str:
        return f"var(--c{self.slot})"

    @property
    def shape(self) -> str:
        return SHAPES[(self.slot + 3 * self.cycle) % len(SHAPES)]

    @property
    def dash(self) -> tuple[float, ...]:
        return DASHES[(self.slot + 3 * self.cycle) % len(DASHES)]


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """Return a different look for each label. Colours repeat only if there are more than ten labels."""
    size = len(COLOURS)
    taken: dict[str, Look] = {label: Look(USUAL.index(label), 0) for label in labels if label in USUAL}
    used = set(taken.values())
    for label in labels:
        if label in taken:
            continue
        preferred = hashlib.sha256(label.encode()).digest()[0] % size
        cycle = 0
        while all(Look(slot, cycle) in used for slot in range(size)):
            cycle += 1
        slot = next(s for n in range(size) if Look(s := (preferred + n) % size, cycle) not in used)
        taken[label] = Look(slot, cycle)
        used.add(taken[label])
    return taken
