"""The list of attention backends; base.py has their protocol."""

from lengthwise.attention.backends.base import Backend
from lengthwise.attention.backends.blocked import Blocked
from lengthwise.attention.backends.flex import Flex
from lengthwise.attention.backends.reference import Reference
from lengthwise.attention.backends.sdpa import SDPA
from lengthwise.attention.fused.backend import Fused

# In order of preference: `auto` takes the first backend that is worthwhile and supports the call. The reference
# supports every call, so backends after it are used only if they are named.
_BACKENDS: tuple[Backend, ...] = (
    Fused(),
    Blocked(),
    SDPA(),
    Reference(),
    Flex(),
)
BACKENDS: dict[str, Backend] = {backend.name: backend for backend in _BACKENDS}
