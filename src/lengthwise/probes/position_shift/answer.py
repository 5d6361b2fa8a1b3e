"""What is stored of position shifts: the checks of their question and their result."""

from lengthwise.store.checks import COUNT, SIZE, each, flag, one_of, optional, record, table, with_axes

LISTS = ("scores", "standard_errors", "differences", "difference_errors", "logit_changes")  # an entry for each shift

QUESTION = record({"length": SIZE, "examples": SIZE, "shifts": each(COUNT, least=2)})
RESULT = with_axes(
    record(
        {
            "shifts": table(1, COUNT),
            **dict.fromkeys(LISTS, table(1)),
            "better": one_of("higher", "lower"),
            "invariant": flag,
            "max_length": optional(SIZE),
            "n": SIZE,
        }
    ),
    dict.fromkeys(("shifts", *LISTS), "n"),
)
