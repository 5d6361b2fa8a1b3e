"""Scratchpads: the study's own texts, what is written is read back, and what a model says is graded whatever it is."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.config import ConfigError, choose
from lengthwise.tasks import LEGO, TASKS, Addition, Parity, Polynomial, Sorting, Summation, generator
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.scratchpad import (
    COMPONENTS,
    FAILED,
    MARK_WORDS,
    ScratchpadTask,
    Step,
    parse,
    parse_components,
    step_accuracy,
    write,
)
from lengthwise.tasks.sequences import UNENDED

WITH = [make for make in TASKS if issubclass(make, ScratchpadTask)]
ALL_BITS = [
    "".join(f"{c}{b}" for c, b in zip("icovr", bits, strict=True)) for bits in itertools.product("01", repeat=5)
]


def bits_of(make):
    """Every scratchpad that a task can have, by its bits."""
    there = [name in make.components for name in COMPONENTS]
    fits = [b for b in ALL_BITS if "1" in b and all(on or b[2 * n + 1] == "0" for n, on in enumerate(there))]
    assert len(fits) == 2 ** sum(there) - 1
    return fits


def text(task, question):
    """The study's target for a question."""
    asked = torch.tensor([task.ids(question.split())])
    steps = task.steps(question.split())
    answer = ANSWERS[type(task).__name__](steps)
    (found,) = task.texts(task.pack(Pairs(asked, torch.tensor([task.ids(answer)]))))
    return found["target"]


ANSWERS = {
    "Addition": lambda steps: [word for step in reversed(steps) for word in step.output],
    "Summation": lambda steps: list(steps[-1].variables),
    "Parity": lambda steps: ["No" if steps[-1].variables == ("1",) else "Yes"],
    "Polynomial": lambda steps: list(steps[-1].variables),
    "Sorting": lambda steps: [word for step in steps for word in (*_comma(steps, step), *step.output)],
    "LEGO": lambda steps: list(steps[-1].output),
}

NUMBERS = choose(Sorting, scratchpad="full", items="numbers")


def _comma(steps, step):
    numbers = any(len(other.output) > 1 for other in steps)
    return [","] if numbers and step is not steps[0] else []


LEAD, THUS = "Thinking step by step:  ", ". Thus,  "


def test_the_texts_of_the_study_for_addition():
    assert text(Addition(scratchpad="full"), "5 7 + 6 8") == (
        "Thinking step by step:  in 7, 8 comp 7 + 8 + carry = 15 + 0 = 15 out 5 [ carry: 1 ] re 5 + 6  # "
        "in 5, 6 comp 5 + 6 + carry = 11 + 1 = 12 out 2 [ carry: 1 ] re  +   # "
        "in 0, 0 comp 0 + 0 + carry = 0 + 1 = 1 out 1 [ carry: 0 ] re  +   . Thus,  The answer is 1 2 5."
    )
    assert text(Addition(scratchpad="minimal"), "5 7 + 6 8") == (
        "Thinking step by step:  comp 7 + 8 + carry = 15 + 0 = 15 out 5  # comp 5 + 6 + carry = 11 + 1 = 12 out 2  # "
        "comp 0 + 0 + carry = 0 + 1 = 1 out 1  . Thus,  The answer is 1 2 5."
    )
    padded = text(Addition(scratchpad="i1c0o0v0r0"), "3 + 9 0 5")
    assert padded == f"{LEAD}in 3, 5  # in 0, 0  # in 0, 9  {THUS}The answer is 9 0 8."


def test_the_texts_of_the_study_for_summation_and_parity():
    assert text(Summation(scratchpad="full"), "3 9 8") == (
        f"{LEAD}in 3 comp 3 + sum = 3 + 0 = out 3 [ sum: 3 = 3 ] re 9 + 8  # "
        "in 9 comp 9 + sum = 9 + 3 = out 1 2 [ sum: 1 2 = 2 ] re 8  # "
        "in 8 comp 8 + sum = 8 + 2 = out 1 0 [ sum: 1 0 = 0 ] re   . Thus,  The answer is 0 ."
    )
    assert text(Parity(scratchpad="full"), "1 0 1 1") == (
        f"{LEAD}in 1 comp 1 ** par = 1 ** 0 out 1 [ par: 1 ] re [ 0, 1, 1 ]  # "
        "in 0 comp 0 ** par = 0 ** 1 out 1 [ par: 1 ] re [ 1, 1 ]  # "
        "in 1 comp 1 ** par = 1 ** 1 out 0 [ par: 0 ] re [ 1 ]  # "
        f"in 1 comp 1 ** par = 1 ** 0 out 1 [ par: 1 ] re [  ]  {THUS}The answer is No."
    )


