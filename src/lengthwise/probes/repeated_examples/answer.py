"""What is stored of probes with repeated examples: the checks of their questions and results."""

from lengthwise.store.checks import count, each, name, name_or_number, real, record, size, table

QUESTION = record({"length": size, "points": size})
RESULT = record(
    {
        "prompts": each(
            record(
                {
                    "kind": name,
                    "at": name_or_number,
                    "start": count,
                    "stop": count,
                    "score": real,
                    "groups": table(1),
                },
                {"curve": record({"mean": table(1)}), "low": real, "high": real},
            ),
            least=1,
        ),
        "n": size,
    }
)
