"""`lengthwise model`: what the position settings of a Hugging Face model folder do, and mistakes in them."""

from typing import TYPE_CHECKING, Any

from lengthwise import cache_folder
from lengthwise.cli.output_file import picture_file
from lengthwise.cli.printing import (
    column,
    figure,
    one_line,
    plain_table,
    print_json,
    stdout,
    warn_of_untested_transformers,
)

if TYPE_CHECKING:
    from lengthwise.huggingface.angles import Comparison, NotCompared
    from lengthwise.huggingface.cases import Finding
    from lengthwise.huggingface.description import LayerGroup
    from lengthwise.huggingface.folder import ModelFolder

STRIP = 128  # layers; models with more have no strip of layers
PROBLEMS = 1  # exit code


def command(
    folder: str,
    /,
    *,
    weights: bool = False,
    plot: str | None = None,
    trust_remote_code: bool = False,
    json: bool = False,
) -> int:
    """Show what the position settings of a Hugging Face model do, and find mistakes in them. The exit code is 1 if
    there are any.

    Reads config.json in a local folder, and prints the encoding, window, temperature and intended length of each layer.
    The angles that the installed transformers computes are compared with those of the published formula. Nothing is
    downloaded, and no code from the folder is run unless you allow it. This command needs transformers, the extra hf:
    pip install '.[hf]' in a clone of Lengthwise.

    Example: lengthwise model models/llama-3.1-8b; lengthwise model models/llama-3.1-8b --weights --plot wavelengths.svg
    --json

    Args:
        folder: The model's folder, with config.json.
        weights: Also compare the frequencies, slopes, position tables, names and shapes in *.safetensors files with the
            settings.
        plot: File for a picture of the wavelengths or slopes: .svg, .png or .pdf.
        trust_remote_code: Run code in the folder (auto_map in its config.json). Only for folders whose code you have
            read.
        json: Print JSON.
    """
    from lengthwise.huggingface import angles, biases, description, mistakes, stored_buffers
    from lengthwise.huggingface.cases import Case
    from lengthwise.huggingface.folder import read_folder

    file = None if plot is None else picture_file(plot, (".svg", ".png", ".pdf"))
    warn_of_untested_transformers()
    model = read_folder(folder, trust_remote_code=trust_remote_code)
    groups = description.layer_groups(model)
    comparisons = [*angles.compare_angles(model, groups), *biases.compare_biases(model, groups)]
    findings = mistakes.findings(Case(model, groups, comparisons))
    checked = stored_buffers.check_weights(model, groups) if weights else None
    if checked is not None:
        findings += checked.findings
    if file is not None:
        from lengthwise.huggingface.picture import draw

        cache_folder.write(file, draw(model, groups, file.suffix.lower().removeprefix(".")))
    if json:
        print_json(
            {**record(model, groups, comparisons, findings), "weights": None if checked is None else checked.numbers()}
        )
    else:
        _print(model, groups, comparisons, findings)
        if checked is not None:
            print(checked.in_words())
        if file is not None:
            print(f"Picture: {one_line(file)}.")
    return PROBLEMS if any(finding.is_problem for finding in findings) else 0


def record(
    model: "ModelFolder",
    groups: "list[LayerGroup]",
    comparisons: "list[Comparison | NotCompared]",
    findings: "list[Finding]",
) -> dict[str, Any]:
    """Return all results as plain data."""
    import dataclasses

    import torch
    import transformers

    import lengthwise
    from lengthwise.huggingface.own_encoding import train_length_of

    return {
        "folder": str(model.path),
        "model_type": model.config.model_type,
        "dtype": _dtype(model),
        "length": model.length,
        "length_before_scaling": train_length_of(model.config),
        "layers": [
            {
                "layers": list(group.layers),
                "kind": group.kind or None,
                "encoding": None if group.encoding is None else group.encoding.name,
                "settings": {} if group.encoding is None else dict(group.encoding.settings),
                "window": group.window,
                "temperature": group.temperature or None,
                "softmax_scale": group.softmax_scale,
                "head_dim": group.head_dim or None,
            }
            for group in groups
        ],
        "angles": [dataclasses.asdict(comparison) for comparison in comparisons],
        "problems": [{"check": f.check, "text": f.text} for f in findings if f.is_problem],
        "notes": [{"check": f.check, "text": f.text} for f in findings if not f.is_problem],
        "versions": {
            "lengthwise": lengthwise.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        },
    }


