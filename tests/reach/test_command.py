"""`lengthwise reach`: its tables, its page, and bad input in one line."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from lengthwise.cli import main
from lengthwise.huggingface import use
from lengthwise.measurements.answer_file import read
from lengthwise.reach.loading import load_folder
from lengthwise.reach.model import Reader
from lengthwise.store import open_results
from tests.reach.models import WORDS, folder, prose


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny model and a text, in which commands run."""
    folder(tmp_path / "tiny")
    (tmp_path / "text.txt").write_text(prose(3000))
    monkeypatch.chdir(tmp_path)
    return tmp_path


TINY_RUN = ("--steps", "2", "--seeds", "1", "--d-model", "16", "--num-layers", "2", "--on", "inline")
SMALL = ("--text", "text.txt", "--lengths", "256,512", "--examples", 2, "--depths", 2, "--tasks", "text,needle")


def refused(capfd: pytest.CaptureFixture[str], *words: Any) -> str:
    """What the command says about bad input, which is one line."""
    capfd.readouterr()
    assert main(["reach", *map(str, words)]) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("lengthwise: ") and said.err.count("\n") == 1 and "Traceback" not in said.err
    return said.err


def rows_of(path: str, **where: Any) -> list[Any]:
    """The measured rows in a file."""
    rows = [row for row in read(Path(path)).rows if "n" in row]
    return [row for row in rows if all(row.get(name) == cell for name, cell in where.items())]


@pytest.mark.medium
def test_a_measurement_and_its_page(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "tiny").rename(place / "a<b>")
    methods = ("--methods", "own,pi:factor=4", "--page", "reach.html")
    assert main(["reach", "a<b>", *map(str, (*SMALL, *methods))]) == 0
    said = capfd.readouterr().out
    assert "All results: " in said and (place / "a<b>.reach.jsonl").exists()
    assert re.search(r"text and needle +text +needle", said)
    assert re.search(r"\n a<b> +< 256 \(< 256\) +≥ 512 \(≥ 512\) +< 256 \(< 256\)", said)
    assert "a<b>, pi:factor=4" in said and "claimed 2048" in said
    assert len(rows_of("a<b>.reach.jsonl")) == 2 * 2 * 3
    page = Path("reach.html").read_text()
    assert "</table></div><p>" in page, "a remark on a table stands below it"
    assert "a&lt;b&gt;, pi:factor=4" in page and "<script" not in page and "a<b>" not in page
    assert "default-src 'none'" in page and "://" not in re.sub(r'xmlns(:\w+)?="http[^"]*"', "", page)
    for word in ("depth 100%", "Effective length", "Cross-entropy by position", "prefers-color-scheme: dark"):
        assert word in page