def test_the_texts_of_the_study_for_polynomials():
    assert text(Polynomial(scratchpad="full"), "- 2 : - 2 x 2 + 3 x 0 + 1 x 3") == (
        f"{LEAD}in - 2 * x ** 2 comp - 2 * - 2 ** 2 = - 2 * 4 out - 8 [ sum: 0 + - 8 = 2 ] re 3 * x ** 0 + 1 * x ** 3  "
        "# in 3 * x ** 0 comp 3 * - 2 ** 0 = 3 * 1 out 3 [ sum: 2 + 3 = 5 ] re 1 * x ** 3  # "
        "in 1 * x ** 3 comp 1 * - 2 ** 3 = 1 * - 8 out - 8 [ sum: 5 + - 8 = 7 ] re   "
        ". Thus,  The answer is 7."
    )


def test_the_texts_of_the_study_for_sorting():
    low = "The minimum of the unsorted portion"
    # 50 symbols are 0 ... 9, a ... z and A ... N: take all letters, for the study's M, E, F, F, O
    assert text(Sorting(scratchpad="full", symbols=62), "M E F F O") == (
        f"{LEAD}in M comp {low} out E re [ M, F, F, O ]  # in M comp {low} out F re [ M, F, O ]  # "
        f"in M comp {low} out F re [ M, O ]  # in M comp {low} out M re [ O ]  # in O comp {low} out O re [  ]  "
        ". Thus,  The sorted list is [ E, F, F, M, O ]."
    )
    assert text(Sorting(scratchpad="full", items="numbers"), "3 1 , 4 1 2 6 , 1 0") == (
        f"{LEAD}in 3 1 comp {low} out 1 0 re [ 4 1 2 6, 3 1 ]  # in 4 1 2 6 comp {low} out 3 1 re [ 4 1 2 6 ]  # "
        f"in 4 1 2 6 comp {low} out 4 1 2 6 re [  ]  . Thus,  The sorted list is [ 1 0, 3 1, 4 1 2 6 ]."
    )


def test_the_texts_of_the_study_for_lego():
    assert text(LEGO(scratchpad="full"), "a -1 b - a c + b d - c ? d") == (
        f"{LEAD}in a comp  out -1 re b = - a, c = + b, d = - c  # in b comp - a = - -1 out +1 re c = + b, d = - c  # "
        "in c comp + b = + +1 out +1 re d = - c  # in d comp - c = - +1 out -1 re   . Thus,  The answer is -1."
    )
    stops = text(LEGO(scratchpad="minimal"), "a +1 b - a c + b ? b")
    assert stops == f"{LEAD}comp  out +1  # comp - a = - +1 out -1  {THUS}The answer is -1."


def test_leading_zeros_are_kept_and_the_study_drops_them():
    ours, theirs = Addition(scratchpad="full"), Addition(scratchpad="full", zeros="published")
    question = ["1", "0", "0", "3", "+", "5"]
    assert [" ".join(s.remaining) for s in ours.steps(question)] == ["1 0 0 + 0 0 0", "1 0 + 0 0", "1 + 0", "+"]
    assert [" ".join(s.remaining) for s in theirs.steps(question)] == ["1 0 0 + 0", "1 0 + 0", "1 + 0", "+"]
    assert "re 1 0 0 + 0  #" in text(theirs, "1 0 0 3 + 5")
    assert "re 1 0 0 + 0 0 0  #" in text(ours, "1 0 0 3 + 5")