def _print(
    model: "ModelFolder",
    groups: "list[LayerGroup]",
    comparisons: "list[Comparison | NotCompared]",
    findings: "list[Finding]",
) -> None:
    from lengthwise.huggingface.angles import Comparison
    from lengthwise.huggingface.own_encoding import train_length_of

    length, before = model.length, train_length_of(model.config)
    span = "no limit" if length is None else f"{length:,} tokens"
    if length is not None and before != length:
        span += f" ({before:,} before scaling)"
    kind = f"{model.config.model_type}, {model.layers} layers, {_dtype(model)}"
    print(f"{one_line(model.path)}: {kind}, intended for {span}.\n")
    console = stdout()
    console.print(_layers_table(model.layers, groups))
    if not model.observation.layers:
        reason = model.observation.reason or "they do not call transformers' attention interface"
        print(f"These layers were not observed ({one_line(reason)}), so the table shows what the settings say.")
    measured = [c for c in comparisons if isinstance(c, Comparison)]
    if measured:
        print()
        console.print(_angles_table(measured))
    print()
    for finding in sorted(findings, key=lambda f: not f.is_problem):
        print(f"{'problem' if finding.is_problem else 'note'} ({finding.check}): {one_line(finding.text)}")
    problems = sum(finding.is_problem for finding in findings)
    print(f"{problems or 'No'} problem{'s' if problems != 1 else ''} found.")
    if model.whole.get("auto_map"):
        print("config.json names code in the folder (auto_map), which runs only with --trust-remote-code.")


def _layers_table(layers: int, groups: "list[LayerGroup]") -> Any:
    """Return a table with a line for each group of equal layers, in which a strip shows where they are."""
    table = plain_table(column("layers", overflow="fold"), column("encoding", overflow="fold"))
    table.add_column("window", justify="right", no_wrap=True)
    table.add_column("temperature of the logits, sinks", overflow="fold")
    for group in groups:
        strip = "".join("█" if layer in group.layers else "·" for layer in range(layers))
        table.add_row(
            strip if layers <= STRIP else f"{len(group.layers):,} of {layers:,}",
            _encoding(group, len({other.head_dim for other in groups if other.encoding is not None}) > 1),
            "–" if group.window is None else f"{group.window:,}",
            group.temperature or "–",
        )
    return table


def _encoding(group: "LayerGroup", with_head_dim: bool) -> str:
    from lengthwise.huggingface import description

    if group.encoding is None:
        return "no attention"
    label = description.label_of(group.encoding)
    return f"{label}, heads of {group.head_dim:,} dimensions" if with_head_dim else label


def _angles_table(measured: "list[Comparison]") -> Any:
    table = plain_table(column("what transformers computes", overflow="fold"), "dtype")
    for name in ("length", "largest error", "at position", "pair or head", "attention factor"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [
        (
            c.encoding,
            c.dtype,
            f"{c.length:,}",
            f"{figure(c.error, 3)} {c.unit}",
            f"{c.position:,}",
            f"{c.pair}",
            figure(c.gain, 6) if c.unit == "radians" else "–",
        )
        for c in measured
    ]
    for row in dict.fromkeys(rows):  # kinds of layers may differ in their windows only
        table.add_row(*row)
    return table


def _dtype(model: "ModelFolder") -> str:
    return str(model.dtype).removeprefix("torch.")
