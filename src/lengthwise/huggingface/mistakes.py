"""Known mistakes in the position settings of a model folder, which transformers accepts without an error.

A check is a function that takes a `Case` and yields `Finding`s. A new check is one function and one line in `CHECKS`.
The docstring of a check says why its findings are mistakes. What transformers computes correctly is never one.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from lengthwise.evaluation.pretrained.rope_values import KEYS as ROPE_KEYS
from lengthwise.huggingface.angles import GAIN_TOLERANCE, Comparison, NotCompared
from lengthwise.huggingface.cases import MOVABLE, Case, Finding, Texts, is_number, is_theta, join_values, with_rope_type
from lengthwise.huggingface.description import ignores_bias_max, usual_scale
from lengthwise.huggingface.names import contradicting_keys, lost_theta, misspelt_names, unread_settings
from lengthwise.huggingface.observation import attention_layers
from lengthwise.huggingface.own_encoding import train_length_of
from lengthwise.huggingface.without_effect import (
    degenerate_rotation,
    failing_layers,
    ignored_keys,
    ignored_soft_cap,
    ignored_window,
    length_beyond_wavelengths,
    misspelt_rope_type,
    required_keys,
    tokenizer_length,
    unknown_rotation,
)

DEFAULT_THETA = 10_000.0
SCALED = ("yarn", "longrope", "llama3")  # rope types that need the length before scaling
LONG = 8192  # tokens; few models for longer sequences have a theta of 10,000, and those write it
FAR = 1.2  # times an attention factor; published ones differ by up to 1.05 from the formula


def factor_and_lengths(case: Case) -> Texts:
    """The factor of YaRN, LongRoPE and linear scaling is the ratio of the length after and before scaling.

    With a smaller one, the last positions reach angles that no model was trained with; a larger one compresses
    positions more than intended. transformers computes with the factor, and at most logs a warning. Published settings
    leave max_position_embeddings at (about) the length before scaling (Qwen 2.5, Qwen 3), which is a note. Llama 3's
    factor is not such a ratio (8 for 16 times the length), and that of dynamic scaling is no target.
    """
    length = getattr(case.folder.config, "max_position_embeddings", None)
    written = [case.folder.settings, *(entry for _, entry in case.folder.rope_entries())]
    if all(entry.get("original_max_position_embeddings") is None for entry in written):
        return
    for name, entry in case.folder.used_entries():
        kind, factor = entry.get("rope_type"), entry.get("factor")
        original = entry.get("original_max_position_embeddings")
        if kind not in (*SCALED, "linear") or not is_number(original) or not is_number(length):
            continue
        where = f"{name}: " if name else ""
        if original > length or (kind == "llama3" and original == length):
            yield (
                f"{where}original_max_position_embeddings = {original:,} must be less than max_position_embeddings = "
                f"{length:,} with rope_type {kind}; it is the length before scaling"
            )
        elif kind != "llama3" and is_number(factor) and not math.isclose(factor * original, length, rel_tol=0.01):
            text = (
                f"{where}factor {factor:g} · original_max_position_embeddings {original:,} = {factor * original:,.0f}, "
                f"but max_position_embeddings = {length:,}, which is a factor of {length / original:.4g}"
            )
            if factor * original > length and length < 2 * original:
                yield f"{text}; the length before scaling seems to have been left there", False
            else:
                yield f"{text}; transformers computes with {factor:g}; correct the one that is wrong"


def scaling_without_effect(case: Case) -> Texts:
    """The settings of a scaling are there, and change nothing or the wrong side.

    Without a factor, YaRN and LongRoPE divide the length after scaling by the one before it, which gives 1 if both are
    the same. LongRoPE's factors for short texts divide frequencies less than those for long texts.
    """
    for name, entry in case.folder.used_entries():
        kind, where = entry.get("rope_type"), f"{name}: " if name else ""
        factor, original = entry.get("factor"), entry.get("original_max_position_embeddings")
        short, long = entry.get("short_factor"), entry.get("long_factor")
        has_ratio = kind == "yarn" or (kind == "longrope" and short != long)  # they are the same in MiniCPM3
        if has_ratio and factor is None and original is not None and original == case.folder.length:
            yield (
                f"{where}{kind} scales nothing, because it has no factor, and the lengths before and after scaling are "
                f"both {original:,}; write the factor, or correct one length"
            )
        elif factor == 1 and kind != "longrope":
            yield f"{where}{kind} with factor 1 scales nothing", False
        if kind == "longrope" and short and long and sum(short) > sum(long):
            are_small = min(long) < 1 <= min(short)
            reason = (
                "long_factor has values below 1, which shorten wavelengths" if are_small else "they seem to be swapped"
            )
            yield f"{where}short_factor is more than long_factor in the mean; {reason}"


def missing_theta(case: Case) -> Texts:
    """Without rope_theta, transformers takes its class's default, mostly 10,000, and says nothing.

    Only the first models with RoPE (Llama 1 and 2, early Falcon) have no rope_theta and mean 10,000. Before 4.33
    transformers had no such setting, and models with code of their own may have none (MiniCPM3), so theirs is 10,000 at
    any length (Yarn-Llama-2-64k). Since 4.34 transformers writes rope_theta, and 5 writes it into rope_parameters, so a
    file of theirs without it has lost it, and so has a model for long sequences. A theta under a name that the class
    does not read is lost as well. (MarinFold#184: 10,000 for 500,000 cost 0.77 nats per token.)
    """
    if not case.rotates:
        return
    settings, config = case.folder.settings, case.folder.config
    if "rope_theta" in misspelt_names(case).values() or lost_theta(case):
        return
    thetas = [entry.get("rope_theta") for _, entry in case.folder.used_entries()]
    unread = [(k, v) for k, v in settings.items() if isinstance(v, Mapping) and k not in ROPE_KEYS]
    written = [
        (f"{k}{name and ' in '}{name}", v)
        for name, e in [("", settings), *unread, *case.folder.rope_entries()]
        for k, v in e.items()
        if is_theta(k, v)
    ]
    class_name = type(config).__name__
    if written:
        if thetas and not any(value in thetas for _, value in written):
            key, value = written[0]
            used = join_values(thetas)
            yield f"{key} = {value:g} is not read by {class_name}, which computes with {used}; write it as rope_theta"
        return
    default = getattr(type(config), "default_theta", DEFAULT_THETA)
    if default != DEFAULT_THETA or set(thetas) != {DEFAULT_THETA}:
        return
    version = re.match(
        r"(\d+)\.(\d+)", str(settings.get("transformers_version") or case.folder.whole.get("transformers_version"))
    )
    saved_by = (int(version[1]), int(version[2])) if version is not None else (4, 33)
    is_without = saved_by < (4, 33) or bool(case.folder.whole.get("auto_map"))
    is_scaled = any(entry.get("rope_type") in SCALED for _, entry in case.folder.used_entries())
    text = f"there is no rope_theta, so transformers computes with {DEFAULT_THETA:,.0f}"
    is_long = is_scaled or (case.folder.length or 0) > LONG
    if settings.get("rope_parameters") or (not is_without and (saved_by >= (4, 34) or is_long)):
        yield f"{text}, which is rarely what such a model was trained with; write the theta of its training"
    else:
        yield f"{text}, as the first models with RoPE do", False


def missing_rope_type(case: Case) -> Texts:
    """Settings of a scaling without its rope_type: transformers computes plain RoPE, as if they were not there."""
    for name, entry in case.folder.rope_entries():
        kind = entry.get("rope_type", entry.get("type"))
        scaling = [k for k, v in entry.items() if k in ("factor", *MOVABLE) and v not in (None, 1, [])]
        if kind in (None, "default") and scaling and not misspelt_rope_type(entry):
            says = "has no rope_type" if kind is None else "has rope_type 'default'"
            yield f"{name} {says}, so transformers ignores its {', '.join(scaling)}; write the rope_type"


def missing_original_length(case: Case) -> Texts:
    """YaRN, LongRoPE and Llama 3 need the length before scaling. If it is missing, transformers takes
    max_position_embeddings.

    That is the length after scaling in most files. Then the wrong frequencies are scaled, and LongRoPE's attention
    factor is 1. Classes such as Phi3Config have a default of their own, which is not judged.
    """
    key = "original_max_position_embeddings"
    if key in case.folder.settings or hasattr(type(case.folder.config), key):
        return
    for name, entry in case.folder.rope_entries():
        kind = with_rope_type(entry)["rope_type"]
        if kind in SCALED and entry.get(key) is None:
            yield (
                f"{name} has rope_type {kind!r} without {key}, so transformers takes max_position_embeddings = "
                f"{case.folder.length or 0:,} as the length before scaling; write it explicitly"
            )


def missing_attention_factor(case: Case) -> Texts:
    """YaRN and LongRoPE multiply logits by the square of an attention factor, because there are more keys.

    transformers reads mscale only together with mscale_all_dim. With both, the factor moves into the softmax scale, as
    in DeepSeek's attention; other classes do not apply it there. (Ministral's mscales are followed by a temperature of
    their own.) Rope types without an attention factor ignore one, and only Phi-MoE reads long_mscale.
    """
    module = next(iter(attention_layers(case.folder.model)), None)
    for name, entry in case.folder.used_entries():
        kind, where = entry.get("rope_type"), f"{name}: " if name else ""
        attention_factor, scales = entry.get("attention_factor"), (entry.get("mscale"), entry.get("mscale_all_dim"))
        factor = entry.get("factor")
        if kind not in ("yarn", "longrope"):
            if attention_factor not in (None, 1) and kind != "default":
                yield (
                    f"{where}rope_type {kind!r} ignores attention_factor = {attention_factor}; remove it, or use 'yarn'"
                )
            continue
        if (
            entry.get("long_mscale") is not None
            and attention_factor is None
            and case.folder.config.model_type != "phimoe"
        ):
            yield f"{where}long_mscale is read for Phi-MoE only; write it as attention_factor"
        length, original = case.folder.length, train_length_of(case.folder.config)
        if kind == "longrope" and attention_factor is not None and length is not None and original > 1:
            ratio = float(factor) if is_number(factor) else length / original
            yield from _unusual_factor(
                where, attention_factor, math.sqrt(1 + math.log(max(ratio, 1)) / math.log(original))
            )
        if kind != "yarn" or not is_number(factor) or factor <= 1:
            continue
        usual = 0.1 * math.log(factor) + 1
        if attention_factor is not None:
            yield from _unusual_factor(where, attention_factor, usual)
        elif bool(scales[0]) != bool(scales[1]) and scales not in ((1, None), (1, 0)):
            key = "mscale" if scales[0] else "mscale_all_dim"
            yield (
                f"{where}transformers ignores {key} without the other one, and computes with the factor {usual:.4g}; "
                "write attention_factor"
            )
        elif all(scales) and module is not None and not entry.get("llama_4_scaling_beta") and not required_keys(case):
            scale = next((group.softmax_scale for group in case.groups if group.softmax_scale is not None), None)
            if scale is not None and math.isclose(scale, usual_scale(case.folder.config, module), rel_tol=1e-6):
                yield (
                    f"{where}mscale and mscale_all_dim move the attention factor into the softmax scale, which "
                    f"{type(module).__name__} does not multiply by it; remove both, or give attention_factor = "
                    f"{usual:.4g}"
                )


def _unusual_factor(where: str, attention_factor: Any, usual: float) -> Texts:
    """Yield an attention factor that the formula does not give; it is a problem if it is far from 1 and from that."""
    if not is_number(attention_factor) or math.isclose(attention_factor, usual, rel_tol=0.01):
        return
    text = f"{where}attention_factor = {attention_factor:g}, where the formula gives {usual:.4g}"
    if 1 / FAR <= attention_factor <= FAR * usual:
        yield text, False
    else:
        yield f"{text}, so that logits are {(attention_factor / usual) ** 2:.3g} times as large; correct or remove it"


def scaling_with_cache(case: Case) -> Texts:
    """Dynamic NTK changes the angles of all tokens with the length, but cached keys stay rotated by the old ones.

    So decoding differs from reading the same text at once, from max_position_embeddings on. LongRoPE changes them once,
    at the length before scaling; Phi-3's classes compute the cache again there, and others do not.
    """
    if not case.folder.uses_cache:
        return
    generation = getattr(type(case.folder.model), "prepare_inputs_for_generation", None)
    code = getattr(inspect.unwrap(generation), "__code__", None) if generation else None
    recomputes = code is not None and "original_max_position_embeddings" in (*code.co_names, *code.co_consts)
    for name, entry in case.folder.used_entries():
        kind, where = str(entry.get("rope_type")), f"{name}: " if name else ""
        if "dynamic" in kind:
            yield (
                f"{where}{kind} scaling leaves cached keys rotated by the angles of earlier lengths, beyond "
                f"{case.folder.config.max_position_embeddings:,} tokens; set use_cache to false, or use a scaling that "
                "does not change with the length, such as YaRN"
            )
        elif kind == "longrope" and not recomputes and entry.get("short_factor") != entry.get("long_factor"):
            yield (
                f"{where}longrope changes all angles after {entry.get('original_max_position_embeddings', 0):,} "
                f"tokens, and {type(case.folder.model).__name__} keeps the keys that were cached before; set use_cache "
                "to false"
            )


def ignored_slopes(case: Case) -> Texts:
    """MPT's class in transformers takes 8 for `alibi_bias_max`, whatever the settings say."""
    attention = case.folder.settings.get("attn_config")
    if not isinstance(attention, Mapping) or not attention.get("alibi", True) or not ignores_bias_max(case.folder):
        return
    if (largest := attention.get("alibi_bias_max", 8)) != 8:
        yield (
            f"attn_config.alibi_bias_max = {largest} has no effect: transformers computes with 8; the slopes are others"
        )