def test_steps_in_words():
    rendered = {
        Addition: "in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in 5 6 comp 5 + 6 + 1 = 1 2 out 2 [ 1 ] re + # "
        "in 0 0 comp 0 + 0 + 1 = 1 out 1 [ 0 ] re + thus 1 2 5",
        Summation: "in 3 comp 3 + 0 out 3 [ 3 ] re 9 # in 9 comp 9 + 3 out 1 2 [ 2 ] re thus 2",
        Parity: "in 1 comp 1 xor 0 out 1 [ 1 ] re 1 # in 1 comp 1 xor 1 out 0 [ 0 ] re thus Yes",
        Polynomial: "in - 3 x 3 comp - 3 * 2 ** 3 = - 3 * 8 out - 2 4 [ 6 ] re 0 x 1 # "
        "in 0 x 1 comp 0 * 2 ** 1 = 0 * 2 out 0 [ 6 ] re thus 6",
        Sorting: "in C comp min out 8 re C b # in C comp min out b re C # in C comp min out C re thus 8 b C",
        LEGO: "in a comp out -1 re b - a c + b # in b comp - a = - -1 out +1 re c + b # "
        "in c comp + b = + +1 out +1 re thus +1",
    }
    questions = {
        Addition: "5 7 + 6 8",
        Summation: "3 9",
        Parity: "1 1",
        Polynomial: "2 : - 3 x 3 + 0 x 1",
        Sorting: "C 8 b",
        LEGO: "a -1 b - a c + b ? c",
    }
    assert set(questions) == set(WITH)
    for make, expected in rendered.items():
        task = make(scratchpad="full")
        steps = task.steps(questions[make].split())
        assert " ".join(write(steps, ANSWERS[make.__name__](steps), make.components)) == expected
    numbers = Sorting(scratchpad="full", items="numbers").steps(["3", "1", ",", "4", "1", "2", "6", ",", "1", "0"])
    assert [" ".join(step.remaining) for step in numbers] == ["4 1 2 6 , 3 1", "4 1 2 6", ""]


@given(st.integers(0, 10**12), st.integers(0, 10**12))
@settings(max_examples=60, deadline=None)
def test_the_steps_of_addition_add(a, b):
    steps = Addition(scratchpad="full").steps([*str(a), "+", *str(b)])
    assert int("".join(step.output[0] for step in reversed(steps))) == a + b
    places = max(len(str(a)), len(str(b)))
    rows = [str(a).zfill(places), str(b).zfill(places)]
    for n, step in enumerate(steps[:places], 1):
        assert step.input == tuple(row[places - n] for row in rows)
        assert "".join(step.remaining) == "+".join(row[: places - n] for row in rows)
        carry = (a % 10**n + b % 10**n) // 10**n
        assert step.variables == (str(carry),)
        left, right = " ".join(step.computation).split(" = ")
        assert eval(left) == int(right.replace(" ", ""))
    assert len(steps) == len(str(a + b).zfill(places))


@pytest.mark.parametrize("choice", [*(choose(make, scratchpad="full") for make in WITH), NUMBERS], ids=str)
def test_the_steps_lead_to_the_answer(choice):
    task = choice.build()
    for length in (2, 6, 9):
        for question, whole in task.pairs(task.sample(generator(length), 30, length)):
            steps = task.steps(question)
            assert tuple(ANSWERS[choice.name](steps)) == parse(whole, task.selected).answer
            for before, after in itertools.pairwise(steps):
                assert len(after.remaining) < len(before.remaining) or choice.name == "Addition"
            assert steps[-1].remaining == () or choice.name in ("Addition", "LEGO")


def restricted(step, components):
    return Step(**{name: getattr(step, name) for name in components})


@pytest.mark.parametrize("make", WITH)
def test_every_combination_is_written_and_read_back(make):
    for bits in bits_of(make):
        task = choose(make, scratchpad=bits).build()
        for length in (3, 7):
            batch = task.sample(generator(length), 8, length)
            plain = make().pack(Pairs.join([task.draw(generator(0), 1, length)]))
            assert plain.targets.shape[1] < batch.targets.shape[1] <= task.tokens(length)
            for question, whole in task.pairs(batch):
                found = parse(whole, task.selected)
                assert list(found.steps) == [restricted(step, task.selected) for step in task.steps(question)]
                assert set(found.answer) <= task.plain_words
                assert write(found.steps, found.answer, task.selected) == whole
                assert len(whole) <= task.scratchpad_width(length) + task.widths(length)[1]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_reading_undoes_writing(data):
    on = tuple(name for name in COMPONENTS if data.draw(st.booleans())) or ("output",)
    words = st.lists(st.sampled_from(["0", "1", "+", "a", "-", "[BOS]"]), max_size=4).map(tuple)
    step = st.builds(Step, words, words, words, words, words).map(lambda step: restricted(step, on))
    steps = tuple(data.draw(st.lists(step, min_size=1, max_size=5)))
    answer = data.draw(words.filter(bool))
    found = parse(write(steps, answer, on), on)
    assert (found.steps, found.answer) == (steps, answer)


