"""The parameters of a call of the library's attention, as C++ reads them."""

import ctypes

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64


class View(ctypes.Structure):
    _fields_ = (("data", _POINTER), *((f"{axis}_stride", _INTEGER) for axis in ("batch", "head", "token")))


class DistanceVectors(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("table", "grad")),
        *((name, _INTEGER) for name in ("heads", "size", "first", "dim")),
    )


class Threads(ctypes.Structure):
    _fields_ = (("openmp", _POINTER), ("count", _INTEGER))


class Call(ctypes.Structure):
    """The arguments of a call; the fields must match those of `Call` in csrc/params.h, in the same order."""

    _fields_ = (
        *((name, _INTEGER) for name in ("batch", "heads", "kv_heads", "queries", "keys", "dim")),
        *((name, _INTEGER) for name in ("dtype", "causal", "target", "backward")),
        ("threads", Threads),
        ("scale", ctypes.c_double),
        *((name, View) for name in ("q", "k", "v", "out", "grad", "dq", "dk", "dv")),
        *((name, _POINTER) for name in ("lse", "table", "grad_table")),
        *((name, _INTEGER) for name in ("table_heads", "table_size", "table_first")),
        *((name, _POINTER) for name in ("slope", "intercept", "knots", "distance_feature", "query_scale")),
        *((name, _POINTER) for name in ("grad_slope", "grad_intercept", "grad_feature", "grad_query_scale")),
        *((name, _INTEGER) for name in ("segment_heads", "segments", "feature_size", "query_scale_batch")),
        *((name, _POINTER) for name in ("position_q", "position_k")),
        *((name, _INTEGER) for name in ("position_q_stride", "position_k_stride")),
        ("documents", _POINTER),
        ("documents_stride", _INTEGER),
        ("window", _INTEGER),
        *((name, _POINTER) for name in ("content", "grad_content")),
        *((name, DistanceVectors) for name in ("key_vectors", "value_vectors")),
        *((name, _POINTER) for name in ("prefix_sum", "grad_prefix_sum")),
        ("prefix_sum_heads", _INTEGER),
        *((name, _POINTER) for name in ("statistics", "edges", "rank")),
        *((name, _INTEGER) for name in ("edges_size", "rank_stride", "first_keys", "last_keys")),
        *((name, _POINTER) for name in ("cos_sin_q", "cos_sin_k")),
        *((name, _INTEGER) for name in ("cos_sin_q_stride", "cos_sin_k_stride", "pairs", "interleaved")),
        *((name, _POINTER) for name in ("sink", "grad_sink")),
    )
