"""Solves the fifteen tasks of the Chomsky hierarchy from their words, in plain Python.

    python -I -S tests/tasks/chomsky_checker.py < examples.json

It is run without site-packages and without PYTHONPATH, so it cannot import lengthwise. The input is a list of [task,
length, question, answer], with question and answer as lists of words. Prints a list of [index, problem] of the examples
that are wrong.
"""

import json
import sys
from fractions import Fraction

BITS = {"0", "1"}
RESIDUES = set("01234")


def require(condition, problem):
    if not condition:
        raise ValueError(problem)


def string(words, symbols=BITS):
    require(set(words) <= symbols, f"symbols beside {sorted(symbols)}")
    return words


def even_pairs(words):
    string(words)
    return [str(sum(a != b for a, b in zip(words[:-1], words[1:], strict=True)) % 2)]


def parity_check(words):
    return [str(string(words).count("1") % 2)]


def cycle_navigation(words):
    place = 0
    for step in string(words, {"-1", "0", "+1"}):
        place = (place + int(step)) % 5
    return [str(place)]


def modular_arithmetic(words):
    string(words[::2], RESIDUES)
    string(words[1::2], set("+-*"))
    require(len(words) % 2 == 1, "an even number of symbols")
    return [str(eval("".join(words), {"__builtins__": {}}) % 5)]  # of digits and signs, as was just checked


def stack_manipulation(words):
    size = next((n for n, word in enumerate(words) if word not in BITS), len(words))
    require(size == len(words) == 1 or 1 <= size < len(words), f"a stack of {size} bits")
    stack = list(words[:size])
    for action in string(words[size:], {"POP", "PUSH0", "PUSH1"}):
        if action == "POP":
            stack = stack[:-1]
        else:
            stack.append(action[-1])
    return list(reversed(stack))


def expression(words, at, x=None):
    """Read an expression from words[at]; return its value, and the index after it."""
    if words[at] == "-":
        require(words[at + 1] in RESIDUES | {"x"}, "a minus without a digit")
        value, at = expression(words, at + 1, x)
        return -value, at
    if words[at] in RESIDUES:
        return int(words[at]), at + 1
    if words[at] == "x":
        return x, at + 1
    require(words[at] == "(", f"{words[at]} where an expression begins")
    value, at = expression(words, at + 1, x)
    if words[at] == ")":
        return value, at + 1
    sign = words[at]
    require(sign in "+-*", f"{sign} instead of a sign")
    other, at = expression(words, at + 1, x)
    require(words[at] == ")", "a bracket is not closed")
    return {"+": value + other, "-": value - other, "*": value * other}[sign], at + 1


def whole_expression(words, x=None):
    value, end = expression(words, 0, x)
    require(end == len(words), "symbols after the expression")
    return value % 5


def modular_arithmetic_brackets(words):
    return [str(whole_expression(words))]


def solve_equation(words):
    *left, equals, right = words
    require(equals == "=" and left.count("x") == 1 and "*" not in left and right in RESIDUES, "no equation")
    solutions = [str(x) for x in range(5) if whole_expression(left, x) == int(right)]
    require(len(solutions) == 1, f"{len(solutions)} solutions")
    return solutions


def reverse_string(words):
    return string(words)[::-1]


def duplicate_string(words):
    return string(words) * 2


def missing_duplicate(words):
    half, remainder = divmod(len(words), 2)
    require(remainder == 0 and words.count("_") == 1, "no string twice")
    pairs = list(zip(words[:half], words[half:], strict=True))
    require(all(a == b for a, b in pairs if "_" not in (a, b)), "two different strings")
    (pair,) = [pair for pair in pairs if "_" in pair]
    return string([word for word in pair if word != "_"])


def odds_first(words):
    string(words)
    return [word for n, word in enumerate(words, 1) if n % 2] + [word for n, word in enumerate(words, 1) if not n % 2]


def little(words):
    string(words)
    number = sum(2**n for n, bit in enumerate(words) if bit == "1")
    require(words and number, "a number that is 0")
    return number


def bits_of(number):
    bits = []
    while number:
        bits.append(str(number % 2))
        number //= 2
    return bits


def operands(words, sign):
    require(words.count(sign) == 1, f"not one {sign}")
    at = words.index(sign)
    return little(words[:at]), little(words[at + 1 :])


def binary_addition(words):
    first, second = operands(words, "+")
    return bits_of(first + second)


def binary_multiplication(words):
    first, second = operands(words, "*")
    return bits_of(first * second)


def compute_sqrt(words):
    number = little(words[::-1])
    root = 0
    for n in reversed(range((len(words) + 1) // 2)):  # bit by bit, the highest first
        if Fraction(root + 2**n) ** 2 <= number:
            root += 2**n
    return [str(root >> n & 1) for n in reversed(range((len(words) + 1) // 2))]


def bucket_sort(words):
    string(words, RESIDUES)
    return [symbol for symbol in "01234" for word in words if word == symbol]


SOLUTIONS = {
    "EvenPairs": even_pairs,
    "ModularArithmetic": modular_arithmetic,
    "ParityCheck": parity_check,
    "CycleNavigation": cycle_navigation,
    "StackManipulation": stack_manipulation,
    "ReverseString": reverse_string,
    "ModularArithmeticBrackets": modular_arithmetic_brackets,
    "SolveEquation": solve_equation,
    "DuplicateString": duplicate_string,
    "MissingDuplicate": missing_duplicate,
    "OddsFirst": odds_first,
    "BinaryAddition": binary_addition,
    "BinaryMultiplication": binary_multiplication,
    "ComputeSqrt": compute_sqrt,
    "BucketSort": bucket_sort,
}


def main():
    try:
        import lengthwise  # noqa: F401
    except ImportError:
        pass
    else:
        raise SystemExit("this program must not be able to import lengthwise; run it with python -I -S")
    wrong = []
    for index, (task, length, question, answer) in enumerate(json.load(sys.stdin)):
        try:
            require(len(question) == length, f"{len(question)} symbols instead of {length}")
            correct = SOLUTIONS[task](question)
            require(answer == correct, f"the answer is {' '.join(correct)}")
        except (ValueError, IndexError) as error:
            wrong.append([index, f"{task} {' '.join(question)} → {' '.join(answer)}: {error}"])
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
