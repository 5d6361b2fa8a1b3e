"""The study small.py with ten times the training, for a night.

Question: does the ordering of small.py change when the models are trained ten times longer?
Expectation (written before the first run): models that use more context gain more from it. FIRE, KERPLE and T5 get
better with more context by more than in small.py, and the gap between them and ALiBi grows; RoPE and sinusoidal fail
beyond the training length as before.
Outcome: not run yet.
Cost: about 16 hours of two CPU cores (60 trainings of 10,000 steps).
Command: lengthwise run fire/medium --set prose=FOLDER --set latex=FOLDER --set code=FOLDER

Options: those of small.py.
"""

from language_modelling import laptop_study

from lengthwise.studies import Study


def study(
    prose: str = "python:docstrings", latex: str = "python:manual", code: str = "python:source", seeds: int = 3
) -> Study:
    return laptop_study(
        name="fire: language modelling (medium)",
        expectation=(
            "FIRE, KERPLE and T5 get better with more context by more than in the small study, and the gap between "
            "them and ALiBi grows. RoPE and sinusoidal fail beyond the training length as before."
        ),
        cost="about 16 hours of 2 CPU cores",
        command="lengthwise run fire/medium",
        texts=(prose, latex, code),
        seeds=seeds,
        steps=10_000,
    )
