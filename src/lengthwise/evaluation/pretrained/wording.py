"""Prompts in words: an instruction, examples as bits with their labels, and a last input whose label is asked for.

    You are given some examples of inputs and their corresponding labels. You need to ...

    Input: 0 1 1 0 0 1 0 1
    Label: 1
    Input: 1 1 0 0 1 0 1 1
    Label:

Source: Bhattamishra et al. 2023, "Understanding In-Context Learning in Transformers and LLMs by Learning to Learn Discrete
Functions", whose text this is ("plain"); "How Do Position Encodings Affect Length Generalization?" asks MPT so, and Llama 2 in the
form of its chats ("llama-2"). Which part goes where in a chat is not published. Here the instruction is the system's message,
everything else the user's, and the model answers with the label: the word that stands after "Label:" elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence

INSTRUCTION = (
    "You are given some examples of inputs and their corresponding labels. You need to learn the underlying boolean function "
    "represented by these input-label examples. Predict the label (either 0 or 1) for the final input."
)
LABELS = (" 0", " 1")  # what follows a prompt: label -1, label +1


def plain(pairs: str) -> str:
    return f"{INSTRUCTION}\n\n{pairs}"


def llama_2(pairs: str) -> str:
    return f"[INST] <<SYS>>\n{INSTRUCTION}\n<</SYS>>\n\n{pairs} [/INST]"


FORMS: Mapping[str, Callable[[str], str]] = {"plain": plain, "llama-2": llama_2}


def form_for(model_type: str) -> str:
    """The form that was published for such a model: Llama's for Llama, plain for all others."""
    return "llama-2" if model_type == "llama" else "plain"


def prompt(form: str, xs: Sequence[Sequence[float]], ys: Sequence[float]) -> str:
    """The text of examples, the label of the last left out."""
    inputs = [f"Input: {' '.join(map(bit, x))}\nLabel:" for x in xs]
    return FORMS[form]("\n".join([*(f"{x} {bit(y)}" for x, y in zip(inputs, ys[:-1], strict=False)), inputs[-1]]))


def bit(value: float) -> str:
    return "1" if value > 0 else "0"


def standard(count: int, last: int) -> list[int]:
    """All examples differ in nothing but their draws."""
    return [*range(count), last]


def duplicated(count: int, last: int) -> list[int]:
    """One example over and over, and its input is asked for: whoever copies is right."""
    return [0] * (count + 1)


def noise(count: int, last: int) -> list[int]:
    """The second half of the examples (⌊n/2⌋ of n) repeats the one before it; another input is asked for."""
    fresh = count - count // 2
    return [*range(fresh), *[fresh - 1] * (count // 2), last]


SETTINGS: Mapping[str, Callable[[int, int], list[int]]] = {
    "standard": standard,
    "duplicated": duplicated,
    "noise": noise,
}
"""By name, which of the drawn examples stand in a prompt of `count`; the last index is the one that is asked for."""
