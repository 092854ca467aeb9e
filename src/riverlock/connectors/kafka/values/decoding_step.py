"""Decoding Kafka values with schemas of a registry, as a step of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from riverlock.connectors.kafka.values.schema_decoding import Decoder
from riverlock.core.errors import RiverlockError, SourceError
from riverlock.spark.remote import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from riverlock.connectors.kafka.source import Kafka

__all__ = ["BODY", "CORRUPT", "decoding_of"]

# The columns of a value, and what is wrong with a bad one.
BODY: Final = "__rl_body"
CORRUPT: Final = "__rl_corrupt"


def decoding_of(source: Kafka, uid: str) -> DecodeTask | None:
    """Return the decoder of a source's values, if a registry has their schemas."""
    if source.registry is None:
        return None
    assert source.payload is not None
    decoder = Decoder(
        format=source.value,
        registry=source.registry,
        schema=source.payload,
        source=uid,
    )
    return DecodeTask(decoder, reports=source.bad_rows == "report")


@dataclass(frozen=True)
class DecodeTask:
    """What runs in the workers: adds the columns of each value."""

    decoder: Decoder
    reports: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batch after batch."""
        try:
            for batch in batches:
                yield self._decoded(batch)
        except RiverlockError as error:
            raise RemoteError(error) from error

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        found, wrong = self.decoder.decoded(batch.column("value").to_pylist())
        if not self.reports:
            self._refuse(batch, wrong)
        batch = batch.append_column(BODY, found)
        return batch.append_column(CORRUPT, pa.array(wrong, pa.string()))

    def _refuse(self, batch: pa.RecordBatch, wrong: list[str | None]) -> None:
        for place, why in enumerate(wrong):
            if why is not None:
                topic, part, offset = (
                    batch.column(n)[place].as_py()
                    for n in ("topic", "partition", "offset")
                )
                raise SourceError(
                    self.decoder.source,
                    what=f"the value of {topic}-{part} at offset {offset} is bad:"
                    f" {why}",
                    hint="bad_rows='report' keeps such records out of the stream",
                )
