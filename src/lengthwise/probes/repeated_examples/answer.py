"""What is stored of probes with repeated examples: the checks of their questions and results."""

from lengthwise.store.checks import COUNT, SIZE, each, name, name_or_number, real, record, table

QUESTION = record({"length": SIZE, "points": SIZE})
RESULT = record(
    {
        "prompts": each(
            record(
                {
                    "kind": name,
                    "at": name_or_number,
                    "start": COUNT,
                    "stop": COUNT,
                    "score": real,
                    "groups": table(1),
                },
                {"curve": record({"mean": table(1)}), "low": real, "high": real},
            ),
            least=1,
        ),
        "n": SIZE,
    }
)
