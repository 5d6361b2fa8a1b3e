"""Log-n scaling: max(1, ln(i + 1) / ln L), i the position (0-based), L the trained length.

Plain Python, float64, by the change of base in two other ways: log_L(i + 1), and exact ratios where both are powers of
2.
"""

import math

from shared import FAR, NEAR, by_hand, factor_case, write


def factor(position, head, settings, parameters):
    return max(1.0, math.log(position + 1, TRAINED))


TRAINED = 16


cases = [
    # log2(1024) / log2(512) = 10/9, and so on: no logarithm is taken. Position 510 sees 511 keys.
    by_hand(f"L {trained}, position {position}", position, gain, {}, {"train_length": trained})
    for trained, position, gain in [
        (512, 510, 1.0),
        (512, 511, 1.0),
        (512, 1023, 10 / 9),
        (512, 32767, 15 / 9),
        (2, 3, 2.0),
        (2, 0, 1.0),
        (16, 65535, 4.0),
    ]
]
cases += [factor_case(factor, name, at, {}, {"train_length": TRAINED}) for name, at in (("near", NEAR), ("far", FAR))]

write("LogN", __doc__, cases)
