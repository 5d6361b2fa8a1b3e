"""What the studies of this folder share: the encodings, the models, training and lengths at both scales.

Source: "How Do Position Encodings Affect Length Generalization?" (thesis; in-context function learning), after Garg et al. 2022 and
Bhattamishra et al. 2023. What its text leaves open is taken from its public programs (one transformer for all: Llama-like,
prompts of 50 examples, asked up to 400) and said where it stands.
"""

from lengthwise.config import Curriculum, EvaluationConfig, ModelConfig, TrainingConfig

# Rotary methods that stretch are told so from the first step of training, by the 8 of 50 to 400 examples. Their dynamic NTK is
# that of Hugging Face's transformers, whose ratio at 8 times the length is 57; their "dynamic YaRN" begins at 8 times the trained
# length, 400 examples, and so was plain RoPE at every length they asked. Ours begins beyond the trained length, as YaRN's authors
# describe it.
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
# Functions without any literal or weight, which are constant, are drawn as theirs are.
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

# Their 12, 25 and 84 million parameters count a table of 32,000 words that no prompt uses: 4.2, 16.8 and 67.1 million are used.
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
    """Batches of 64, 50,000 steps, AdamW without decay, 3e-4, warm-up 0.03, linear. Gradients are not clipped, as in their program.

    The curriculum is that of their published configurations (2 examples more every 2,000 steps, from 11; one more dim, from 4),
    up to the thesis' 50 examples of 16 dims; Boolean inputs have all dims from the beginning.
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
    """1,280 prompts of 400 examples."""
    return EvaluationConfig(lengths=LENGTHS, examples=1280, prompt=400, shifts=SHIFTS if shifts else ())


def small_training(*, steps: int, batch_size: int) -> TrainingConfig:
    """The same schedule with fewer, larger steps on prompts of 12 examples, all of them from the first step."""
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
