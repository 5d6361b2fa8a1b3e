"""Long texts in chunks: the same losses and answers as one forward pass, with methods and without."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import ENCODINGS, ALiBi, NoPE, RoPE
from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, use
from lengthwise.huggingface.replacement import encoding_of
from lengthwise.reach import model as reach_model
from lengthwise.reach.methods import applied, choice_of
from lengthwise.reach.model import PreallocatedLayer, Reader, position_limit
from tests.huggingface.models import COMMON, FAMILIES, model_of

LENGTH = 61  # the models of transformers with tables have 64 positions


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_model, "CHUNK", 13)
    monkeypatch.setattr(reach_model, "SMALLEST_CHUNK", 5)
    monkeypatch.setattr(reach_model, "SMALLEST_ROWS", 4)
    monkeypatch.setattr(reach_model, "LOGITS", 1)


def tokens(length: int = LENGTH) -> list[int]:
    return torch.randint(2, 60, (length,), generator=torch.Generator().manual_seed(1)).tolist()


def ours(encoding: Any) -> Any:
    torch.manual_seed(0)
    config = ModelConfig(d_model=32, num_layers=2, num_heads=2)
    return LengthwiseForCausalLM(LengthwiseConfig.of(config, encoding, 32, 61)).eval()


@torch.no_grad()
def plain_losses(model: Any, ids: list[int]) -> torch.Tensor:
    x = torch.tensor([ids])
    return F.cross_entropy(model(x[:, :-1], use_cache=False).logits[0], x[0, 1:], reduction="none").double()


def require_same(model: Any) -> None:
    reader, ids = Reader(model), tokens()
    rows = reader.sampled_rows(LENGTH - 1, 10)
    assert set(range(LENGTH - 11, LENGTH - 1)) <= set(rows) and len(rows) >= 14
    torch.testing.assert_close(reader.losses(ids, rows), plain_losses(model, ids)[rows], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(reader.losses(ids, range(LENGTH - 1)), plain_losses(model, ids), rtol=1e-4, atol=1e-5)


def test_losses_of_a_large_vocabulary_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, the sum over 2^17 logits of very different size is biased by 10^-5 nats."""
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(64, 2**17, generator=generator)
    ids = torch.randint(2**17, (65,), generator=generator)
    monkeypatch.setattr(Reader, "_logits", lambda *_: iter([(torch.arange(64), logits)]))
    found = Reader(model_of("llama")).losses(ids.tolist(), range(64))
    exact = logits.double().logsumexp(-1) - logits.double().gather(1, ids[1:, None])[:, 0]
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_one_forward_pass(family: str) -> None:
    require_same(model_of(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_of_a_model_as_it_is(family: str) -> None:
    """Heads that share keys are computed by groups, and the model's own attention is restored."""
    model = model_of(family)
    before = model.config._attn_implementation
    with applied(model, "own") as same:
        assert same.config._attn_implementation == ("eager" if before == "eager" else "lengthwise_grouped")
        require_same(same)
    assert model.config._attn_implementation == before


def test_grouped_attention_copies_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.integrations import sdpa_attention

    def repeat(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(sdpa_attention, "repeat_kv", repeat)
    model = model_of("llama")
    with applied(model, "own") as same:
        Reader(same).losses(tokens(), [50])
    with pytest.raises(AssertionError):
        Reader(model).losses(tokens(), [50])


@pytest.mark.parametrize("encoding", ["rope", "fire", "t5", "dynamic-ntk:factor=2", "fox", "longrope"])
def test_losses_with_other_encodings(encoding: str) -> None:
    with applied(model_of("llama"), encoding) as model:
        assert encoding_of(model) is not None
        require_same(model)


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_rotations_of_transformers_that_depend_on_the_length_are_computed_at_once(rope: str) -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if rope == "longrope" else {}
    parameters = {
        "rope_type": rope,
        "rope_theta": 500.0,
        "factor": 2.0,
        "original_max_position_embeddings": 16,
        **factors,
    }
    model = model_of("llama", rope_parameters=parameters, max_position_embeddings=32)
    assert not Reader(model).in_chunks
    require_same(model)


@pytest.mark.parametrize("encoding", ["rope", "alibi", "fox", "dynamic-ntk:factor=2", "rope+nope"])
def test_losses_of_our_models(encoding: str) -> None:
    require_same(ours(ENCODINGS.parse(encoding)))


def test_losses_of_our_mamba() -> None:
    torch.manual_seed(0)
    config = LengthwiseConfig.of(ModelConfig.mamba(d_model=16, num_layers=2), choose(NoPE), 32, 61)
    require_same(LengthwiseForCausalLM(config).eval())


RECURRENT: dict[str, dict[str, Any]] = {
    "mamba": {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4},
    "jamba": {
        "num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2,
        "use_mamba_kernels": False, "mamba_d_state": 4,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_model_with_recurrent_states_is_computed_at_once(kind: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**COMMON, **RECURRENT[kind]})).eval()
    require_same(model)
    assert not Reader(model).in_chunks


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt_neox"])
def test_an_answer_is_correct_if_greedy_decoding_gives_it(family: str) -> None:
    model, ids = model_of(family), tokens(40)
    decoded = model.generate(torch.tensor([ids]), max_new_tokens=9, do_sample=False, eos_token_id=None)[0].tolist()
    reader = Reader(model)
    assert reader.answers_correctly(decoded, 9)
    assert reader.answers_correctly(decoded, 1)
    for wrong in (-1, -5, -9):
        other = list(decoded)
        other[wrong] = (other[wrong] + 1) % 61
        assert not reader.answers_correctly(other, 9)


def test_memory_is_bounded() -> None:
    """No forward pass has more tokens or logits than it may, and the cache has room for the text and no more."""
    model, sizes, kept = model_of("llama"), [], []
    original = model.forward

    def forward(input_ids: Any, logits_to_keep: Any, **options: Any) -> Any:
        found = original(input_ids, logits_to_keep=logits_to_keep, **options)
        sizes.append(input_ids.shape[1])
        kept.append(found.logits.shape[1])
        return found

    reader = Reader(model)
    model.forward = forward
    reader.losses(tokens(), reader.sampled_rows(LENGTH - 1, 20))
    assert sum(sizes) == LENGTH - 1
    assert max(sizes) == 13 and max(kept) == reader.max_rows == 4
    heads, head_dim, layers = 2, 8, 3
    assert reader.cache_bytes == 2 * 4 * layers * heads * head_dim * (LENGTH - 1)


def test_chunks_are_shorter_in_longer_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    reader = Reader(model_of("llama"))
    assert [reader.chunk(n) for n in (100, 2**13, 2**14, 2**17, 2**22)] == [512, 512, 256, 32, 32]


def test_a_layer_of_the_cache_is_that_of_transformers() -> None:
    layer = PreallocatedLayer(7)
    parts = [torch.randn(1, 2, n, 3) for n in (3, 1, 3)]
    for n, part in enumerate(parts):
        keys, values = layer.update(part, -part)
        torch.testing.assert_close(keys, torch.cat(parts[: n + 1], 2))
        torch.testing.assert_close(values, -keys)
        assert layer.get_seq_length() == keys.shape[2]
    assert layer.bytes == 2 * 4 * 2 * 7 * 3


# ---- methods ------------------------------------------------------------------------------------------------------


def test_a_scaled_rotation_has_the_base_and_the_layout_of_the_model() -> None:
    own = choose(RoPE, base=5e5, layout="half")
    assert choice_of("rope", own) == own
    assert choice_of("yarn:factor=4", own).label == "YaRN(base=500000.0, layout=half, factor=4.0)"
    assert dict(choice_of("pi:factor=4,base=100", own).settings)["base"] == 100.0
    assert choice_of("alibi", own) == choose(ALiBi)
    pattern = choice_of("pi:factor=4", choice_of("rope:base=50,layout=half*2+nope", None))
    assert [layer.name for layer in pattern.layers] == ["PI", "PI", "NoPE"]
    assert choice_of("rope+nope", own).label == "RoPE(base=500000.0, layout=half)+NoPE"


def test_own_rotations_are_those_of_transformers() -> None:
    model = model_of("llama")
    expected = plain_losses(model, tokens())
    with applied(model, "rope") as replaced:
        torch.testing.assert_close(plain_losses(replaced, tokens()), expected, rtol=1e-4, atol=1e-5)
    with applied(model, "pi:factor=4") as replaced:
        assert (plain_losses(replaced, tokens()) - expected).abs().max() > 1e-3
    assert torch.equal(plain_losses(model, tokens()), expected)


def test_encodings_with_parameters_are_drawn_with_the_seed() -> None:
    def losses(seed: int) -> torch.Tensor:
        with applied(model_of("llama"), "fire", seed) as model:
            return plain_losses(model, tokens())

    assert torch.equal(losses(0), losses(0))
    assert not torch.equal(losses(0), losses(1))


def test_methods_of_our_models() -> None:
    model = ours(choose(RoPE))
    with applied(model, "rope") as same:
        torch.testing.assert_close(plain_losses(same, tokens()), plain_losses(model, tokens()))
    with applied(model, "nope") as other:
        assert not torch.allclose(plain_losses(other, tokens()), plain_losses(model, tokens()), atol=1e-3)
        assert other.model.lm_head.weight.data_ptr() == model.model.lm_head.weight.data_ptr()
    with pytest.raises(ConfigError, match="FIRE has other parameters"), applied(model, "fire"):
        pass


def test_methods_that_a_model_cannot_have() -> None:
    with pytest.raises(ConfigError, match="there is no encoding 'ropee'"), applied(model_of("llama"), "ropee"):
        pass
    replaced = use(model_of("llama"), "nope")
    with (
        pytest.raises(ConfigError, match="no positions in any layer, so RoPE would change nothing"),
        applied(replaced, "rope"),
    ):
        pass


@torch.no_grad()
def test_a_model_with_an_encoding_of_ours_gets_another_one_for_a_while() -> None:
    model, x = use(model_of("llama").bfloat16(), "fire"), torch.arange(2, 22)[None]
    for parameter in model.model.position_encodings.parameters():
        parameter.normal_(generator=torch.Generator().manual_seed(2))
    before = model(x).logits
    with applied(model, "alibi"):
        assert torch.equal(model(x).logits, use(model_of("llama").bfloat16(), "alibi")(x).logits)
    assert torch.equal(model(x).logits, before)


def test_position_limits() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=16, n_head=2, n_layer=1, n_positions=32))
    assert position_limit(gpt2, 32) == 32
    with applied(gpt2, "alibi") as model:
        assert position_limit(model, 32) is None
    assert position_limit(model_of("llama"), 64) is None
    assert position_limit(ours(choose(RoPE)), 32) is None
