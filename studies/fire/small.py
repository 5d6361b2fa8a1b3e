"""Language modelling beyond the training length, on a laptop: FIRE's Figures 1 and 2 with models of 0.4 million parameters.

Question: how does the cross-entropy of a language model change beyond its training length, and which encoding decides it?
Models are trained on prose with 256 and 512 bytes, and evaluated with up to 8,192 bytes on prose, on LaTeX and on source code.
Expectation (written before the first run; the paper trained on 2,048 tokens of C4 and evaluated up to 8,192): the published
ordering at four times the training length is FIRE, KERPLE, then T5 and ALiBi close together, then NoPE, with RoPE and sinusoidal
far behind. We expect the same ordering of these groups with pieces of text. With the same targets at every length, we expect
sinusoidal and RoPE to get worse with more context, ALiBi and Sandwich to stay flat, and only FIRE, KERPLE and T5 to get better, by
less than 0.05 nats per byte, because models of this size use little context. PI without fine-tuning is worse than RoPE at the
training length. The orderings on LaTeX and on source code are those on prose.
Outcome: not run yet.
Cost: about two hours of two CPU cores (60 trainings of 1,000 steps, and 6 evaluations of RoPE with PI).
Command: lengthwise run studies/fire/small.py --set prose=FOLDER --set latex=FOLDER --set code=FOLDER

Options: `prose`, `latex` and `code` are files, folders or prepared corpora (`lengthwise tokenize`). Without them, the texts are the
docstrings, the manual and the source of Python's standard library, which every machine has; then all domains are about Python.
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
            "With pieces of text the ordering at four times the training length is FIRE, KERPLE, then T5 and ALiBi, then NoPE, "
            "with RoPE and sinusoidal far behind, in all domains. With the same targets at every length, RoPE and sinusoidal get "
            "worse with more context, ALiBi and Sandwich stay flat, and FIRE, KERPLE and T5 get better by less than 0.05 nats per "
            "byte."
        ),
        cost="about two hours of 2 CPU cores",
        command="lengthwise run studies/fire/small.py",
        texts=(prose, latex, code),
        seeds=seeds,
        steps=1000,
    )
