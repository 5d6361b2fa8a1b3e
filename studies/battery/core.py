"""The battery: which encodings still do a task, which they have learned, at up to eight times the training length?

Question: trained until they have learned a task, how far do encodings keep it beyond the training length, and on which
tasks?
Tasks: text in prose and in code; copying, reversing and recalling; addition and sorting; parity with a scratchpad;
linear regression and conjunctions in context; a regular, a context-free and a context-sensitive task of the Chomsky
hierarchy. `shared.py` says how they are trained.
Encodings: those of the papers and of the thesis on which this library is based, and those that led in
encodings_2026/small.
"""

from shared import selected, two_stages

from lengthwise.encodings import (
    DAPE,
    FIRE,
    T5,
    ALiBi,
    FoX,
    GrapeA,
    KerpleLog,
    KerplePower,
    Learned,
    NoPE,
    PaTHFoX,
    RoPE,
    Sandwich,
    Sinusoidal,
    StickBreaking,
    TransformerXL,
)
from lengthwise.studies import Study

CORE = (
    NoPE,
    Sinusoidal,
    Learned,
    RoPE,
    ALiBi,
    T5,
    KerpleLog,
    KerplePower,
    Sandwich,
    FIRE,
    TransformerXL,
    DAPE,
    FoX,
    PaTHFoX,
    StickBreaking,
    GrapeA,
)


def study(tasks: str = "", seeds: int = 5) -> Study:
    return two_stages(
        name="battery: core",
        question="Trained until they have learned a task, how far do encodings keep it beyond the training length?",
        expectation="",
        command="lengthwise run battery/core",
        cost="",
        settings=selected(tasks),
        encodings=CORE,
        seeds=seeds,
    )