@pytest.mark.medium
def test_measurements_are_compared(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two measurements with the same name, at other lengths."""
    assert main(["reach", "tiny", *map(str, SMALL)]) == 0
    words = ["--text", "text.txt", "--lengths", "512,1k", "--examples", 3, "--tasks", "text", "--out", "other.jsonl"]
    capfd.readouterr()
    assert main(["reach", "tiny", *map(str, words), "--json"]) == 0
    (data,) = json.loads(capfd.readouterr().out)
    assert [row["length"] for row in data["rows"]] == [512, 1024]
    assert main(["reach", "other.jsonl", "tiny.reach.jsonl", "--page", "both.html"]) == 0
    said = capfd.readouterr().out
    assert re.search(r"256 +512 +1,024", said) and "tiny (2)" in said
    assert "tiny (2)" in Path("both.html").read_text()


@pytest.mark.medium
def test_a_length_that_is_not_reached(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder(place / "gpt2", "gpt2")
    words = ["--text", "text.txt", "--lengths", "1k,2k", "--examples", 1, "--tasks", "text", "--page", "page.html"]
    assert main(["reach", "gpt2", *map(str, words)]) == 0
    assert re.search("gpt2, 2,048 tokens +the model has 1,024 positions", capfd.readouterr().out)
    assert "the model has 1,024 positions" in Path("page.html").read_text()
    assert read(Path("gpt2.reach.jsonl")).subject["encoding"] == "Learned(max_length=1024)"
    assert "nothing could be measured: the model has 1,024 positions; take shorter --lengths" in refused(
        capfd, "gpt2", "--text", "text.txt", "--lengths", "2k", "--tasks", "text", "--out", "none.jsonl"
    )


TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]\n{{ message['content'] }}[end]\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]\n{% endif %}"
)


@pytest.mark.medium
def test_retrieval_in_the_format_of_a_chat(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every prompt is what the template makes of its message, followed by the beginning of the answer."""
    from tokenizers.decoders import ByteLevel
    from tokenizers.processors import TemplateProcessing

    words = [*SMALL[:4], "--examples", 2, "--depths", 2, "--tasks", "needle", "--chat"]
    assert "its tokenizer has no chat template; omit --chat" in refused(capfd, "tiny", *words)
    assert "--chat changes only retrieval tasks" in refused(capfd, "tiny", *words[:-2], "text", "--chat")
    tokenizer = AutoTokenizer.from_pretrained("tiny")
    bos = {"single": "<s> $A", "pair": "$A $B", "special_tokens": [("<s>", tokenizer.bos_token_id)]}
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(**bos)
    tokenizer.backend_tokenizer.decoder = ByteLevel()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained("tiny")
    read_tokens: list[tuple[list[int], int]] = []

    def answers(_: Any, tokens: list[int], answer: int) -> bool:
        read_tokens.append((tokens, answer))
        return True

    monkeypatch.setattr(Reader, "answers_correctly", answers)
    assert main(["reach", "tiny", *map(str, words), "--page", "chat.html"]) == 0
    assert len(read_tokens) == 2 * 2 * 2 and {len(tokens) for tokens, _ in read_tokens} == {256, 512}
    for tokens, answer in read_tokens:
        text = tokenizer.decode(tokens)
        message, _, reply = text.removeprefix("<s>[user]\n").partition("[end]\n[assistant]\n")
        chat = [{"role": "user", "content": message}]
        options = {"add_generation_prompt": True, "return_dict": False}
        assert tokens == [
            *tokenizer.apply_chat_template(chat, **options),
            *tokenizer(reply, add_special_tokens=False).input_ids,
        ]
        assert tokens.count(tokenizer.bos_token_id) == 1
        question = message.rpartition("what the text above says: ")[2]
        assert reply == f"{question}{tokenizer.decode(tokens[-answer:])}"
    chat = {"before": "<s>[user]\n", "after": "[end]\n[assistant]\n"}
    assert read(Path("tiny.reach.jsonl")).origin["chat"] == chat
    assert "&lt;s&gt;[user]" in Path("chat.html").read_text()
    assert "--chat True instead of False" in refused(capfd, "tiny", *words[:-1])
    text = Path("tiny/chat_template.jinja").read_text()
    Path("tiny/chat_template.jinja").write_text(text.replace("message['content']", "1 / 0"))
    assert "apply its chat template (ZeroDivisionError" in refused(capfd, "tiny", *words, "--out", "new.jsonl")


@pytest.mark.medium
def test_flags_of_other_programs(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [
        *SMALL[:2],
        "--lengths",
        128,
        "--examples",
        1,
        "--tasks",
        "text",
        "--methods",
        "own,pi:factor=2,dynamicntk",
    ]
    assert main(["reach", "tiny", *map(str, words), "--page", "flags.html"]) == 0
    rows = [row for row in read(Path("tiny.reach.jsonl")).rows if "program" in row]
    found = {(row["method"], row["program"]): row for row in rows}
    assert len(found) == 4
    flags = found["pi:factor=2", "llama.cpp"]["flags"]
    assert flags == "--rope-scaling linear --rope-freq-base 10000 --rope-scale 2 --ctx-size 4096"
    page = Path("flags.html").read_text()
    assert flags in page and "it has no flags that compute DynamicNTK" in page


@pytest.mark.parametrize("key", ["rope_parameters", "rope_theta"])
def test_a_setting_that_makes_losses_infinite_is_named(
    place: Path, capfd: pytest.CaptureFixture[str], key: str
) -> None:
    file = place / "tiny" / "config.json"
    settings = json.loads(file.read_text())
    if key == "rope_parameters":
        settings[key]["rope_theta"] = -10000.0
    else:
        del settings["rope_parameters"]
        settings[key] = -10000.0
    file.write_text(json.dumps(settings))
    found = refused(capfd, "tiny", *SMALL)
    assert "rope_theta must be a finite number more than 0, got -10000.0; correct it" in found
    assert "weights" not in found and "--lengths" not in found


def test_a_weight_with_another_shape_is_named(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file, save_file

    file, name = place / "tiny" / "model.safetensors", "model.layers.1.self_attn.q_proj.weight"
    weights = load_file(file)
    weights[name] = weights[name][:16].clone()
    save_file(weights, file, metadata={"format": "pt"})
    found = refused(capfd, "tiny", *SMALL)
    assert f"tiny: {name} has the shape [16, 32] in its safetensors, and [32, 32] by its config.json" in found


@pytest.mark.medium
def test_bad_input(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "no model is named" in refused(capfd)
    assert "--text is missing" in refused(capfd, "tiny")
    assert "--text none.txt cannot be read" in refused(capfd, "tiny", "--text", "none.txt")
    assert "nowhere does not exist" in refused(capfd, "nowhere", *SMALL)
    longest = refused(capfd, "tiny", *SMALL[:2], "--lengths", "1k,32k")
    assert "fewer than the longest length of 32,768; name a longer text, or shorter --lengths" in longest
    assert "is too short for the task keys" in refused(capfd, "tiny", *SMALL[:2], "--lengths", "100", "--tasks", "keys")
    assert "did you mean 'needle'" in refused(capfd, "tiny", *SMALL[:2], "--tasks", "needles")
    assert "there is no encoding 'ropee'" in refused(capfd, "tiny", *SMALL, "--methods", "own,ropee")
    assert "--lengths contains '1g'" in refused(capfd, "tiny", *SMALL[:2], "--lengths", "1g")
    assert "there is no encoding 'yarm'; did you mean 'YaRN'" in refused(
        capfd, "tiny", *SMALL, "--methods", "yarm:factor=4"
    )
    for option, words in {
        "--methods": "name own,yarn",
        "--text": "name a text file",
        "--lengths": "write whole numbers",
    }.items():
        others = [word for at in range(0, len(SMALL), 2) if SMALL[at] != option for word in SMALL[at : at + 2]]
        assert f"{option} is empty; {words}" in refused(capfd, "tiny", *others, option, "")
    assert "lengthwise: --tasks must not be empty" in refused(capfd, "tiny", *SMALL[:-2], "--tasks", "")
    assert "lengthwise: --targets must be a whole number of at least 1" in refused(
        capfd, "tiny", *SMALL, "--targets", "0"
    )
    assert ". has no config.json" in refused(capfd, "", *SMALL)
    assert "--max-minutes must be more than 0" in refused(capfd, "tiny", *SMALL, "--max-minutes", "0")
    assert "measure one model per call" in refused(capfd, "tiny", "tiny", *SMALL)
    assert "no folder" in refused(capfd, "tiny", *SMALL, "--page", "no/page.html")
    assert "no folder" in refused(capfd, "tiny", *SMALL, "--out", "no/reach.jsonl")
    assert "--out must end in .jsonl, got 'reach.json'" in refused(capfd, "tiny", *SMALL, "--out", "reach.json")
    assert not list(place.glob("*.jsonl"))
    (place / "a.jsonl").write_text('{"format": 1}\n')
    assert "is not an answer that lengthwise wrote" in refused(capfd, "a.jsonl")
    assert "is not an answer that lengthwise wrote" in refused(capfd, "tiny", *SMALL, "--out", "a.jsonl")
    assert "--text and --out have no effect" in refused(capfd, "a.jsonl", "--text", "text.txt")
    assert (place / "a.jsonl").read_text() == '{"format": 1}\n'
    assert main(["reach", "tiny", *map(str, SMALL)]) == 0
    misspelt = refused(capfd, "tiny", *SMALL, "--methods", "yarm:factor=4")
    assert "there is no encoding 'yarm'" in misspelt, "before the stored results are compared"
    assert "--examples 2 instead of 3; name another" in refused(
        capfd, "tiny", *SMALL[:4], *SMALL[6:], "--examples", "3"
    )
    Path("tiny/config.json").write_text(Path("tiny/config.json").read_text() + "\n")
    assert "another subject (tiny)" in refused(capfd, "tiny", *SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "not a causal language model"),
        ({"model_type": "vit", "architectures": ["ViTModel"]}, "no causal language model of the type 'vit'"),
        ({"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}}, "auto_map, is never run"),
    ],
)
def test_folders_that_are_refused(
    place: Path, capfd: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    (place / "tiny" / "config.json").write_text(json.dumps(change))
    assert message in refused(capfd, "tiny", *SMALL)


def test_pickled_weights_are_refused(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / "tiny" / "model.safetensors").rename(place / "tiny" / "pytorch_model.bin")
    said = refused(capfd, "tiny", *SMALL)
    assert "a pickle can run code; convert it" in said and "save_pretrained(NEW_FOLDER)" in said


def test_an_untested_version_of_transformers_has_one_warning(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setattr(transformers, "__version__", "6.1.0")
    assert main(["reach", "tiny", *map(str, SMALL)]) == 0
    assert capfd.readouterr().err.count("transformers 6.1.0 is not one of the tested versions, 5.14 to 5.24") == 1


@pytest.mark.slow
def test_a_trained_run(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By its key, and exported: the same scores. A method takes the place of its encoding."""
    settings = [*TINY_RUN, "--train-length", "64", "--lengths", "64"]
    assert main(["compare", "rope", "--text", "text.txt", *settings, "--results", "results"]) == 0
    with open_results("results", create=False) as store:
        (row,) = store.runs()
    words = [*map(str, SMALL), "--methods", "own,rope,pi:factor=4"]
    assert main(["reach", row.key, *words, "--results", "results", "--out", "run.jsonl"]) == 0
    assert main(["export", "model", row.key, "--out", "exported", "--results", "results"]) == 0
    assert main(["reach", "exported", *words]) == 0
    subject = read(Path("run.jsonl")).subject
    assert subject["name"] == f"RoPE {row.key[:8]}" and subject["claimed"] == 64
    scores = {}
    for one, other in zip(rows_of("run.jsonl"), rows_of("exported.reach.jsonl"), strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
        scores[one["method"], one["task"], one["length"]] = one.get("losses")
    assert scores["own", "text", 256] == pytest.approx(scores["rope", "text", 256], rel=1e-6)
    assert scores["own", "text", 256] != scores["pi:factor=4", "text", 256]
    assert "no run" in refused(capfd, "0123456789ab", *SMALL, "--results", "results")


@pytest.mark.medium
def test_a_run_whose_tokens_stand_for_no_text(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = [*TINY_RUN, "--train-length", "8", "--lengths", "8"]
    assert main(["compare", "rope", "--task", "parity", *settings, "--results", "results"]) == 0
    with open_results("results", create=False) as store:
        (row,) = store.runs()
    assert "Missing [UNK] token from the vocabulary); name a model whose tokenizer reads any text" in refused(
        capfd, row.key, *SMALL, "--results", "results"
    )


def test_a_tokenizer_without_tokens_for_the_answers(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise each answer would be the token of unknown words, which every model could copy."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = ["?", *dict.fromkeys(WORDS.split()), "a"]
    words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(known)}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained("tiny")
    assert "no tokens for the names and numbers of the task needle" in refused(capfd, "tiny", *SMALL)
    assert main(["reach", "tiny", *map(str, SMALL[:-1]), "text"]) == 0


@pytest.mark.medium
def test_a_model_with_an_encoding_of_ours(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The folder that save_pretrained wrote after use(); its loss is that of the model in memory."""
    folder_of_ours, tiny = place / "alibi", load_folder("tiny", "cpu", "float32")
    use(tiny.model, "alibi").save_pretrained(folder_of_ours)
    for file in (place / "tiny").glob("*token*"):
        shutil.copy(file, folder_of_ours)
    small = ("--text", "text.txt", "--lengths", "256", "--examples", 2, "--tasks", "text")
    assert main(["reach", "alibi", *map(str, small), "--out", "ours.jsonl"]) == 0
    said = capfd.readouterr().out
    assert "text and needle" not in said, "one of them was not measured"
    assert "LlamaForCausalLM" in said and "ALiBi" in said
    (row,) = rows_of("ours.jsonl")
    assert main(["reach", "tiny", *map(str, small), "--methods", "alibi", "--out", "tiny.jsonl"]) == 0
    (other,) = rows_of("tiny.jsonl")
    assert row["losses"] == pytest.approx(other["losses"], rel=1e-6)
    for name in ("alibi", "tiny"):
        assert main(["reach", name, *map(str, small), "--methods", "nope", "--out", f"{name}-nope.jsonl"]) == 0
    one, two = (rows_of(f"{name}-nope.jsonl")[0]["losses"] for name in ("alibi", "tiny"))
    assert one == pytest.approx(two, rel=1e-6) and one != pytest.approx(row["losses"], rel=1e-6)


def test_the_page_never_replaces_the_results(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = (*SMALL, "--out", "a.jsonl")
    assert "--page and --out are the same file, a.jsonl" in refused(capfd, "tiny", *small, "--page", "./a.jsonl")
    assert not Path("a.jsonl").exists()


def test_a_model_without_attention(place: Path) -> None:
    folder(place / "mamba", "mamba")
    assert main(["reach", "mamba", *map(str, SMALL[:-1]), "text"]) == 0
    assert read(Path("mamba.reach.jsonl")).subject["encoding"] == "unknown"
