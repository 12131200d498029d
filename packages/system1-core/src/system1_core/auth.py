"""Bearer keys from a file."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path

from system1_core.errors import AuthenticationFailed, ConfigError


class Keys:
    """The accepted keys; with none, everybody may ask."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._keys = [key.encode() for key in keys]

    @property
    def required(self) -> bool:
        """Whether a key must be given."""
        return bool(self._keys)

    def accept(self, authorization: str | None) -> bool:
        """Whether the header `Authorization` holds "Bearer KEY" with an accepted key.

        Every key is compared, each in constant time, so that timing tells nothing about any.
        """
        if not self._keys:
            return True
        if authorization is None or not authorization.startswith("Bearer "):
            return False
        # HTTP headers arrive as Latin-1, whatever the bytes meant: these are the bytes again.
        given = authorization.removeprefix("Bearer ").strip(" ").encode("latin-1", "replace")
        accepted = False
        for key in self._keys:
            accepted |= hmac.compare_digest(key, given)
        return accepted

    def check(self, authorization: str | None) -> None:
        """Raises AuthenticationFailed unless `accept`."""
        if not self.accept(authorization):
            problem = "missing" if authorization is None else "wrong"
            raise AuthenticationFailed(
                f"{problem} API key: send the header Authorization: Bearer KEY"
            )


def load_keys(path: Path | None) -> Keys:
    """Keys from a file, one a line; blank lines and lines that begin with # are skipped.

    Raises ConfigError when the file is unreadable or holds no key.
    """
    if path is None:
        return Keys()
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {path}: {error}") from None
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise ConfigError(f"--api-key-file {path}: the file holds no key; write one a line")
    return Keys(keys)
