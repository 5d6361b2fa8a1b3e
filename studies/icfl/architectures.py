"""In-context function learning without softmax attention: six mixers beside two encodings, clean and noisy examples.

Question: which architectures use more examples than they were trained on, and does noise in the labels change that?
Expectation (written before the first run; the thesis compared only Mamba, in plots): at the training length (12
examples, or 50 at the published scale) every architecture beats averaging on both classes of functions, attention is
best, and Mamba and LSTM are the best of the others. Beyond it, what decides is whether the state forgets.
LinearTransformer, like NoPE, averages over all examples: its error stays within a factor of two up to eight times the
length. The two heads of the small RetNet forget within 32 and 64 tokens, and RWKV4 forgets by channel, so both stay
where they were at the training length, and neither gains from more examples. LSTM and Mamba get worse on regression,
because their states were never that full, but not on the Boolean class, where few examples are enough. Hyena gets worst
of all, because its filters beyond the training length were never trained. FIRE is better there than at the training
length, as in `icfl/small`. Noise raises all errors, the most where the error was smallest, and does not change which
architectures keep their score.
Outcome of the small study (means of three seeds; every score with its interval in
benchmarks/results/study-icfl-architectures-small.json):
- At the training length, 12 examples, not every architecture beats averaging, against the expectation. Without noise,
  averaging has a squared error of 0.94 on regression, FIRE 0.05, Mamba 0.07, RWKV4 0.09, LSTM 0.23, Hyena 0.24 and
  NoPE 0.34, but LinearTransformer 1.07 and RetNet 1.98, whose seeds differ widely (0 to 5.3). On the Boolean class,
  averaging is right in 0.72 of the answers, RWKV4 in 0.83, Mamba in 0.82, FIRE in 0.80, NoPE and LSTM in 0.77 and
  Hyena in 0.73, LinearTransformer in 0.70 and RetNet in 0.69. So attention has the smallest error only with FIRE and
  only on regression, where its interval overlaps with Mamba's; RWKV4 and Mamba, not LSTM, are the best of the others.
  What LinearTransformer and RetNet do at longer lengths says little, because they have not learned regression.
- At 96 examples, FIRE improves (0.05 to 0.017), as expected. RWKV4 gains too (0.09 to 0.06, and 0.95 instead of 0.83
  of the Boolean answers), and LSTM keeps its error (0.23 to 0.19), both against the expectation. Mamba gets worse on
  regression (0.07 to 0.47, with an interval of 0 to 1.13) and not on the Boolean class (0.82 to 0.90), as expected.
  NoPE's error is 2.2 times as large. Hyena gets worse (0.24 to 0.36), but not worst of all.
- Noise raises all errors, by the largest factor where the error was smallest: FIRE 8.4 times, Mamba 6.3, RWKV4 5.3,
  LSTM 2.7, Hyena 2.5, NoPE 2.2. FIRE, RWKV4 and LSTM still keep their score at 96 examples, as expected.
Cost: just under an hour on two CPU cores (estimated from the time of a few steps; more than a third of it is Mamba's).
At the published scale 96 trainings of 50,000 steps, some hours each on one GPU.
Command: lengthwise run icfl/architectures

Options: `size` is small or paper; `seeds` is the number of seeds. In the small study the learning rate is that of
`icfl/small` for all architectures, and its runs with clean labels are the same runs. All have about as many weights as
the Transformer (0.99 to 1.05 times in the small study, 0.79 to 1.01 times at the published scale): Mamba has twice as
many layers, as its authors compare it, and the others have an MLP of another width.
"""

from thesis import PAPER, SMALL, paper_evaluation, paper_training, small_training

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig
from lengthwise.studies import Study, grid

ENCODINGS = ("nope", "fire")
MIXERS = ("mamba", "lstm", "linear_transformer", "retnet", "rwkv4", "hyena")
# Relative to the MLP of the Transformer, so that a layer has as many weights as one of its layers.
MLP_WIDTHS = {"lstm": 2 / 3, "linear_transformer": 1, "retnet": 2 / 3, "rwkv4": 11 / 8, "hyena": 2 / 3}
LENGTHS = (1, 2, 3, 4, 6, 8, 10, 12, 15, 18, 24, 36, 48, 72, 96)
SMALL_CLASSES = (
    "linearregression:dims=3",
    "linearregression:dims=3,noise=0.5",
    "conjunction:dims=8",
    "conjunction:dims=8,noise=0.1",
)
PAPER_CLASSES = (
    "linearregression",
    "linearregression:noise=1",
    "conjunction:resample_empty=false",
    "conjunction:resample_empty=false,noise=0.1",
)


def with_mixer(mixer: str, transformer: ModelConfig) -> ModelConfig:
    """Return a model with a mixer, of the width and about the number of weights of a Transformer like Llama."""
    d, layers, heads = transformer.d_model, transformer.num_layers, transformer.num_heads
    if mixer == "mamba":
        return ModelConfig.mamba(d_model=d, num_layers=2 * layers, state_size=16)
    own = {"norm": "rms", "bias": False, "d_ff": round(MLP_WIDTHS[mixer] * transformer.hidden / 8) * 8}
    own |= {} if mixer == "rwkv4" else {"mlp": "swiglu"}
    own |= {"num_heads": heads} if mixer in ("linear_transformer", "retnet") else {}
    return ModelConfig(mixer=mixer, d_model=d, num_layers=layers, **own)


def study(size: str = "small", seeds: int = 3) -> Study:
    if size not in ("small", "paper"):
        raise ConfigError(f"size must be small or paper, got {size!r}")
    small = size == "small"
    transformer, classes = (SMALL, SMALL_CLASSES) if small else (PAPER, PAPER_CLASSES)
    if small:
        regression, boolean = small_training(steps=1000, batch_size=64), small_training(steps=600, batch_size=32)
        evaluation = EvaluationConfig(lengths=LENGTHS, examples=400, prompt=96)
    else:
        regression, boolean = paper_training(dims=True), paper_training(dims=False)
        evaluation = paper_evaluation(shifts=False)
    training = {"LinearRegression": regression, "Conjunction": boolean}
    numbers = range(1, seeds + 1)  # seed 0 chose the sizes of icfl/small
    return Study(
        name=f"icfl: architectures, {size}",
        question="Which architectures use more examples than they were trained on, with clean and with noisy labels?",
        expectation=(
            "All beat averaging at the training length, attention is best. Beyond it, LinearTransformer, RetNet and "
            "RWKV4 keep their scores, LSTM and Mamba get worse on regression, and Hyena most. Noise does not change "
            "which ones keep theirs."
        ),
        cost="just under an hour on 2 CPU cores"
        if small
        else "96 trainings of 50,000 steps, some hours each on one GPU",
        command="lengthwise run icfl/architectures" + ("" if small else " --set size=paper --device cuda"),
        runs=(
            *grid(ENCODINGS, classes, seeds=numbers, model=transformer, training=training),
            *(
                run
                for mixer in MIXERS
                for run in grid(["nope"], classes, numbers, model=with_mixer(mixer, transformer), training=training)
            ),
        ),
        evaluation=evaluation,
    )
