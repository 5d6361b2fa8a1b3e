"""Retrieval tasks: what their prompts contain, and that they are functions of their arguments alone."""

from random import Random

import pytest

from lengthwise.config import ConfigError
from lengthwise.measurements.reach import WITH_DEPTH, ReachOptions
from lengthwise.reach.tasks import TASKS, Chat, Needles, assemble
from lengthwise.reach.tasks.base import REQUEST
from lengthwise.reach.text import Text, read_text, windows

FILLER = [ord("x")] * 5000


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def decode(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_prompt_has_its_length_and_ends_with_the_answer(name: str, depth: float) -> None:
    needles = TASKS[name](Random(3), depth)
    prompt = assemble(needles, FILLER, encode, 900, prefix=[1, 2])
    assert len(prompt.tokens) == 900
    assert prompt.tokens[:2] == [1, 2]
    assert decode(prompt.tokens).endswith(f"\n{needles.question} {needles.answer}")
    assert decode(prompt.tokens[-prompt.answer :]) == f" {needles.answer}"
    for _, sentence in needles.sentences:
        assert decode(prompt.tokens).count(f"\n{sentence}\n") == 1


@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_in_a_chat(name: str) -> None:
    """The question ends the user's message and begins the answer, whose tokens are those without a chat."""
    needles = TASKS[name](Random(3), 0.5)
    chat = Chat(before="<s>[user]", after="[end][model]")
    prompt = assemble(needles, FILLER, encode, 900, prefix=[1, 2], chat=chat)
    text = decode(prompt.tokens)
    assert len(prompt.tokens) == 900 and text.startswith("<s>[user]x" if name != "values" else "<s>[user]")
    assert text.endswith(f"x\n{REQUEST} {needles.question}[end][model]{needles.question} {needles.answer}")
    assert decode(prompt.tokens[-prompt.answer :]) == f" {needles.answer}"
    with pytest.raises(ConfigError, match="which must be at most three quarters"):
        assemble(needles, FILLER, encode, 900 - text.count("x"), chat=chat)


@pytest.mark.parametrize("name", TASKS)
def test_prompts_depend_on_the_generator_alone(name: str) -> None:
    first, again, other = (TASKS[name](Random(seed), 0.5) for seed in (1, 1, 2))
    assert first == again
    assert first.answer != other.answer


@pytest.mark.parametrize("name", WITH_DEPTH)
def test_a_depth_is_the_share_of_the_text_before_the_sentence(name: str) -> None:
    found = []
    for depth in (0.0, 0.25, 1.0):
        needles = TASKS[name](Random(0), depth)
        text = decode(assemble(needles, FILLER, encode, 2000).tokens)
        before = text.index(needles.sentences[0][1])
        found.append(text[:before].count("x") / text.count("x"))
    assert found == pytest.approx([0.0, 0.25, 1.0], abs=0.02)


def test_what_the_answers_are() -> None:
    keys = TASKS["keys"](Random(0), 0.5)
    assert keys.question.endswith(" is") and f"{keys.question} {keys.answer}." == keys.sentences[0][1]
    assert len({sentence for _, sentence in keys.sentences}) == 4
    values = TASKS["values"](Random(0), 0.5)
    assert values.answer == ", ".join(
        sentence.removesuffix(".").split()[-1] for _, sentence in sorted(values.sentences)
    )
    chain = dict(
        sentence.removeprefix("The value of ").removesuffix(".").split(" is ")
        for _, sentence in TASKS["variables"](Random(0), 0.5).sentences
    )
    variables = TASKS["variables"](Random(0), 0.5)
    asked = variables.question.split()[-2]
    for _ in range(3):
        asked = chain[asked]
    assert asked == variables.answer
    copying = TASKS["copying"](Random(0), 0.5)
    assert f"{copying.question} {copying.answer}" == copying.sentences[0][1]


def test_an_answer_begins_where_the_tokens_of_the_question_end() -> None:
    """A tokenizer may join the last letter of the question with the first of the answer."""
    joined = {"is 1": 7}

    def merging(text: str) -> list[int]:
        tokens = []
        while text:
            piece = next((piece for piece in joined if text.startswith(piece)), text[0])
            tokens.append(joined[piece] if piece in joined else ord(piece))
            text = text[len(piece) :]
        return tokens

    prompt = assemble(Needles([(0.5, "a is 12.")], "a is", "12"), FILLER, merging, 100)
    assert prompt.tokens[-prompt.answer :] == [7, ord("2")]


def test_a_length_without_room_is_refused() -> None:
    needles = TASKS["needle"](Random(0), 0.5)
    with pytest.raises(ConfigError, match=r"an example needs \d+ tokens, which must be at most three quarters of 80"):
        assemble(needles, FILLER, encode, 80)


# ---- plan and text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lengths": (60,)}, "lengths must be at least 66 for 64 targets, got 60"),
        ({"tasks": ("text", "needles")}, "there is no task 'needles'; did you mean 'needle'"),
        ({"tasks": ()}, "tasks must not be empty"),
        ({"examples": 0}, "examples must be a whole number of at least 1"),
        ({"depths": 0}, "depths must be a whole number of at least 1"),
        ({"tasks": ("text",), "chat": True}, "--chat changes only retrieval tasks"),
    ],
)
def test_questions_that_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReachOptions(**{"lengths": (100, 200), **settings})  # type: ignore[arg-type]


