"""Our models as models of transformers: `LengthwiseForCausalLM`, its configuration and its cache."""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, Cache, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from lengthwise.attention.cache import KVCache
from lengthwise.config import Choice, ConfigError, ModelConfig
from lengthwise.encodings.base import PositionEncoding
from lengthwise.huggingface.embedded_positions import current_module
from lengthwise.huggingface.saved import auto_map_of, saved_choice, write_module
from lengthwise.models import Decoder, MixerModel
from lengthwise.models.mixers import MixerCache
from lengthwise.transformers_versions import own_cache_name


class LengthwiseConfig(PreTrainedConfig):
    """The configuration of an exported run.

    `architecture`: a `ModelConfig` as plain data. `encoding`: the choice of the encoding as plain data. `train_length`:
    the training length in tokens, which some encodings need. It is also `max_position_embeddings`, the length that
    other tools take as the limit of a model: a longer text is computed without an error, unless the encoding has a
    maximal length.
    """

    model_type = "lengthwise"

    architecture: dict[str, Any] | None = None
    encoding: dict[str, Any] | None = None
    train_length: int = 0
    vocab_size: int = 0
    hidden_size: int = 0
    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    max_position_embeddings: int = 0
    tie_word_embeddings: bool = False
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    @classmethod
    def of(cls, model: ModelConfig, encoding: Choice, train_length: int, vocab_size: int) -> "LengthwiseConfig":
        return cls(
            architecture=model.to_data(),
            encoding=encoding.to_data(),
            train_length=train_length,
            vocab_size=vocab_size,
            hidden_size=model.d_model,
            num_hidden_layers=model.num_layers,
            num_attention_heads=model.num_heads,
            max_position_embeddings=train_length,
            tie_word_embeddings=model.tie_embeddings,
            auto_map=auto_map_of(AutoConfig=cls.__name__, AutoModelForCausalLM="LengthwiseForCausalLM"),
        )


