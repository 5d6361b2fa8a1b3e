"""The task `functions` of `lengthwise reach`: prompts, folders that are refused, and tiny models of both kinds."""

import json
import math
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.analysis.estimates import Estimate, Interval, interval_of
from lengthwise.cli import main
from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import load
from lengthwise.measurements.answer_file import read
from lengthwise.measurements.reach import KINDS, ReachOptions
from lengthwise.reach import functions
from lengthwise.reach.functions import boolean_functions, log_probabilities, predictions, tokenize_prompt
from lengthwise.reach.measure import MeasuredModel
from lengthwise.reach.tasks import prompts
from lengthwise.reach.tasks.prompts import FORMS, form_for, prompt_text
from lengthwise.tasks import Conjunction

ARCHITECTURES = ("mpt", "llama")

XS = [[-1, 1, 1], [1, 1, -1], [-1, -1, 1]]


# ---- words ------------------------------------------------------------------------------------------------------


def test_the_prompt_that_the_thesis_printed_for_mpt():
    """Its example, of 8 bits."""
    xs = [[-1, 1, 1, -1, 1, 1, 1, 1], [1, 1, 1, -1, -1, 1, -1, -1]]
    assert prompt_text("mpt", xs, [1, -1]) == (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "Instruction:\n"
        "You are given some examples of inputs and their corresponding labels. You need to learn the underlying "
        "boolean function represented by these input-label examples. Predict the 'Label'(either 0 or 1) for the final "
        "input.\n"
        "Input: 0 1 1 0 1 1 1 1\n"
        "Label: 1\n"
        "Input: 1 1 1 0 0 1 0 0\n"
        "Label:"
    )


def test_the_prompt_that_the_thesis_printed_for_llama():
    """The first sentence is the system's; the label comes after the user's turn. `<s>` is the tokenizer's."""
    xs = [[-1, 1, 1, -1, 1, 1, 1, 1], [1, 1, 1, -1, -1, 1, -1, -1]]
    assert prompt_text("llama-2", xs, [1, -1]) == (
        "[INST] <<SYS>>\n"
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "<</SYS>>\n"
        "You are given some examples of inputs and their corresponding labels. You need to learn the underlying "
        "boolean function represented by these input-label examples. Predict the 'Label'(either 0 or 1) for the final "
        "input.\n"
        "Input: 0 1 1 0 1 1 1 1\n"
        "Label: 1\n"
        "Input: 1 1 1 0 0 1 0 0[/INST]\n"
        "Label:"
    )
    assert (form_for("llama"), form_for("mpt"), form_for("gpt2")) == ("llama-2", "mpt", "mpt")


