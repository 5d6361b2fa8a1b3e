"""`lengthwise export`: write results and trained models as files for other programs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from lengthwise import cache_folder
from lengthwise.cli.options import FileOrHyphen, Place
from lengthwise.cli.output_file import new_file
from lengthwise.cli.printing import counted, one_line
from lengthwise.values import SCORES, ConfigError

if TYPE_CHECKING:
    from lengthwise.report.pictures import Picture

STDOUT = "-"

app = App(
    name="export",
    help="""Write scores, answers of other measurements, charts, a bundle of a study, or a trained model as files.

Example: lengthwise export scores quickstart --out scores.csv; lengthwise export charts quickstart --out charts
--format pdf; lengthwise export bundle quickstart --out quickstart.zip""",
    help_epilogue="",
    version_flags=[],
)


@app.command
def scores(study: str, /, *, out: FileOrHyphen, force: bool = False, place: Place = Place()) -> int:
    """Write the scores of a study as CSV, Parquet or LaTeX.

    CSV and Parquet have one row for each run and question. LaTeX has for each task a table of encodings and lengths,
    with means over seeds and their 95 % intervals; it needs the package booktabs. Parquet and LaTeX need pandas, the
    extra frames: pip install '.[frames]' in a clone of Lengthwise.

    Example: lengthwise export scores quickstart --out scores.csv; lengthwise export scores quickstart --out scores.tex

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The file to write, which ends in .csv, .parquet or .tex, or - for CSV on the standard output.
        force: Overwrite the file if it exists.
    """
    return _write_table(study, SCORES, out, force, place)


@app.command
def answers(
    study: str, measurement: str | None = None, /, *, out: FileOrHyphen, force: bool = False, place: Place = Place()
) -> int:
    """Write the answers of a measurement as CSV or Parquet, with one row for each of their rows.

    They are those about the runs of a study, or the one in a file, such as that of `lengthwise bench --out`. Parquet
    needs pandas, the extra frames: pip install '.[frames]' in a clone of Lengthwise.

    Training curves are the answers of `training`.

    Example: lengthwise export answers quickstart training --out curves.parquet; lengthwise export answers times.jsonl
    --out times.csv

    Args:
        study: The study's name; `lengthwise list studies` lists them. Without MEASUREMENT, the file of an answer.
        measurement: The measurement's name; `lengthwise list probes` lists them.
        out: The file to write, which ends in .csv or .parquet, or - for CSV on the standard output.
        force: Overwrite the file if it exists.
    """
    from lengthwise.measurements import find

    if measurement is not None:
        return _write_table(study, find(measurement).name, out, force, place)
    if not Path(study).suffix:
        raise ConfigError(
            f"export answers {study} needs the name of a measurement; `lengthwise list probes` lists them"
        )
    from lengthwise.exchange.columns import file_columns
    from lengthwise.exchange.tables import columns_file
    from lengthwise.measurements.answer_file import read

    path, ending = _target(out, force, "answers")
    return _write(path, columns_file(file_columns(read(Path(study))), ending), f"the rows of {one_line(study)}")


def _write_table(study: str, measurement: str, out: str, force: bool, place: Place) -> int:
    """Write the answers of a measurement into a file, whose ending decides the format, or print them as CSV."""
    from lengthwise.exchange.tables import table_file

    path, ending = _target(out, force, measurement)
    with place.reading() as store:
        content = table_file(store, study, measurement, ending)
    return _write(path, content, f"{measurement} of {one_line(study)}")


def _target(out: str, force: bool, measurement: str) -> tuple[Path | None, str]:
    """Return the path of the file to write, None for the standard output, and its ending."""
    from lengthwise.exchange.tables import ending_of

    path = None if out == STDOUT else new_file(out, force)
    return path, ending_of("-.csv" if path is None else out, measurement)


def _write(path: Path | None, content: bytes, what: str) -> int:
    if path is None:
        sys.stdout.write(content.decode())
        return 0
    cache_folder.write(path, content)
    print(f"{one_line(path)}: {what}")
    return 0


@app.command
def charts(study: str, /, *, out: str, format: str = "svg", force: bool = False, place: Place = Place()) -> int:
    """Write every chart of a study's report as a picture of its own, with its title, the names of its axes and a
    legend.

    Pictures have light colours on white. The name of a file consists of the task and of what the chart shows.

    Example: lengthwise export charts quickstart --out charts --format pdf

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The folder to create.
        format: Format of the pictures: png, svg or pdf.
        force: Write into an existing folder. Pictures of the same name are overwritten, and other files stay.
    """
    from lengthwise.analysis import findings
    from lengthwise.exchange.columns import no_results
    from lengthwise.new_folder import new_folder, require_new
    from lengthwise.report.pictures import pictures, require_format

    require_format(format)
    overwrite = force and Path(out).is_dir()
    if not overwrite:
        require_new(out, fix="name another folder, or add --force" if Path(out).is_dir() else "")
    with place.reading() as store:
        drawn = pictures(findings(store, study))
        if not drawn:
            raise no_results("score", study, store)
    if overwrite:
        _write_pictures(drawn, Path(out), format)
    else:
        with new_folder(out) as draft:
            _write_pictures(drawn, draft, format)
    print(f"{one_line(out)}: {counted(len(drawn), 'chart')} of {one_line(study)}")
    return 0


def _write_pictures(pictures: "list[Picture]", folder: Path, form: str) -> None:
    for picture in pictures:
        cache_folder.write(folder / f"{picture.name}.{form}", picture.content(form))


@app.command
def bundle(
    study: str,
    /,
    *,
    out: str,
    weights: Annotated[bool, Parameter(negative="--no-weights")] = True,
    force: bool = False,
    place: Place = Place(),
) -> int:
    """Write a study with its runs, scores, other answers and weights as one file for `lengthwise import`
    elsewhere.

    It is a zip file with an SQLite database, the weights in safetensors and a list of SHA-256 sums. It has no code.

    Example: lengthwise export bundle quickstart --out quickstart.zip

    Args:
        study: The study's name; `lengthwise list studies` lists them.
        out: The file to write, which ends in .zip.
        weights: Write the weights of trained runs too. Without them, `lengthwise probe` cannot measure the imported
            runs.
        force: Overwrite the file if it exists.
    """
    from lengthwise.exchange.bundle import export_bundle

    path = new_file(out, force)
    if path.suffix != ".zip":
        raise ConfigError(f"--out must end in .zip, got {out!r}")
    with place.reading() as store:
        counts = export_bundle(store, study, path, weights=weights)
    contents = f"{counted(counts['runs'], 'run')}, {counted(counts['answers'], 'answer')}"
    print(f"{one_line(path)}: {one_line(study)} with {contents} and the weights of {counted(counts['weights'], 'run')}")
    if weights and (missing := counts["runs"] - counts["weights"]):
        print(f"lengthwise: the bundle has no weights of {counted(missing, 'run')}", file=sys.stderr)
    return 0


@app.command
def model(run: str, /, *, out: str, place: Place = Place()) -> int:
    """Write a trained run as a Hugging Face folder, which transformers loads where lengthwise is installed.

    The folder has the model, its tokenizer and the settings of the run. The exported model gives the same logits as the
    trained one, which is checked. This command needs transformers, the extra hf: pip install '.[hf]' in a clone of
    Lengthwise.

    Example: lengthwise export model 3f9a --out fire-model (`lengthwise list runs` shows the keys)

    Args:
        run: The run's key, or its first digits.
        out: The folder to create. A folder that exists is never overwritten.
    """
    from transformers.utils import logging

    from lengthwise.huggingface.export import export
    from lengthwise.new_folder import require_new
    from lengthwise.store import open_folder
    from lengthwise.studies.trained_models import load_model

    require_new(out)
    logging.disable_progress_bar()
    with place.open() as store:
        row = store.run(run)
        trained = load_model(open_folder(place.results), row)
    has_tokenizer = export(trained.run, trained.model, out)
    print(f"{one_line(out)}: {one_line(row.label)} on {one_line(row.task)}, seed {row.seed}")
    if not has_tokenizer:
        print("It has no tokenizer, because the tokens of this task stand for no text.")
    return 0
