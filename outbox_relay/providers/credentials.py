"""Secrets that providers want, read from the environment or from files, and shown nowhere.

A credential's name and where it comes from may be shown; its value may not: not in a repr, an error, a log or a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, model_validator

from outbox_relay.errors import ContractError

MAX_SECRET_BYTES: Final = 65_536


class CredentialSource(BaseModel):
    """Where one secret is found: an environment variable or a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _names_one_place(self) -> CredentialSource:
        if (self.env is None) == (self.file is None):
            raise ValueError("a credential comes from one place: write {env: NAME} or {file: PATH}")
        return self

    @property
    def place(self) -> str:
        """Where the secret is, without the secret."""
        return f"env:{self.env}" if self.env else f"file:{self.file}"

    def read(self, environ: Mapping[str, str], *, field: str) -> str:
        """The secret itself, without surrounding white space. Raises ContractError naming the place only."""
        if self.env is not None:
            value = environ.get(self.env, "")
        else:
            try:
                value = Path(self.file or "").read_bytes()[:MAX_SECRET_BYTES].decode()
            except (OSError, UnicodeDecodeError) as error:
                hint = "mount the file, readable for this user"
                raise ContractError(f"{field}: {self.place} cannot be read", hint=hint) from error
        if not value.strip():
            raise ContractError(f"{field}: {self.place} is empty or not set", hint=f"provide {self.place}")
        if any(ord(sign) < 32 or ord(sign) == 127 for sign in value.strip()):
            raise ContractError(f"{field}: {self.place} holds control characters", hint="store the bare secret")
        return value.strip()


class Credentials(Mapping[str, str]):
    """Secrets by name. Neither repr nor str shows a value; it cannot be pickled."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Credentials({', '.join(f'{name}=***' for name in self._values)})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("credentials stay in this process")
