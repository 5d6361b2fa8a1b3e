"""Settings shared by the studies of this folder: encodings, models, training and lengths at both scales.

Source: "How Do Position Encodings Affect Length Generalization?" (thesis; in-context function learning), after Garg et
al. 2022 and Bhattamishra et al. 2023. Details that its text omits are taken from its public code (one Llama-like
transformer for all, trained on prompts of 50 examples, evaluated on up to 400), with a comment where this is the case.
"""

from lengthwise.config import Curriculum, EvaluationConfig, ModelConfig, TrainingConfig

# Rotary methods with a factor use it from the first training step: 8, the ratio of 400 to 50 examples. Their dynamic
# NTK is that of Hugging Face's transformers, whose ratio at 8 times the length is 57. Their "dynamic YaRN" starts at 8
# times the training length, 400 examples, so it was plain RoPE at every length they evaluated. Ours starts beyond the
# training length, as YaRN's authors describe it.
FACTOR = 8
ENCODINGS = (
    "nope",
    "rope",
    f"pi:factor={FACTOR}",
    f"dynamicntk:factor={FACTOR}",
    f"yarn:factor={FACTOR}",
    "dynamicyarn",
    "alibi",
    "fire",
)

REGRESSION = ("linearregression", "sparselinearregression")
# As in the source, functions without any literal or weight, which are constant, are not drawn again.
BOOLEAN = (
    "conjunction:resample_empty=false",
    "disjunction:resample_empty=false",
    "sparsedisjunction",
    "cnf:resample_empty=false",
    "dnf:resample_empty=false",
    "sparsemajority:resample_empty=false",
    "threshold:resample_empty=false",
    "integerhalfspace:resample_empty=false",
    "parityfunction",
    "sparseparity",
)

# Their 12, 25 and 84 million parameters include an unused embedding of 32,000 words: 4.2, 16.8 and 67.1 million are
# used.
MODELS = {
    "4 layers of 256": ModelConfig.llama(d_model=256, num_layers=4, num_heads=4, d_ff=1024),
    "16 layers of 256": ModelConfig.llama(d_model=256, num_layers=16, num_heads=8, d_ff=1024),
    "16 layers of 512": ModelConfig.llama(d_model=512, num_layers=16, num_heads=8, d_ff=2048),
}
PAPER = MODELS["16 layers of 256"]
SMALL = ModelConfig.llama(d_model=64, num_layers=4, num_heads=2, d_ff=256)

LENGTHS = (*range(1, 11), *range(12, 51, 2), *range(55, 101, 5), *range(120, 401, 20))
SHIFTS = (
    {"inputs": "half-subspace"},
    {"inputs": "skewed"},
    *({scaled: scale} for scaled in ("input_scale", "label_scale") for scale in (0.333, 0.5, 2.0, 3.0)),
)


def paper_training(*, dims: bool) -> TrainingConfig:
    """Return batches of 64, 50,000 steps, AdamW without weight decay, learning rate 3e-4, warm-up 0.03, linear
    schedule. Gradients are not clipped, as in their code.

    The curriculum is that of their published configurations (2 more examples every 2,000 steps, from 11; one more dim,
    from 4), up to the thesis' 50 examples of 16 dims. Boolean inputs have all dims from the beginning.
    """
    return TrainingConfig(
        train_length=50,
        steps=50_000,
        batch_size=64,
        learning_rate=3e-4,
        schedule="linear",
        final_learning_rate=0.0,
        warmup=0.03,
        weight_decay=0.0,
        beta2=0.999,
        clip=1e9,
        curriculum=Curriculum(every=2000, length=11, length_step=2, dims=4 if dims else None),
    )


def paper_evaluation(*, shifts: bool) -> EvaluationConfig:
    """Return an evaluation on 1,280 prompts of 400 examples."""
    return EvaluationConfig(lengths=LENGTHS, examples=1280, prompt=400, shifts=SHIFTS if shifts else ())


def small_training(*, steps: int, batch_size: int) -> TrainingConfig:
    """Return the same schedule with fewer steps, a higher learning rate, and prompts of 12 examples from the first
    step.
    """
    return TrainingConfig(
        train_length=12,
        steps=steps,
        batch_size=batch_size,
        learning_rate=2e-3,
        schedule="linear",
        final_learning_rate=0.0,
        warmup=0.03,
        weight_decay=0.0,
    )
