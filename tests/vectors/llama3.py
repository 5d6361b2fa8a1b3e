"""Llama 3: pair p has the wavelength w = 2 pi / theta_p, theta_p = base^(-2p/r). w > L / low: theta_p / s. w < L /
high: theta_p. Between: (1 - u) theta_p / s + u theta_p with u = (L / w - low) / (high - low); L the trained length, s
the factor, low and high low_freq_factor and high_freq_factor.

Plain Python, float64; `printed`: the frequencies of Llama-3.2-1B as a float32 program gives them (10 digits, 7 of them
sure).
"""

import math

from shared import rotary_cases, write


def frequencies(r, length, base=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0):
    out = []
    for p in range(r // 2):
        theta = base ** (-2 * p / r)
        wave = 2 * math.pi / theta
        if wave > length / low_freq_factor:
            out.append(theta / factor)
        elif wave < length / high_freq_factor:
            out.append(theta)
        else:
            u = (length / wave - low_freq_factor) / (high_freq_factor - low_freq_factor)
            out.append((1 - u) * theta / factor + u * theta)
    return out


# head_dim 64, base 500000, factor 32, low 1, high 4, L 8192
LLAMA_32_1B = [1.000000000e00, 6.636012377e-01, 4.403666027e-01, 2.922278226e-01, 1.939227447e-01, 1.286873734e-01]
LLAMA_32_1B += [8.539710029e-02, 5.666962145e-02, 3.760603093e-02, 2.495540867e-02, 1.656044008e-02, 1.098952853e-02]
LLAMA_32_1B += [7.292664737e-03, 4.839421346e-03, 3.211445995e-03, 1.290547928e-03, 4.295567966e-04, 9.708287803e-05]
LLAMA_32_1B += [1.946163818e-05, 1.291476719e-05, 8.570255490e-06, 5.687232150e-06, 3.774054294e-06, 2.504467101e-06]
LLAMA_32_1B += [1.661967468e-06, 1.102883669e-06, 7.318749675e-07, 4.856731343e-07, 3.222932930e-07, 2.138742282e-07]
LLAMA_32_1B += [1.419272025e-07, 9.418306725e-08]
assert all(abs(a / b - 1) < 5e-7 for a, b in zip(frequencies(64, 8192, 5e5, 32.0), LLAMA_32_1B, strict=True))
cases = [
    {
        "name": "Llama-3.2-1B",
        "what": "rotated",
        "from": "printed",
        "source": "RopeLlama3Tests.cs of HFLabs.ML.LLM.LevelZero.Tests, a public test: transformers' formula, float32",
        "atol": 5e-7,
        "rtol": 0.0,
        "context": {"head_dim": 64, "train_length": 8192},
        "settings": {"base": 500_000.0, "factor": 32.0},
        # Each pair alone, at the position where it turns by about 1 radian.
        "positions": [round(1 / theta) for theta in LLAMA_32_1B],
        "x": [[int(n == 2 * p) for n in range(64)] for p in range(32)],
        "expected": [
            [
                math.cos(round(1 / t) * t) if n == 2 * p else math.sin(round(1 / t) * t) if n == 2 * p + 1 else 0
                for n in range(64)
            ]
            for p, t in enumerate(LLAMA_32_1B)
        ],
    }
]
for width, length, settings in [
    (8, 64, {}),
    (16, 16, {}),
    (16, 64, {"factor": 1.0}),
    (16, 64, {"factor": 2.5, "layout": "half"}),
    (16, 512, {"low_freq_factor": 0.25, "high_freq_factor": 32.0}),
    (64, 8192, {"base": 500_000.0}),
    (20, 512, {"rotary_fraction": 0.6, "base": 500.0, "layout": "half"}),
    (2, 3, {"low_freq_factor": 0.1, "high_freq_factor": 0.5}),
]:
    how = {k: v for k, v in settings.items() if k not in ("rotary_fraction", "layout")}
    layout = settings.get("layout", "interleaved")
    theta = frequencies(int(settings.get("rotary_fraction", 1.0) * width + 1e-9), length, **how)
    said = {
        "name": f"d {width} L {length} " + " ".join(f"{k}={v}" for k, v in settings.items()),
        "from": "formula",
        "rtol": 0.0,
        "context": {"head_dim": width, "train_length": length},
        "settings": settings,
    }
    places = {"near": ([0, 3, 1000], 2e-12), "far": ([1_000_000], 2e-9), "at": [0, 5, 90]}
    cases += rotary_cases(said, width, theta, layout, **places, atol=4e-12)
write("Llama3", __doc__, cases)
