"""Position encodings: one file for each method or family of methods, and one line for each method in `ENCODINGS`.

The command line, documentation, conformance suite and report all read `ENCODINGS`. Another package can add encodings
through the entry-point group `lengthwise.encodings`.
"""

from lengthwise.config import Registry
from lengthwise.encodings.absolute import Learned, NoPE, Sinusoidal
from lengthwise.encodings.alibi import ALiBi
from lengthwise.encodings.axes import AxialRoPE, MRoPE, RoPEMixed
from lengthwise.encodings.banded_bias import BandedBias
from lengthwise.encodings.base import DistanceBias, PositionEncoding, RotaryEncoding
from lengthwise.encodings.combined import Combined, combine
from lengthwise.encodings.cope import CoPE
from lengthwise.encodings.dape import DAPE
from lengthwise.encodings.distance_maps import DCA, STRING, ReRoPE, SelfExtend
from lengthwise.encodings.fire import FIRE
from lengthwise.encodings.fox import FoX
from lengthwise.encodings.grape import GrapeA, GrapeAP
from lengthwise.encodings.kerple import KerpleLog, KerplePower
from lengthwise.encodings.liere import LieRE
from lengthwise.encodings.ntk_by_parts import DynamicYaRN, Llama3, NTKByParts, YaRN
from lengthwise.encodings.path import PaTH, PaTHFoX
from lengthwise.encodings.pope import PoPE
from lengthwise.encodings.repo import RePo
from lengthwise.encodings.rope import LeRoPE, PRoPE, RoPE
from lengthwise.encodings.rope_scalings import PI, DynamicNTK, LongRoPE, NTKAware
from lengthwise.encodings.sandwich import Sandwich
from lengthwise.encodings.selective_rope import SelectiveRoPE
from lengthwise.encodings.shaw import Shaw
from lengthwise.encodings.sinks import Sinks
from lengthwise.encodings.stick_breaking import StickBreaking
from lengthwise.encodings.t5 import T5
from lengthwise.encodings.temperatures import Beam, Inkling, Llama4, LogN, Ministral, MistralLarge4, SSMax, Temperature
from lengthwise.encodings.transformer_xl import TransformerXL
from lengthwise.encodings.wall import Wall
from lengthwise.encodings.xpos import XPos

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
