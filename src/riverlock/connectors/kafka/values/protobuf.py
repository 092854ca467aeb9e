"""Protobuf without generated code: descriptors come from the registry."""

from __future__ import annotations

import base64
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from riverlock.connectors.kafka.values.schema_values import BadValueError
from riverlock.core.times import from_micros

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

    from riverlock.connectors.kafka.values.registry import Registered
    from riverlock.connectors.kafka.values.schema_values import Decode

__all__ = ["protobuf_decode"]

_KNOWN: Final = "google/protobuf/"


def protobuf_decode(schema: Registered) -> Decode:
    """Return a decoder for the bytes after the schema number.

    Raises:
        BadValueError: It is not a Protobuf schema.
    """
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    try:
        file = _added(pool, schema, None)
    except (ValueError, TypeError, ImportError, KeyError) as error:
        message = f"its schema cannot be used: {error}"
        raise BadValueError(message) from None
    classes: dict[tuple[int, ...], Any] = {}

    def decode(body: bytes) -> Any:
        path, at = _indexes(body)
        if path not in classes:
            name = _name(file, path)
            classes[path] = GetMessageClass(pool.FindMessageTypeByName(name))
        return _plain(classes[path].FromString(body[at:]))

    return decode


def _added(
    pool: DescriptorPool, schema: Registered, name: str | None
) -> FileDescriptorProto:
    """Add a file and what it imports to a pool."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    if name is not None:
        file.name = name  # as others import it
    for other, registered in schema.references:
        if not _has(pool, other):
            _added(pool, registered, other)
    for other in file.dependency:
        if other.startswith(_KNOWN) and not _has(pool, other):
            _add_known(pool, other)
    pool.AddSerializedFile(file.SerializeToString())
    return file


def _add_known(pool: DescriptorPool, name: str) -> None:
    """Add a file that comes with Protobuf, such as the one of Timestamp."""
    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    for other in module.DESCRIPTOR.dependencies:
        if not _has(pool, other.name):
            _add_known(pool, other.name)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _has(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message of the file it is, and where the message begins.

    >>> _indexes(bytes([0, 9])), _indexes(bytes([4, 2, 0, 9]))
    (((0,), 1), ((1, 0), 3))
    """
    count, at = _number(body, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(body):
        message = "its list of message indexes is damaged"
        raise BadValueError(message)
    path = []
    for _ in range(count):
        index, at = _number(body, at)
        path.append(index)
    return tuple(path), at


def _number(body: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, zigzag encoded, and where it ends."""
    found, shift = 0, 0
    while at < len(body) and shift < 35:
        found |= (body[at] & 0x7F) << shift
        shift += 7
        at += 1
        if body[at - 1] < 0x80:
            return (found >> 1) ^ -(found & 1), at
    message = "its list of message indexes is damaged"
    raise BadValueError(message)


def _name(file: FileDescriptorProto, path: tuple[int, ...]) -> str:
    """Return the full name of a message by the places it is declared at."""
    names = [file.package] if file.package else []
    messages: Any = file.message_type
    for index in path:
        if not 0 <= index < len(messages):
            message = f"its schema has no message at {list(path)}"
            raise BadValueError(message)
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _plain(message: Message) -> Any:
    """Return a message as plain values; an optional field that is absent is None."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        seconds, nanos = getattr(message, "seconds"), getattr(message, "nanos")  # noqa: B009 - of a class made at run time
        return from_micros(seconds * 1_000_000 + nanos // 1000)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _field(field, getattr(message, field.name))
    is_wrapper = name.startswith("google.protobuf.") and name.endswith("Value")
    return found["value"] if is_wrapper and list(found) == ["value"] else found


def _field(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"]
        return {k: _single(of, value[k]) for k in value}
    if field.is_repeated:
        return [_single(field, v) for v in value]
    return _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
