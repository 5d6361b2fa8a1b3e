"""`lengthwise export model`: write a trained run as a folder of Hugging Face transformers."""

from lengthwise.cli.options import DEFAULT_PLACE, Place
from lengthwise.cli.printing import one_line


def command(run: str, /, *, out: str, place: Place = DEFAULT_PLACE) -> int:
    """Write a trained run as a Hugging Face folder, which transformers loads where lengthwise is installed.

    The folder has the model, its tokenizer and the settings of the run. The exported model gives the same logits as the trained
    one, which is checked. This command needs transformers, the extra hf: pip install '.[hf]' in a clone of Lengthwise.

    Example: lengthwise export model 3f9a --out models/fire (`lengthwise list runs` shows the keys)

    Args:
        run: The run's key, or its first digits.
        out: The folder to create. A folder that exists is never overwritten.
    """
    from lengthwise.huggingface.export import export, hide_progress_bars
    from lengthwise.new_folder import require_new
    from lengthwise.store import open_folder
    from lengthwise.studies.trained_models import load_model

    require_new(out)
    hide_progress_bars()
    with place.open() as store:
        row = store.run(run)
        trained = load_model(open_folder(place.results), row)
    has_tokenizer = export(trained.run, trained.model, out)
    print(f"{one_line(out)}: {one_line(row.label)} on {one_line(row.task)}, seed {row.seed}")
    if not has_tokenizer:
        print("It has no tokenizer, because the tokens of this task stand for no text.")
    return 0
