"""`lengthwise export`: write results and trained models as files for other programs. Each module is one kind of export."""

COMMANDS = ("scores", "curves", "charts", "model")

HELP = """Write scores, training curves, charts or a trained model as files.

Example: lengthwise export scores quickstart --out scores.csv; lengthwise export charts quickstart --out charts --format pdf"""