def test_a_plain_prompt():
    assert prompt_text("plain", XS, [1, -1, 1]) == (
        "You are given some examples of inputs and their corresponding labels. You need to learn the underlying "
        "boolean function represented by these input-label examples. Predict the label (either 0 or 1) for the final "
        "input.\n\n"
        "Input: 0 1 1\nLabel: 1\nInput: 1 1 0\nLabel: 0\nInput: 0 0 1\nLabel:"
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_without_examples(form):
    text = prompt_text(form, XS[:1], [1])
    assert text.count("Input:") == text.count("Label:") == 1
    assert text.endswith({"llama-2": "Input: 0 1 1[/INST]\nLabel:"}.get(form, "\nInput: 0 1 1\nLabel:"))


def test_which_examples_stand_in_a_prompt():
    assert {name: of(5, 9) for name, of in prompts.KINDS.items()} == {
        "standard": [0, 1, 2, 3, 4, 9],
        "duplicated": [0, 0, 0, 0, 0, 0],
        "noise": [0, 1, 2, 2, 2, 9],
    }
    assert [of(0, 9) for of in prompts.KINDS.values()] == [[9], [0], [9]]
    assert prompts.KINDS["noise"](1, 9) == [0, 9]


def test_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = math.log(0.6), math.log(0.1)
    pairs = torch.tensor([(a, b), (b, a), (a, a), (a, b)], dtype=torch.float64)
    prompt = functions.TokenizedPrompt((1, 2), ((3,), (4,)))
    monkeypatch.setattr(functions, "tokenize_prompt", lambda *_: prompt)
    monkeypatch.setattr(functions, "log_probabilities", lambda *_: pairs)
    found = predictions(None, ["text"] * 4, [0, 0, 1, 0], 8)  # type: ignore[arg-type]
    assert (found["n"], found["correct"], found["constant"]) == (4, 0.5, 0.75)  # equally probable labels count as wrong
    assert found["mass"] == pytest.approx((0.7 * 3 + 1.2) / 4)
    with pytest.raises(ConfigError, match="a prompt has 2 tokens, but the model has 1 positions"):
        predictions(None, ["text"], [0], 8, limit=1)  # type: ignore[arg-type]


def test_all_boolean_functions_where_none_is_named():
    labels = [choice.label for choice in boolean_functions()]
    assert len(labels) == 10
    assert all("dims=8" in label for label in labels)
    specs = ["conjunction", "cnf:dims=5", "threshold:noise=0.1"]
    assert [c.build().dims for c in boolean_functions(specs, 6)] == [6, 5, 6]
    with pytest.raises(
        ConfigError, match=r"LinearRegression does not have the labels 0 and 1; available: .*Conjunction"
    ):
        boolean_functions(["linear-regression"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompts": ("standard", "duplicate")}, "no kind of prompts 'duplicate'; did you mean 'duplicated'"),
        ({"form": "llama2"}, "form must be one of .* got 'llama2'; did you mean 'llama-2'"),
        ({"shots": ()}, "shots must not be empty"),
        ({"examples": 0}, "examples must be a whole number of at least 1, got 0"),
        ({"prompts": ()}, "prompts must not be empty"),
    ],
)
def test_questions_that_cannot_be(change, says):
    with pytest.raises(ConfigError, match=says):
        ReachOptions(tasks=("functions",), **change)


# ---- folders ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Looks like a model from outside."""
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")  # no tensors
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def refused(capfd, *words):
    """What the command line says, which is one line."""
    capfd.readouterr()  # a bar of what the test saved
    assert main(["reach", *map(str, words), "--tasks", "functions"]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("lengthwise: ")
    assert said.err.count("\n") == 1 and "Traceback" not in said.err
    return said.err


def test_a_folder_that_is_none(capfd, folder):
    assert "nowhere does not exist; name a folder with config.json" in refused(capfd, folder / "nowhere")
    assert "config.json is a file; name a folder" in refused(capfd, folder / "config.json")


@pytest.mark.parametrize(
    ("lost", "put", "says"),
    [
        ("config.json", {}, "has no config.json, so it is not a transformers model"),
        ("config.json", {"config.json": "{"}, "config.json is not valid JSON ("),
        ("config.json", {"config.json": "[]"}, "config.json is not a JSON object"),
        ("model.safetensors", {}, "has no *.safetensors; download the whole folder again"),
        (
            "model.safetensors",
            {"pytorch_model.bin": ""},
            "pytorch_model.bin is not read, because a pickle can run code; convert it where you trust it: "
            "AutoModelForCausalLM.",
        ),
        ("tokenizer.json", {"tokenizer_config.json": "{}"}, "has no tokenizer (tokenizer.json, tokenizer.model, ...)"),
    ],
)
def test_a_folder_that_lacks_something(capfd, folder, lost, put, says):
    (folder / lost).unlink()
    for name, text in put.items():
        (folder / name).write_text(text)
    assert says in refused(capfd, folder)


def test_options_that_cannot_be(capfd, folder):
    assert "--shots contains 'x'" in refused(capfd, folder, "--shots", "5,x")
    assert "--out" in refused(capfd, folder, "--out", folder / "no" / "such.jsonl")
    assert "Conjunction" in refused(capfd, folder, "--functions", "linear-regression")
    assert "did you mean" in refused(capfd, folder, "--functions", "conjuction")
    assert "no kind of prompts 'duplicat'" in refused(capfd, folder, "--prompts", "duplicat")
    assert "examples must be a whole number of at least 1, got 0" in refused(capfd, folder, "--examples", 0)
    assert "Did you mean --prompts?" in refused(capfd, folder, "--prmpts", 3)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
            "contains BertForMaskedLM, which is not a causal",
        ),
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
            "no causal language model of the type 't5'",
        ),
        ({"model_type": "mine", "auto_map": {}}, "no causal language model of the type 'mine'"),
        (
            {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}},
            "code in the folder, auto_map, is never run",
        ),
        ({}, "no causal language model of the type None"),
        ({"model_type": "llama"}, "transformers cannot read its tokenizer"),
    ],
)
def test_a_folder_that_holds_another_thing(capfd, folder, config, says):
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text("raise SystemExit('this ran')")
    assert says in refused(capfd, folder)


