"""Prompts as text: an instruction, examples as bits with their labels, and a last input without its label.

    You are given some examples of inputs and their corresponding labels. You need to ...

    Input: 0 1 1 0 0 1 0 1
    Label: 1
    Input: 1 1 0 0 1 0 1 1
    Label:

Source of "mpt" and "llama-2": "How Do Position Encodings Affect Length Generalization?", which prints both prompts, for
MPT-7B and for Llama-2-7B. Its slides have a blank line between any two lines. Whether the prompts had one line feed or
two is not known; here it is one. `<s>` before `[INST]` is the token that Llama's tokenizer adds to every text, so it is
not part of the text here. Source of "plain": Bhattamishra et al. 2023, "Understanding In-Context Learning in
Transformers and LLMs by Learning to Learn Discrete Functions", and its code ("basic").
"""

from collections.abc import Callable, Mapping, Sequence

SYSTEM = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
INSTRUCTION = (
    "You are given some examples of inputs and their corresponding labels. You need to learn the underlying boolean "
    "function represented by these input-label examples. Predict {label}(either 0 or 1) for the final input."
)
THESIS = INSTRUCTION.format(label="the 'Label'")  # printed without a space
PLAIN = INSTRUCTION.format(label="the label ")
LABELS = (" 0", " 1")  # what follows a prompt: label -1, label +1


def mpt(examples: str, question: str) -> str:
    return f"{SYSTEM}\nInstruction:\n{THESIS}\n{examples}{question}\nLabel:"


def llama_2(examples: str, question: str) -> str:
    return f"[INST] <<SYS>>\n{SYSTEM}\n<</SYS>>\n{THESIS}\n{examples}{question}[/INST]\nLabel:"


def plain(examples: str, question: str) -> str:
    return f"{PLAIN}\n\n{examples}{question}\nLabel:"


FORMS: Mapping[str, Callable[[str, str], str]] = {"mpt": mpt, "llama-2": llama_2, "plain": plain}
"""By name, a function (examples, last input) -> prompt; examples are lines that end with a line feed, or empty."""


def form_for(model_type: str) -> str:
    """Return the form of the thesis for a model type: Llama's for Llama, MPT's for all others."""
    return "llama-2" if model_type == "llama" else "mpt"


def prompt_text(form: str, xs: Sequence[Sequence[float]], ys: Sequence[float]) -> str:
    """Return the prompt with these examples, without the label of the last one."""
    inputs = [f"Input: {' '.join(map(bit, x))}" for x in xs]
    examples = "".join(f"{x}\nLabel: {bit(y)}\n" for x, y in zip(inputs[:-1], ys, strict=False))
    return FORMS[form](examples, inputs[-1])


def bit(value: float) -> str:
    return "1" if value > 0 else "0"


def standard(count: int, last: int) -> list[int]:
    """Return indices of independent examples and of another input as the query."""
    return [*range(count), last]


def duplicated(count: int, last: int) -> list[int]:
    """Return indices that repeat one example and query its input, so that copying gives the correct label."""
    return [0] * (count + 1)


def noise(count: int, last: int) -> list[int]:
    """Return indices whose second half (⌊n/2⌋ of n) repeats the example before it, with another input as the query."""
    fresh = count - count // 2
    return [*range(fresh), *[fresh - 1] * (count // 2), last]


KINDS: Mapping[str, Callable[[int, int], list[int]]] = {
    "standard": standard,
    "duplicated": duplicated,
    "noise": noise,
}
"""By name, a function (count, last) -> indices of the drawn examples in a prompt; the last index is the query."""