def test_depths() -> None:
    options = ReachOptions(lengths=(100,), depths=3)
    assert options.depths_of("needle") == (0.0, 0.5, 1.0)
    assert options.depths_of("text") == options.depths_of("values") == (None,)
    assert ReachOptions(lengths=(100,), depths=1).depths_of("needle") == (0.5,)


def test_only_the_windows_of_a_long_text_are_tokenized(tmp_path) -> None:
    words = [f"w{n}" for n in range(20_000)]
    text, read = Text(tmp_path, " ".join(words), ""), []

    def counting(part: str) -> list[int]:
        read.append(len(part))
        return [int(word[1:] or 0) for word in part.split()]

    found, begins = windows(text, counting, 100, 10, 4)
    assert [(window[0], len(window)) for window in found] == [
        (n, 100) for n in (0, *(window[0] for window in found[1:]))
    ]
    assert read == [800] * 4, "eight characters for each token"
    size = len(text.content)
    starts = [text.content.index(f" w{window[0]} ") if n else 0 for n, window in enumerate(found)]
    assert begins == {"unit": "characters", "starts": starts}
    assert [start / size for start in starts] == pytest.approx([0, 0.25, 0.5, 0.75], abs=0.001), (
        "evenly spaced over the whole text"
    )
    assert all(window == list(range(window[0], window[0] + 100)) for window in found), (
        "each begins and ends with a whole word"
    )


def test_a_text_with_few_tokens_for_its_characters(tmp_path) -> None:
    text, read = Text(tmp_path, "ab" * 50_000, ""), []

    def rare(part: str) -> list[int]:
        read.append(len(part))
        return encode(part[::20])

    assert [len(window) for window in windows(text, rare, 1000, 10, 2)[0]] == [1000, 1000]
    assert read == [8000, 16000, 32000] * 2
    assert [len(window) for window in windows(text, rare, 3000, 10, 2)[0]] == [3000, 3000]
    assert read[-1] == 100_000, "a part has fewer tokens, so the windows overlap in the whole text"


def test_windows_of_a_short_text(tmp_path) -> None:
    def found(size: int, examples: int) -> list[list[int]]:
        text = Text(tmp_path, "", "")
        windows_, begins = windows(text, lambda _: list(range(size)), 100, 10, examples)
        assert begins == {"unit": "tokens", "starts": [window[0] for window in windows_]}
        return [list(window) for window in windows_]

    assert [(window[0], window[-1], len(window)) for window in found(1000, 4)] == [
        (0, 99, 100),
        (300, 399, 100),
        (600, 699, 100),
        (900, 999, 100),
    ]
    ends = [window[-1] for window in found(125, 50)]
    assert len(ends) == 3 and all(b - a >= 10 for a, b in zip(ends, ends[1:], strict=False))  # different targets
    with pytest.raises(ConfigError, match="has 99 tokens, fewer than the longest length of 100"):
        found(99, 1)


def test_texts_that_are_refused(tmp_path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_text(tmp_path / "latin")
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_text(path)
