"""`lengthwise export`: write results and trained models as files for other programs. Each module is one kind of export."""

COMMANDS = ("scores", "curves", "answers", "charts", "bundle", "model")

HELP = """Write scores, training curves, answers of measurements, charts, a bundle of a study, or a trained model as files.

Example: lengthwise export scores quickstart --out scores.csv; lengthwise export charts quickstart --out charts --format pdf;
lengthwise export bundle quickstart --out quickstart.zip"""
