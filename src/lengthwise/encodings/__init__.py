"""Position encodings: one file for each method, and one line for each method in `ENCODINGS`.

The command line, documentation, conformance suite and report all read `ENCODINGS`. Another package can add encodings
through the entry-point group `lengthwise.encodings`.
"""

from typing import TYPE_CHECKING, Any

from lengthwise.config import Registry, near_miss
from lengthwise.encodings.alibi import ALiBi
from lengthwise.encodings.axial_rope import AxialRoPE
from lengthwise.encodings.banded_bias import BandedBias
from lengthwise.encodings.base import DistanceBias, PositionEncoding, RotaryEncoding
from lengthwise.encodings.combined import Combined, combine
from lengthwise.encodings.cope import CoPE
from lengthwise.encodings.dape import DAPE
from lengthwise.encodings.dca import DCA
from lengthwise.encodings.dynamic_ntk import DynamicNTK
from lengthwise.encodings.dynamic_yarn import DynamicYaRN
from lengthwise.encodings.fire import FIRE
from lengthwise.encodings.fox import FoX
from lengthwise.encodings.grape_a import GrapeA
from lengthwise.encodings.grape_ap import GrapeAP
from lengthwise.encodings.kerple_log import KerpleLog
from lengthwise.encodings.kerple_power import KerplePower
from lengthwise.encodings.learned import Learned
from lengthwise.encodings.lerope import LeRoPE
from lengthwise.encodings.liere import LieRE
from lengthwise.encodings.llama3 import Llama3
from lengthwise.encodings.longrope import LongRoPE
from lengthwise.encodings.mrope import MRoPE
from lengthwise.encodings.nope import NoPE
from lengthwise.encodings.ntk_aware import NTKAware
from lengthwise.encodings.ntk_by_parts import NTKByParts
from lengthwise.encodings.p_rope import PRoPE
from lengthwise.encodings.path import PaTH
from lengthwise.encodings.path_fox import PaTHFoX
from lengthwise.encodings.pi import PI
from lengthwise.encodings.pope import PoPE
from lengthwise.encodings.repo import RePo
from lengthwise.encodings.rerope import ReRoPE
from lengthwise.encodings.rope import RoPE
from lengthwise.encodings.rope_mixed import RoPEMixed
from lengthwise.encodings.sandwich import Sandwich
from lengthwise.encodings.selective_rope import SelectiveRoPE
from lengthwise.encodings.self_extend import SelfExtend
from lengthwise.encodings.shaw import Shaw
from lengthwise.encodings.sinks import Sinks
from lengthwise.encodings.sinusoidal import Sinusoidal
from lengthwise.encodings.stick_breaking import StickBreaking
from lengthwise.encodings.string import STRING
from lengthwise.encodings.t5 import T5
from lengthwise.encodings.temperatures.base import Temperature
from lengthwise.encodings.temperatures.beam import Beam
from lengthwise.encodings.temperatures.inkling import Inkling
from lengthwise.encodings.temperatures.llama4 import Llama4
from lengthwise.encodings.temperatures.log_n import LogN
from lengthwise.encodings.temperatures.ministral import Ministral
from lengthwise.encodings.temperatures.mistral_large4 import MistralLarge4
from lengthwise.encodings.temperatures.ssmax import SSMax
from lengthwise.encodings.transformer_xl import TransformerXL
from lengthwise.encodings.wall import Wall
from lengthwise.encodings.xpos import XPos
from lengthwise.encodings.yarn import YaRN

ENCODINGS = Registry(
    "encoding",
    (
        NoPE,
        Sinusoidal,
        Learned,
        RoPE,
        PI,
        NTKAware,
        DynamicNTK,
        PRoPE,
        XPos,
        NTKByParts,
        YaRN,
        DynamicYaRN,
        Llama3,
        LongRoPE,
        SelfExtend,
        ReRoPE,
        DCA,
        STRING,
        AxialRoPE,
        MRoPE,
        RoPEMixed,
        LieRE,
        LeRoPE,
        PoPE,
        RePo,
        SelectiveRoPE,
        PaTH,
        PaTHFoX,
        Wall,
        Shaw,
        TransformerXL,
        ALiBi,
        T5,
        KerpleLog,
        KerplePower,
        Sandwich,
        FIRE,
        CoPE,
        DAPE,
        FoX,
        StickBreaking,
        BandedBias,
        GrapeA,
        GrapeAP,
        LogN,
        SSMax,
        Llama4,
        Ministral,
        Beam,
        MistralLarge4,
        Inkling,
        Sinks,
    ),
    plural="encodings",
    combine=combine,
)

__all__ = [
    "DAPE",
    "DCA",
    "ENCODINGS",
    "FIRE",
    "PI",
    "STRING",
    "T5",
    "ALiBi",
    "AxialRoPE",
    "BandedBias",
    "Beam",
    "CoPE",
    "Combined",
    "DistanceBias",
    "DynamicNTK",
    "DynamicYaRN",
    "FoX",
    "GrapeA",
    "GrapeAP",
    "Inkling",
    "KerpleLog",
    "KerplePower",
    "LeRoPE",
    "Learned",
    "LieRE",
    "Llama3",
    "Llama4",
    "LogN",
    "LongRoPE",
    "MRoPE",
    "Ministral",
    "MistralLarge4",
    "NTKAware",
    "NTKByParts",
    "NoPE",
    "PRoPE",
    "PaTH",
    "PaTHFoX",
    "PoPE",
    "PositionEncoding",
    "RePo",
    "ReRoPE",
    "RoPE",
    "RoPEMixed",
    "RotaryEncoding",
    "SSMax",
    "Sandwich",
    "SelectiveRoPE",
    "SelfExtend",
    "Shaw",
    "Sinks",
    "Sinusoidal",
    "StickBreaking",
    "Temperature",
    "TransformerXL",
    "Wall",
    "XPos",
    "YaRN",
]

if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{near_miss(name, __all__)}")