# ---- tiny models ------------------------------------------------------------------------------------------------


def characters(words=()):
    """A tokenizer of single bytes: " 0" is two tokens, of which the labels share one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(["<s>", *letters])}, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return made


def of_words():
    """A tokenizer of words: labels are a token each."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    texts = [prompt_text(form, [[label]] * 2, [label] * 2) for form in FORMS for label in (-1, 1)]
    known = ["<s>", "?", *sorted({word for text in texts for word in text.split()})]
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(dict.fromkeys(known))}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def of_pieces():
    """Labels of several tokens, of different numbers: 0 is `zxx`, 1 is `yx`."""
    from tokenizers import normalizers

    made = characters()
    made.normalizer = normalizers.Sequence([normalizers.Replace("0", "zxx"), normalizers.Replace("1", "yx")])
    return made


def begun(tokenizer):
    """With a first token and a last one, as some add them to every text."""
    from tokenizers import processors

    tokenizer.add_special_tokens(["<s>", "</s>"])
    ids = [("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    return tokenizer


def make(folder, kind, tokenizer, *, positions=4096, seed=0, vocab=None, **more):
    """A tiny random model of that architecture in a folder, with its tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM, MptConfig, MptForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    vocab = vocab or tokenizer.get_vocab_size()
    if kind == "mpt":
        shape = {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": positions, "expansion_ratio": 2}
        model = MptForCausalLM(MptConfig(vocab_size=vocab, initializer_range=0.2, **shape, **more))
    else:
        shape = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
        settings = {**shape, "max_position_embeddings": positions, "initializer_range": 0.2}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=vocab, **settings, **more))
    model.save_pretrained(folder)
    ends = {"eos_token": "</s>"} if tokenizer.token_to_id("</s>") is not None else {}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", **ends).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder for each architecture."""
    return {kind: make(tmp_path_factory.mktemp(kind), kind, characters()) for kind in ARCHITECTURES}


def measured(model, *, batch_size: int = 8, show: Any = lambda *_: None, **changes: Any) -> list[Any]:
    """The rows of a model."""
    question = {"functions": ("conjunction",), "dims": 3, "prompts": ("standard",), "shots": (0, 2), "form": "plain"}
    options = ReachOptions(tasks=("functions",), **{**question, "examples": 4, **changes})
    return list(MeasuredModel(model, options, None, batch_size=batch_size, show=show).measure())


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize(
    "tokenizer", [characters, of_words, of_pieces, lambda: begun(characters()), lambda: begun(of_pieces())]
)
def test_log_probabilities_are_those_of_the_whole_text(kind, tokenizer, tmp_path):
    """The model reads the whole text with one label and with the other; no cuts, no batches, all logits."""
    model = load(make(tmp_path, kind, tokenizer()))
    texts = [prompt_text("plain", XS[:n], [1, -1, 1][:n]) for n in (1, 3, 2, 3)]
    got = log_probabilities(model, [tokenize_prompt(model, text) for text in texts], 3)
    assert got.shape == (4, 2)
    ends = {model.tokenizer.eos_token_id} - {None}
    for text, (zero, one) in zip(texts, got.tolist(), strict=True):
        whole = []
        for label in (" 0", " 1"):
            ids = [n for n in model.tokenizer(text + label)["input_ids"] if n not in ends]
            with torch.no_grad():
                said = model.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            whole.append(sum(float(said[n, token]) for n, token in enumerate(ids[1:])))
        assert one - zero == pytest.approx(whole[1] - whole[0], abs=1e-4)
        assert zero < 0 and one < 0


def test_labels_of_several_tokens_are_read_whole(tmp_path):
    model = load(make(tmp_path, "llama", of_pieces()))
    asked = tokenize_prompt(model, prompt_text("plain", XS, [1, -1, 1]))
    words = [model.tokenizer.convert_ids_to_tokens(list(label)) for label in asked.labels]
    assert words == [["z", "x", "x"], ["y", "x"]]
    assert model.tokenizer.convert_ids_to_tokens(list(asked.shared[-2:])) == [":", "Ġ"]
    assert [len(row) - len(asked.shared) for row in asked.rows] == [2, 1]


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_batches_change_nothing_but_rounding(kind, tiny):
    model = load(tiny[kind])
    one, many = (measured(model, prompts=KINDS, batch_size=size) for size in (1, 16))
    about = [[(row["prompts"], row["shots"], row["labels"]) for row in rows] for rows in (one, many)]
    assert about[0] == about[1]
    assert [row[:2] for row in about[0]] == [(kind, n) for n in (0, 2) for kind in KINDS]
    for a, b in zip(one, many, strict=True):
        assert torch.tensor(a["log_probabilities"]) == pytest.approx(torch.tensor(b["log_probabilities"]), abs=1e-4)


def test_right_labels_are_the_task_s(tiny):
    """Read again from the text: the function of a prompt says so for every example and for the question."""
    seen = []
    model = load(tiny["mpt"])
    real = model.tokenizer

    class Listening:
        eos_token_id = real.eos_token_id

        def __call__(self, text, **options):
            seen.append(text)
            return real(text, **options)

    object.__setattr__(model, "tokenizer", Listening())
    found = measured(model, examples=30, shots=(0, 4))
    task = Conjunction(dims=3)
    xs, ys = task.examples_of(task.examples(0, 30, 5))
    assert [row["labels"] for row in found] == [[int(y > 0) for y in ys[:, -1]]] * 2
    want = [
        f"{prompt_text('plain', x.tolist(), y.tolist())} {label}"
        for x, y in zip(xs, ys, strict=True)
        for label in (0, 1)
    ]
    assert seen[-60:] == want
    alone = [
        f"{prompt_text('plain', x[-1:].tolist(), y[-1:].tolist())} {label}"
        for x, y in zip(xs, ys, strict=True)
        for label in (0, 1)
    ]
    assert seen[:60] == alone


@pytest.mark.medium
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_the_command_keeps_everything_and_asks_no_network(kind, tiny, tmp_path, monkeypatch, capfd):
    def refuse(*_):
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.chdir(tmp_path)
    words = [
        "reach",
        str(tiny[kind]),
        "--tasks",
        "functions",
        "--functions",
        "conjunction,sparse-parity",
        "--dims",
        "4",
    ]
    words += ["--shots", "0,3", "--examples", "6"]
    assert main([*words, "--seed", "5", "--out", "a.jsonl"]) == 0
    out = capfd.readouterr().out
    assert "Conjunction(dims=4" in out and "duplicated" in out
    answer = read(Path("a.jsonl"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    rows = answer.rows
    assert answer.subject["architecture"] == {"mpt": "MptForCausalLM", "llama": "LlamaForCausalLM"}[kind]
    assert len(rows) == 8
    for row in rows:
        assert row["form"] == {"mpt": "mpt", "llama": "llama-2"}[kind]
        assert row["n"] == len(row["labels"]) == len(row["log_probabilities"]) == 6
        correct = sum(p[y] > p[1 - y] for p, y in zip(row["log_probabilities"], row["labels"], strict=True))
        assert row["correct"] == correct / 6
    assert main([*words, "--seed", "6", "--form", "plain", "--out", "b.jsonl"]) == 0
    assert [row["labels"] for row in read(Path("b.jsonl")).rows] != [row["labels"] for row in rows]


def test_prompts_past_the_positions(tmp_path, capfd):
    from tests.evaluation.pretrained_folder import make as make_folder

    make_folder(tmp_path, "gpt2")
    rows = measured(load(tmp_path), shots=(0, 1, 80), examples=2)
    assert [row["shots"] for row in rows if "n" in row] == [0, 1]
    assert rows[-1]["shots"] == 80 and "but the model has 1,024 positions" in rows[-1]["reason"]


def test_dynamic_ntk_has_its_factor_more_positions(tmp_path):
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    assert load(make(tmp_path, "llama", characters(), positions=300, rope_parameters=rope)).max_positions == 1200


def test_weights_that_are_not_all_there(tmp_path, capfd):
    from safetensors.torch import load_file, save_file

    make(tmp_path, "llama", characters())
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert "1 of the weights of LlamaForCausalLM are not in its safetensors" in refused(capfd, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    assert "transformers cannot read its weights" in refused(capfd, tmp_path)


def test_a_tokenizer_of_another_model(tmp_path, capfd):
    make(tmp_path, "mpt", characters(), vocab=90)
    assert "the model has only 90 tokens; copy the tokenizer that the model was trained with" in refused(
        capfd, tmp_path, "--examples", 2
    )


def test_a_tokenizer_that_does_not_know_the_labels(tmp_path, capfd):
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"<s>": 0, "?": 1, "Label:": 2}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    make(tmp_path, "llama", made)
    assert "must give the labels 0 and 1 different tokens" in refused(capfd, tmp_path, "--examples", 2)


def test_a_model_that_sees_what_comes_later(tmp_path, capfd):
    """BERT has a causal class, too; as it is set by itself it looks both ways."""
    from transformers import BertConfig, BertLMHeadModel, PreTrainedTokenizerFast

    shape = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32}
    tokenizer = characters()
    BertLMHeadModel(BertConfig(vocab_size=tokenizer.get_vocab_size(), **shape)).save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    assert "the model is not causal, because later tokens change its logits" in refused(capfd, tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_first_mpt_s_own_code_is_not_run(dtype, tmp_path):
    """Its folder says that it brings code, and spells the class in its own way; transformers has that model too."""
    make(tmp_path, "mpt", characters())
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"AutoConfig": "own.MPTConfig", "AutoModelForCausalLM": "own.MPTForCausalLM"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["MPTForCausalLM"], "auto_map": own}))
    (tmp_path / "own.py").write_text("raise SystemExit('this ran')")
    model = load(tmp_path, dtype=dtype)
    assert model.architecture == "MptForCausalLM"
    assert model.description()["dtype"] == dtype
    assert measured(model)[0]["n"] == 4


def test_numbers_that_are_none(tiny):
    model = load(tiny["llama"])
    with torch.no_grad():
        model.model.get_output_embeddings().weight[5] = math.nan
    assert ["not finite" in row["reason"] for row in measured(model)] == [True, True]


def test_progress_counts_every_prompt(tiny):
    told = []
    measured(load(tiny["mpt"]), shots=(1, 2), batch_size=3, show=lambda _, *now: told.append(now))
    assert told == sorted(told)
    assert told[-1] == (3, 3)
    assert len(told) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mpt", "llama"])
def test_a_model_that_learned_to_copy_is_seen_to_copy(kind, tmp_path):
    """Trained for the last label of prompts that repeat one example: it says that label, and nothing without them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make(tmp_path, kind, of_words(), seed=1)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    (choice,) = boolean_functions(["parity-function"], 3)
    task, form = choice.build(), form_for(model.config.model_type)
    for step in range(150):
        draws = torch.Generator().manual_seed(step)
        xs, ys = task.examples_of(task.sample(draws, 32, 1))
        count = 1 + step % 3
        texts = [
            prompt_text(form, [x[0].tolist()] * (count + 1), [y[0].item()] * (count + 1))
            for x, y in zip(xs, ys, strict=True)
        ]
        tokens = torch.tensor(tokenizer(texts)["input_ids"])
        right = torch.tensor([tokenizer.convert_tokens_to_ids("1" if y > 0 else "0") for y in ys])
        torch.nn.functional.cross_entropy(model(tokens).logits[:, -1], right).backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(tmp_path)
    question = {"functions": ("parity-function",), "dims": 3, "prompts": KINDS[:2], "shots": (0, 1, 3), "examples": 100}
    rows = measured(load(tmp_path), **question, form="auto")
    found = {(row["prompts"], row["shots"]): row for row in rows}

    def interval(share: float) -> Interval:
        return interval_of([Estimate(mean=share, standard_error=0.0, n=100)], share=True)

    for count in (1, 3):
        row = found["duplicated", count]
        assert interval(row["correct"]).low > 0.9 > row["constant"]
    for cell in (("duplicated", 0), ("standard", 3)):
        assert interval(found[cell]["correct"]).low < 0.6
    assert found["duplicated", 3]["mass"] > 0.9