def window_without_size(case: Case) -> Texts:
    """Layers that `layer_types` calls sliding see everything if there is no window."""
    for group in case.groups:
        if (
            group.kind in ("sliding_attention", "chunked_attention")
            and group.window is None
            and group.encoding is not None
        ):
            key = "sliding_window" if group.kind == "sliding_attention" else "attention_chunk_size"
            is_off = key == "sliding_window" and getattr(case.folder.config, "use_sliding_window", None) is False
            reason = "use_sliding_window is false; set it to true" if is_off else f"{key} is null; set it"
            yield f"{len(group.layers)} layers are {group.kind} in layer_types, but {reason}"


def different_angles(case: Case) -> Texts:
    """The angles or the attention factor that transformers computes are not those of the formula for these settings.

    Float32's rounding is allowed (`angles.RELATIVE`), so the frequencies themselves are others.
    """
    for comparison in case.comparisons:
        if isinstance(comparison, NotCompared):
            text = f"{comparison.encoding}: {comparison.reason}"
            yield (
                f"{text}; a setting has no effect" if comparison.is_problem else f"{text}; angles were not compared",
                comparison.is_problem,
            )
        elif comparison.dtype == "float32" and not comparison.agrees:
            what = f"off by {comparison.error:.3g} {comparison.unit} at position {comparison.position:,}"
            if not math.isclose(comparison.gain, comparison.our_gain, rel_tol=GAIN_TOLERANCE):
                what += f", attention factor {comparison.gain:.6g} instead of {comparison.our_gain:.6g}"
            yield f"{comparison.encoding}: transformers computes something else than these settings mean ({what})"


