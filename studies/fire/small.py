"""Language modelling beyond the training length, on a laptop: FIRE's Figures 1 and 2 with 0.4 million parameters.

Question: how does the cross-entropy of a language model change beyond its training length, and which encoding decides
it? Models are trained on prose with 256 and 512 bytes, and evaluated with up to 8,192 bytes on prose, on LaTeX and on
source code.
Expectation (written before the first run; the paper trained on 2,048 tokens of C4 and evaluated up to 8,192): the
published ordering at four times the training length is FIRE, KERPLE, then T5 and ALiBi close together, then NoPE, with
RoPE and sinusoidal far behind. We expect the same ordering of these groups with pieces of text. With the same targets
at every length, we expect sinusoidal and RoPE to get worse with more context, ALiBi and Sandwich to stay flat, and only
FIRE, KERPLE and T5 to get better, by less than 0.05 nats per byte, because models of this size use little context. PI
without fine-tuning is worse than RoPE at the training length. The orderings on LaTeX and on source code are those on
prose.
Outcome: with pieces of prose, after training with 256 bytes, the ordering at four times this length is Sandwich 1.58,
KERPLE 1.59, ALiBi 1.64, FIRE 1.65, FIRE-S 1.67, T5 1.90, RoPE 2.56, NoPE 2.57, sinusoidal 2.82 nats per byte. RoPE and
sinusoidal are far behind, as published. Three things contradict the paper at this size: FIRE is best at the training
length (1.59) but loses 0.07 at 4x and 0.50 at 32x, so KERPLE, ALiBi and Sandwich pass it; T5 is significantly worse
than ALiBi; and NoPE is not better than RoPE. With the same targets, RoPE and sinusoidal get worse with more context and
ALiBi stays flat, as expected; Sandwich loses up to 0.02, KERPLE gains 0.003, and FIRE and T5 get worse, by 0.8 and 1.3
at 32x, so nothing gets better significantly. PI without fine-tuning is far worse than RoPE at the training length, as
expected (3.87). On LaTeX and source code the same encodings keep their scores (KERPLE, Sandwich, ALiBi) or lose them
(T5, sinusoidal, RoPE); the models were trained on prose, and most neighbours in these orderings do not differ
significantly. Every score: benchmarks/results/study-fire-small.json; a table: docs/log/2026-11-24.md.
Cost: about an hour and a half of two CPU cores (60 trainings of 1,000 steps, and 6 evaluations of RoPE with PI).
Command: lengthwise run fire/small --set prose=FOLDER --set latex=FOLDER --set code=FOLDER

Options: `prose`, `latex` and `code` are files, folders or prepared corpora (`lengthwise tokenize`). Without them, the
texts are the docstrings, the manual and the source of Python's standard library, which every machine has; then all
domains are about Python.
`seeds`: the number of seeds.
"""

from language_modelling import laptop_study

from lengthwise.studies import Study


def study(
    prose: str = "python:docstrings", latex: str = "python:manual", code: str = "python:source", seeds: int = 3
) -> Study:
    return laptop_study(
        name="fire: language modelling (small)",
        expectation=(
            "With pieces of text the ordering at four times the training length is FIRE, KERPLE, then T5 and ALiBi, "
            "then NoPE, with RoPE and sinusoidal far behind, in all domains. With the same targets at every length, "
            "RoPE and sinusoidal get "
            "worse with more context, ALiBi and Sandwich stay flat, and FIRE, KERPLE and T5 get better by less than "
            "0.05 nats per byte."
        ),
        cost="about an hour and a half of 2 CPU cores",
        command="lengthwise run fire/small",
        texts=(prose, latex, code),
        seeds=seeds,
        steps=1000,
    )
