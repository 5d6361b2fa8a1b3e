"""The forms: everything that a position encoding can do to one attention call.

An encoding describes itself in these forms. An attention backend implements the forms and knows nothing of encodings.
Tables and angles are float64 where the device supports it (`table_dtype`). A backend casts them to its own precision,
at least float32.

`base.py` has their protocol. A new form is a class in a file of its own and a line here.

The logit of query i and key j in head h is

    gain_i · scale · <rotated q_i, rotated k_j>  +  every term(h, i, j)

where the terms read q and k before rotation. A form of `Product` takes the place of the product of rotated vectors.
Terms are in nats: they are added after scaling. The weights are the softmax of the logits over the visible keys and, if
there is one, the logit of a sink.

A table over distances begins at the distance `first`. If `first` is below 0, the table also has values for keys after
the query and serves both directions; with `first = 0` it serves causal masks only. Its columns are the distances first,
first + 1, ..., or those that `distances` lists in ascending order. Encodings list distances if positions lie so far
apart that few of the distances between them occur; every distance that occurs is then listed.
"""

import torch

from lengthwise.forms.base import CallSizes as CallSizes
from lengthwise.forms.base import Form as Form
from lengthwise.forms.base import Term as Term
from lengthwise.forms.biases import CumulativeBias as CumulativeBias
from lengthwise.forms.biases import DenseBias as DenseBias
from lengthwise.forms.biases import GatedDistanceBias as GatedDistanceBias
from lengthwise.forms.biases import KeyBias as KeyBias
from lengthwise.forms.biases import ToeplitzBias as ToeplitzBias
from lengthwise.forms.decay import DecayProduct as DecayProduct
from lengthwise.forms.distance_vectors import ContentBias as ContentBias
from lengthwise.forms.distance_vectors import RelativeKeyBias as RelativeKeyBias
from lengthwise.forms.distance_vectors import RelativeValues as RelativeValues
from lengthwise.forms.distance_vectors import VectorBias as VectorBias
from lengthwise.forms.householder import HouseholderProduct as HouseholderProduct
from lengthwise.forms.matrix_rotation import MatrixRotation as MatrixRotation
from lengthwise.forms.modifiers import AttentionModifiers as AttentionModifiers
from lengthwise.forms.modifiers import LogitTransform as LogitTransform
from lengthwise.forms.modifiers import QueryGain as QueryGain
from lengthwise.forms.modifiers import SinkLogit as SinkLogit
from lengthwise.forms.piecewise_linear import PiecewiseLinearBias as PiecewiseLinearBias
from lengthwise.forms.products import PiecewiseRotation as PiecewiseRotation
from lengthwise.forms.products import Product as Product
from lengthwise.forms.products import ProductBlocks as ProductBlocks
from lengthwise.forms.rotation import Rotation as Rotation
from lengthwise.forms.rotation import TokenRotation as TokenRotation
from lengthwise.forms.rotation import rotated_product as rotated_product
from lengthwise.forms.tables import column as column


def table_dtype(device: torch.device | str | None) -> torch.dtype:
    """Return the dtype of tables and angles on a device: float64, or float32 if the device has no float64."""
    return torch.float32 if torch.device(device or "cpu").type == "mps" else torch.float64