@pytest.mark.medium
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_no_words_at_all_are_an_error(data):
    """Any words, and the right ones with some exchanged, dropped or doubled."""
    make = data.draw(st.sampled_from(WITH))
    task = make(scratchpad=data.draw(st.sampled_from(bits_of(make))))
    batch = task.examples(0, 2, 4)
    said = []
    for _, whole in task.pairs(batch):
        vocabulary = st.sampled_from([*task.words, "[BOS]", "[SEP]", UNENDED])
        words = data.draw(st.one_of(st.just(list(whole)), st.lists(vocabulary, max_size=30)))
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(0, len(words)))
            words[at : at + data.draw(st.integers(0, 2))] = data.draw(st.lists(vocabulary, max_size=2))
        said.append(words)
    graded = task.grade(said, batch)
    assert set(graded.details) == {*task.selected, FAILED}
    for n, (words, (_, whole)) in enumerate(zip(said, task.pairs(batch), strict=True)):
        answer = whole[whole.index("thus") + 1 :]
        at = words.index("thus") if "thus" in words else None
        assert bool(graded.scores[n]) == (at is not None and words[at + 1 :] == answer)
        assert not (graded.scores[n] and n in graded.unreadable)
        if words == whole:
            assert [float(graded.details[name][n]) for name in (*task.selected, FAILED)] == [1.0] * len(
                task.selected
            ) + [0.0]
        if at is None or any(word not in task.plain_words for word in words[at + 1 :]):
            assert n in graded.unreadable
        assert (n in graded.unreadable_steps) == (n not in graded.unreadable and bool(graded.details[FAILED][n]))


def grade(said, question="5 7 + 6 8", answer="1 2 5", scratchpad="full"):
    task = Addition(scratchpad=scratchpad)
    batch = task.pack(Pairs(torch.tensor([task.ids(question.split())]), torch.tensor([task.ids(answer.split())])))
    graded = task.grade([said.split()], batch)
    numbers = {name: pytest.approx(float(values[0])) for name, values in graded.details.items()}
    return float(graded.scores[0]), numbers, graded.unreadable


RIGHT = (
    "in 7 8 comp 7 + 8 + 0 = 1 5 out 5 [ 1 ] re 5 + 6 # in 5 6 comp 5 + 6 + 1 = 1 2 out 2 [ 1 ] re + # "
    "in 0 0 comp 0 + 0 + 1 = 1 out 1 [ 0 ] re + thus 1 2 5"
)


@pytest.mark.parametrize(
    ("was", "now", "score", "changed", "unreadable"),
    [
        ("", "", 1, {}, []),
        ("out 2", "out 3", 1, {"output": 2 / 3}, []),  # a wrong step, and yet the right answer
        ("thus 1 2 5", "thus 1 3 5", 0, {}, []),
        ("[ 1 ]", "[ 0 ]", 1, {"variables": 1 / 3}, []),  # in both steps
        ("in 7 8", "in 8 7", 1, {"input": 2 / 3}, []),
        ("re 5 + 6", "re", 1, {"remaining": 2 / 3}, []),
        ("thus", "", 0, {}, [0]),
        ("thus 1 2 5", "thus", 0, {}, [0]),
        ("thus 1 2 5", f"thus 1 2 5 {UNENDED}", 0, {}, [0]),
        ("thus 1 2 5", "thus 1 # 5", 0, {}, [0]),
        ("# in 5 6", "in 5 6", 1, dict.fromkeys(COMPONENTS, 0) | {FAILED: 1}, []),  # two steps in one
        ("comp 5", "5", 1, dict.fromkeys(COMPONENTS, 0) | {FAILED: 1}, []),
        ("] re 5", "] 1 re 5", 1, dict.fromkeys(COMPONENTS, 0) | {FAILED: 1}, []),
        ("in 7", "8 in 7", 1, dict.fromkeys(COMPONENTS, 0) | {FAILED: 1}, []),
        ("thus", "# in 0 0 comp 0 out 0 [ 0 ] re + thus", 1, dict.fromkeys(COMPONENTS, 0), []),  # a step too many
    ],
)
def test_what_answers_are_worth(was, now, score, changed, unreadable):
    right = dict.fromkeys(COMPONENTS, 1) | {FAILED: 0}
    found = grade(RIGHT.replace(was, now))
    if now == "" and was:  # without thus the answer belongs to the last step
        changed = {"remaining": 2 / 3}
    assert found == (score, {name: changed.get(name, value) for name, value in right.items()}, unreadable)


