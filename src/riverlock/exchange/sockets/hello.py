"""Who connects proves that it knows the secret, and so does who listens.

| who | sends |
|---|---|
| who connects | ``RLH1``, generation, its number and whom it wants, 32 chance bytes |
| who listens | 32 chance bytes, and a proof over all that was sent |
| who connects | a proof of its own over the same |

A proof is an HMAC (SHA-256) with the secret, which is 32 chance bytes, made for each
generation and given to its tasks alone. Neither proof can be used for the other, nor
for another connection. The secret itself is never sent.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["DRIVER", "HELLO_BYTES", "PROOF_BYTES", "REPLY_BYTES", "Hello", "Secret"]

_MAGIC: Final = b"RLH1"
_CHANCE: Final = 32
_HELLO: Final = struct.Struct(f"<4s16sII{_CHANCE}s")
HELLO_BYTES: Final = _HELLO.size
PROOF_BYTES: Final = 32
REPLY_BYTES: Final = _CHANCE + PROOF_BYTES
# The number of the driver; tasks have theirs, from 0.
DRIVER: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The beginning of a connection."""

    generation: bytes
    sender: int
    wanted: int
    chance: bytes

    @classmethod
    def new(cls, generation: bytes, sender: int, wanted: int) -> Hello:
        """Return one of our own."""
        chance = secrets.token_bytes(_CHANCE)
        return cls(generation=generation, sender=sender, wanted=wanted, chance=chance)

    @classmethod
    def read(cls, packed: bytes) -> Hello | None:
        """Return what somebody sent; None: it is something else."""
        magic, generation, sender, wanted, chance = _HELLO.unpack(packed)
        if magic != _MAGIC:
            return None
        return cls(generation=generation, sender=sender, wanted=wanted, chance=chance)

    def packed(self) -> bytes:
        """Return it as bytes."""
        return _HELLO.pack(
            _MAGIC, self.generation, self.sender, self.wanted, self.chance
        )


@dataclass(frozen=True, slots=True)
class Secret:
    """What all of a generation know; it is not shown."""

    value: bytes

    def __repr__(self) -> str:
        return "Secret(...)"

    def reply(self, hello: Hello) -> tuple[bytes, bytes]:
        """Return the answer to somebody, and the proof that it must give now."""
        chance = secrets.token_bytes(_CHANCE)
        mine = self._proof(b"listens", hello, chance)
        return chance + mine, self._proof(b"connects", hello, chance)

    def proof(self, hello: Hello, reply: bytes) -> bytes | None:
        """Return our proof; None: the other one does not know the secret."""
        chance, proof = reply[:_CHANCE], reply[_CHANCE:]
        if not hmac.compare_digest(proof, self._proof(b"listens", hello, chance)):
            return None
        return self._proof(b"connects", hello, chance)

    def _proof(self, role: bytes, hello: Hello, chance: bytes) -> bytes:
        return hmac.digest(self.value, role + hello.packed() + chance, "sha256")
