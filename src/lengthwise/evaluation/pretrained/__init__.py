"""Load language models of other projects, which are folders on this machine.

Needs transformers. Nothing is downloaded, no code in the folder is run, and weights are read from safetensors only.
"""

from lengthwise.evaluation.pretrained.loading import Pretrained, load

__all__ = ["Pretrained", "load"]