def test_shares_by_hand():
    steps = [Step(output=("1",)), Step(output=("2",)), Step(output=("3",)), Step(output=("4",))]
    wrong = [*steps[:3], Step(output=("5",))]
    assert step_accuracy(wrong, steps, ("output",)) == {"output": 0.75, FAILED: 0.0}
    assert step_accuracy(wrong[:3], steps, ("output",)) == {"output": 0.0, FAILED: 0.0}
    assert step_accuracy([*wrong[:3], None], steps, ("output",)) == {"output": 0.0, FAILED: 1.0}
    assert step_accuracy([], steps, ("output",)) == {"output": 0.0, FAILED: 0.0}


def test_one_scratchpad_has_one_name():
    assert choose(Addition, scratchpad="i1c1o1v1r1") == choose(Addition, scratchpad="full")
    assert choose(Addition, scratchpad="i0c1o1v0r0") == choose(Addition, scratchpad="minimal")
    assert choose(Addition, scratchpad="i1c0o1v1r1").label == "Addition(scratchpad=no-computation)"
    assert choose(Addition, scratchpad="i1c0o1v0r1").label == "Addition(scratchpad=i1c0o1v0r1)"
    assert choose(Sorting, scratchpad="i1c1o1v0r1") == choose(Sorting, scratchpad="full")
    assert choose(LEGO, scratchpad="i1c0o1v0r1").label == "LEGO(scratchpad=no-computation)"
    assert parse_components("Addition", "none") is None
    assert parse_components("Addition", "no-remaining") == COMPONENTS[:4]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("addition:scratchpad=ful", "Addition has no scratchpad 'ful'; did you mean 'full'?; available: none, full"),
        ("parity:scratchpad=no-inputs", "did you mean 'no-input'"),
        ("parity:scratchpad=i1c1o1v1", "Parity has no scratchpad 'i1c1o1v1'"),
        ("summation:scratchpad=i0c0o0v0r0", "must have at least one component"),
        ("copy:scratchpad=full", "Copy has no scratchpad; the tasks that have one are: Addition, Summation"),
        ("text:scratchpad=full", "Text has no scratchpad"),
        ("sorting:scratchpad=no-variables", "Sorting.scratchpad is 'no-variables', but its steps have no variables"),
        ("lego:scratchpad=i1c1o1v1r1", "its steps have no variables; leave variables out (v0)"),
        ("addition:zeros=published", "whose steps have no remaining input"),
        ("addition:scratchpad=minimal,zeros=published", "whose steps have no remaining input"),
        ("addition:scratchpad=full,zeros=publishd", "did you mean 'published'"),
        ("addition:scratchpd=full", "no setting 'scratchpd'; did you mean 'scratchpad'"),
    ],
)
def test_scratchpads_that_cannot_be(setting, words):
    with pytest.raises(ConfigError) as error:
        TASKS.parse(setting)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", WITH)
def test_a_scratchpad_changes_neither_questions_nor_splits_nor_answers(make):
    plain, with_steps = make(), make(scratchpad="full")
    assert not plain.decodes
    assert with_steps.decodes
    assert not set(plain.words) & set(MARK_WORDS)
    for length in (4, 9):
        before, after = (task.pairs(task.examples(2, 12, length)) for task in (plain, with_steps))
        assert [q for q, _ in before] == [q for q, _ in after]
        assert [tuple(a) for _, a in before] == [parse(a, with_steps.selected).answer for _, a in after]


@pytest.mark.parametrize(
    ("make", "question", "answer"),
    [
        (Addition, "9 9 9 + 9 9 9", "1 9 9 8"),
        (Parity, "1 1 0 1", "No"),
        (Sorting, "a c b", "a b c"),
        (LEGO, "a -1 b - a c + b ? c", "+1"),
    ],
)
def test_the_most_tokens_are_reached(make, question, answer):
    for bits in bits_of(make):
        task = make(scratchpad=bits)
        batch = task.pack(Pairs(torch.tensor([task.ids(question.split())]), torch.tensor([task.ids(answer.split())])))
        assert batch.inputs.shape[1] == task.tokens(task.length_of(question.split(), answer.split()))
        assert int(batch.scored.sum()) == task.answer_tokens(task.length_of(question.split(), answer.split()))
