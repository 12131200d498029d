"""What a device offers to the models of one framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Backend:
    """A device with its operations.

    A family of `framework` F is served on the available backend of F with the highest `priority`
    among those whose `device` was asked for. Constructing one must be free: import nothing heavy
    before `is_available` or `ops` is called.
    """

    name: str = "host"
    framework: str = "host"
    device: str = "cpu"
    priority: int = 0
    dtypes: tuple[str, ...] = ("float32",)
    default_dtype: str = "float32"

    def is_available(self) -> bool:
        """Whether this machine has the device."""
        return True

    def build_kernels(self) -> Path | None:
        """Compile what this backend compiles at first use, ahead; the library, None if nothing.

        Raises PluginError with the remedy.
        """
        return None

    @property
    def ops(self) -> Mapping[str, Callable[..., Any]]:
        """Operations by the name of the reference they replace; what lacks stays the reference."""
        return {}