class LengthwiseCache(Cache):
    """The cache of our model for `generate`: keys, values and what content-dependent encodings need."""

    def __init__(self, model_cache: KVCache | MixerCache):
        super().__init__(layers=[])
        self.model_cache = model_cache

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.model_cache.length

    def batch_select_indices(self, indices: Tensor) -> None:
        self.model_cache.select_rows(indices)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.model_cache.select_rows(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.model_cache.select_rows(torch.arange(self.model_cache.rows).repeat_interleave(repeats))

    def crop(self, max_length: int) -> None:
        raise ConfigError("the cache of a model of lengthwise cannot be shortened; generate without an assistant model")

    def reset(self) -> None:
        raise ConfigError("the cache of a model of lengthwise cannot be emptied; create a new one")


class AdaptableDecoder(Decoder):
    """A decoder whose encodings peft may have wrapped, to train copies of them."""

    def encoding_modules(self) -> list[PositionEncoding]:
        return [current_module(module) for module in self.encodings]


class LengthwiseForCausalLM(PreTrainedModel, GenerationMixin):
    """A `Decoder` or a `MixerModel` with the interface of transformers.

    `attention_mask` [b, t]: 0 for padding, on either side. `position_ids` [b|1, t]: positions that begin anew mark
    packed documents, if there is neither a mask nor a cache. Without position IDs, each row counts its tokens from 0,
    without padding.
    """

    config_class = LengthwiseConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True  # our model chooses its own backend and ignores this setting

    def __init__(self, config: LengthwiseConfig):
        super().__init__(config)
        architecture = ModelConfig.from_data(config.architecture or {})
        sizes: dict[str, Any] = dict.fromkeys(("vocab_size", "output_size"), config.vocab_size)
        make = AdaptableDecoder if architecture.mixer is None else MixerModel
        self.model: Decoder | MixerModel = make(
            architecture, saved_choice(config.encoding), **sizes, train_length=config.train_length
        )
        if architecture.tie_embeddings:
            self._tied_weights_keys = {"model.lm_head.weight": "model.token_embedding.weight"}
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """Leave the weights as they are: our models draw their own."""

    def get_input_embeddings(self) -> Any:
        return self.model.token_embedding

    def get_output_embeddings(self) -> Any:
        return self.model.lm_head

    def set_input_embeddings(self, value: Any) -> None:
        self.model.token_embedding = value

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.model.lm_head = new_embeddings

    def _set_gradient_checkpointing(self, enable: bool = True, **_: Any) -> None:
        self.model.recompute = enable

    @property
    def is_activation_checkpointing(self) -> bool:
        return self.model.recompute

    is_gradient_checkpointing = is_activation_checkpointing  # its name in older versions of transformers

    def save_pretrained(self, save_directory: Any, *arguments: Any, **options: Any) -> None:
        if options.get("is_main_process", True):
            write_module(save_directory, self.config.auto_map)
        super().save_pretrained(save_directory, *arguments, **options)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: LengthwiseCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        cache: LengthwiseCache | None = None,
        **options: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits [b, t, vocab_size], and the loss if there are `labels` [b, t], which are shifted here.

        `cache`: what an earlier output has under the same name. Both names of it work in every version of transformers:
        `past_key_values`, and `cache` as from 5.24 on.
        """
        cache = past_key_values if cache is None else cache
        if cache is not None and not isinstance(cache, LengthwiseCache):
            raise ConfigError(
                f"a model of lengthwise has a cache of its own, got a {type(cache).__name__}; omit {own_cache_name()}"
            )
        if input_ids is None:
            raise ConfigError("a model of lengthwise needs input_ids; it takes no inputs_embeds")
        for name in ("output_attentions", "output_hidden_states"):
            if options.get(name):
                raise ConfigError(f"a model of lengthwise returns logits only; omit {name}")
        use_cache = self.config.use_cache and not self.training if use_cache is None else use_cache
        if use_cache and cache is None:
            cache = LengthwiseCache(self.model.new_cache())
        model_cache = None if cache is None else cache.model_cache
        positions, documents = self._places(input_ids, attention_mask, position_ids, model_cache)
        logits = self.model(input_ids, positions=positions, documents=documents, cache=model_cache)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **options)
        slice_indices = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return CausalLMOutputWithPast(loss=loss, logits=logits[:, slice_indices], **{own_cache_name(): cache})

    def _places(
        self, input_ids: Tensor, mask: Tensor | None, position_ids: Tensor | None, cache: KVCache | MixerCache | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the positions and documents of the tokens. None: the tokens are counted, all in one document."""
        past, tokens = 0 if cache is None else cache.length, input_ids.shape[1]
        documents = None
        if mask is not None:
            if mask.ndim != 2 or mask.shape[1] != past + tokens:
                raise ConfigError(
                    f"attention_mask must have the shape [{len(input_ids)}, {past + tokens}] (rows, all tokens so "
                    f"far), got {list(mask.shape)}"
                )
            if (cache is not None and cache.documents is not None) or not bool(mask.all()):
                documents = torch.where(mask[:, -tokens:].bool(), 0, -1)
        elif cache is not None and cache.documents is not None:
            documents = torch.zeros_like(input_ids)
        takes_positions = isinstance(self.model, Decoder) or self.model.encoding.acts_on_embedding()
        if position_ids is None or not takes_positions:
            return None, documents
        if mask is not None:
            shown = mask[:, past:].bool()  # positions of padding have no meaning
            if bool((shown[:, 1:] & shown[:, :-1] & (position_ids.diff(dim=1) < 1)).any()):
                raise ConfigError(
                    "position_ids that begin anew mark packed documents, which need no attention_mask; omit one of them"
                )
        counted = torch.arange(past, past + tokens, device=position_ids.device)[None]
        if documents is not None:
            assert mask is not None or cache is not None
            shown = torch.ones_like(input_ids) if mask is None else mask
            counted = (shown.long().cumsum(1) - 1).clamp(min=0)[:, -tokens:]
            same = (counted == position_ids) | (documents < 0)
            return (None if bool(same.all()) else position_ids), documents
        if bool((position_ids == counted).all()):
            return None, None
        begins = position_ids.diff(dim=1, prepend=position_ids[:, :1] - 1) != 1
        if mask is None and not past and bool(begins.any()):
            documents = begins.long().cumsum(1)
        return position_ids, documents

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: dict[str, Any], *_: Any) -> None:
        """Make our cache in place of transformers' own."""
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ConfigError(
                f"a model of lengthwise has a cache of its own, got cache_implementation="
                f"{generation_config.cache_implementation!r}; omit it"
            )
        if generation_config.use_cache is not False and model_kwargs.get(own_cache_name()) is None:
            model_kwargs[own_cache_name()] = LengthwiseCache(self.model.new_cache())


def register() -> None:
    """Make the classes known to transformers, which then finds them without `trust_remote_code`."""
    AutoConfig.register(LengthwiseConfig.model_type, LengthwiseConfig)
    AutoModelForCausalLM.register(LengthwiseConfig, LengthwiseForCausalLM)