def rounded_frequencies(case: Case) -> Texts:
    """In float16 or bfloat16, the model's class rounds its frequencies: errors grow with the position.

    BLOOM rounds its biases, but was trained so, which is a note.
    """
    comparisons = [comparison for comparison in case.comparisons if isinstance(comparison, Comparison)]
    agree = {
        (comparison.encoding, comparison.length)
        for comparison in comparisons
        if comparison.dtype == "float32" and comparison.agrees
    }
    for comparison in comparisons:
        if comparison.dtype == "float32" or comparison.agrees or (comparison.encoding, comparison.length) not in agree:
            continue
        what = f"off by up to {comparison.error:.3g} {comparison.unit} (position {comparison.position:,})"
        if comparison.unit == "radians":
            yield (
                f"{comparison.encoding}: in {comparison.dtype}, frequencies are rounded, and angles are {what}; keep "
                "inv_freq in float32"
            )
        else:
            yield f"{comparison.encoding}: in {comparison.dtype}, biases are rounded, and {what}", False


CHECKS: tuple[Callable[[Case], Texts], ...] = (
    factor_and_lengths,
    scaling_without_effect,
    contradicting_keys,
    missing_theta,
    missing_rope_type,
    missing_original_length,
    ignored_keys,
    unread_settings,
    ignored_window,
    ignored_soft_cap,
    missing_attention_factor,
    scaling_with_cache,
    ignored_slopes,
    window_without_size,
    failing_layers,
    unknown_rotation,
    degenerate_rotation,
    length_beyond_wavelengths,
    tokenizer_length,
    different_angles,
    rounded_frequencies,
)


def findings(case: Case) -> list[Finding]:
    """Return what all checks find."""
    findings = []
    for check in CHECKS:
        for item in check(case):
            text, is_problem = item if isinstance(item, tuple) else (item, True)
            findings.append(Finding(check.__name__.replace("_", "-"), text, is_problem))
    return findings
