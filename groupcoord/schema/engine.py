"""Schema engine: readers and writers of messages and records, compiled from tables of fields.

A :class:`Structure` is a tuple of fields with the versions that have them. Its reader and its writer are functions.
Their Python source is generated for one version and compiled once, as :mod:`dataclasses` does for ``__init__``.
Adjacent numbers are one :class:`struct.Struct`; everything else is a call of a primitive (:mod:`.primitives`).

>>> point = parse_structures("Point: x int32, y int32, name string 1+", made={})["Point"]
>>> print(reader_source(point, 1, True, TOOLS).text)
def read(data, position):
    v0, v1, = unpack0(data, position)
    v2, position = read2(data, position + 8)
    values = {'x': v0, 'y': v1, 'name': v2}
    if data[position]:
        found, position = read_tagged(data, position)
        values.update(found)
    else:
        position += 1
    return values, position
>>> reader_of(point, 0, False, TOOLS)(bytes.fromhex("00000001 00000002"), 0)
({'x': 1, 'y': 2}, 8)

A :class:`Form` defines the values: dicts for tools and clients, instances of ``Structure.made`` for brokers. In a dict
a tagged field is absent if it is absent from the bytes. In instances absent fields have their defaults.
"""

from __future__ import annotations

import re
from ast import literal_eval
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import groupby
from operator import attrgetter
from struct import Struct, pack, unpack_from
from typing import Any, NamedTuple

from attrs import NOTHING, fields as attributes_of

from groupcoord.schema import primitives
from groupcoord.schema.primitives import (
    FLEXIBLE,
    PLAIN,
    STRICT_FLEXIBLE,
    STRICT_PLAIN,
    STRING_BYTES_MAX,
    ZERO_UUID,
    Dialect,
    MalformedError,
    Reader,
    Writer,
    read_content,
    read_uuid,
    write_uvarint,
)

Values = dict[str, Any]

UNKNOWN_TAGS = "unknownTaggedFields"
"""Key of the tags that a schema does not define, as a list of ``(tag, bytes)``, in dicts for tools."""

NEWEST = 32_767

# ---------------------------------------------------------------- schemas


class Scalar(NamedTuple):
    """A number or boolean; ``code`` is its letter in :mod:`struct`."""

    code: str


class Text(NamedTuple):
    """A string, byte string, UUID, or batches of records (``kind``)."""

    kind: str


class Array(NamedTuple):
    """Any number of elements of one type."""

    element: FieldType


class Field(NamedTuple):
    """One field of a structure.

    Attributes:
        name: the key in a dict. Of a message: its attribute, or "" for a field that the message ignores.
        since, until: the first and the last version that have it.
        nullable: whether null is allowed.
        tag: the number of a tagged field.
        default: the value where it is absent, from a version or as a tagged field.
    """

    name: str
    type: FieldType
    since: int = 0
    until: int = NEWEST
    nullable: bool = False
    tag: int | None = None
    default: Any = None


class Structure(NamedTuple):
    """Fields in their order.

    Attributes:
        made: the class of its values outside of dicts; None: a tuple; :data:`ALONE`: the value of the first field.
        by_name: whether fields have the names of the class's attributes, rather than their order.
    """

    fields: tuple[Field, ...]
    made: type[Any] | None = None
    by_name: bool = False


class ALONE:
    """``made`` of a structure that stands for the value of its first field."""


class Custom(NamedTuple):
    """A type with its own codec: a function that returns its reader or its writer for ``(version, flexible)``."""

    codec: Callable[[int, bool], Callable[..., Any]]


FieldType = Scalar | Text | Array | Structure | Custom

INT8, INT16, UINT16, INT32, INT64, FLOAT64, BOOL = (Scalar(code) for code in "bhHiqd?")
STRING, BYTES, UUID, RECORDS = (Text(kind) for kind in ("string", "bytes", "uuid", "records"))
_NUMBERS = {"int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "int64": INT64, "float64": FLOAT64}
TYPES: Mapping[str, FieldType] = (
    _NUMBERS | {"bool": BOOL} | {text.kind: text for text in (STRING, BYTES, UUID, RECORDS)}
)
"""Primitive types by Kafka's names."""

_FIELD = re.compile(r"(\w+) (\w+)(\[\])?(\?)?(?: (\d+)(?:\+|-(\d+)))?(?: tag (\d+))?(?: = (\S+))?")


def parse_structures(
    text: str, made: Mapping[str, type[Any]], types: Mapping[str, FieldType] = TYPES, *, by_name: bool = False
) -> dict[str, Structure]:
    """Return the structures in a text like ``Point: x int32, y int32, name string[]? 1+ tag 0 = ()``, by name.

    Behind its type, which may be a structure above, a field has the versions that have it (``3+``, ``0-12``), its tag
    and its default. ``?`` marks types that may be null.

    Args:
        made: the classes of values by the names of structures; others are tuples.
        types: the other types.
        by_name: whether fields have the names of the class's attributes; ``_`` is a field that the class ignores.
    """
    found: dict[str, Structure] = {}
    for name, body in re.findall(r"(\w+): ([^:]+)(?=\s\w+:|$)", text):
        known, fields = {**types, **found}, []
        for line in re.split(r",\s+", body.strip()):
            match = _FIELD.fullmatch(line)
            if match is None:
                raise ValueError(f"{name}: {line!r} is no field")
            field, kind, array, nullable, since, until, tag, default = match.groups()
            fields.append(
                Field(
                    "" if field == "_" else field,
                    Array(known[kind]) if array else known[kind],
                    int(since or 0),
                    int(until or NEWEST),
                    nullable is not None,
                    None if tag is None else int(tag),
                    None if default is None else _default(known[kind], literal_eval(default)),
                )
            )
        found[name] = Structure(tuple(fields), made.get(name), by_name and name in made)
    return found


def _default(kind: FieldType, value: Any) -> Any:
    if isinstance(kind, Structure) and kind.made and isinstance(value, tuple) and value:
        return kind.made(*value)
    return ZERO_UUID if kind is UUID else value


class Form(NamedTuple):
    """Values that are read and written, and how strictly.

    Attributes:
        is_dict: structures are dicts; otherwise they are ``Structure.made``.
        is_lenient: everything that a broker reads is accepted, and None is written as an empty string where null is not
            allowed; otherwise only what a broker writes: minimal varints, tags in order, each as long as it states.
        is_of_tools: UUIDs are text, arrays are lists, unknown tags are kept.
    """

    is_dict: bool
    is_lenient: bool = False
    is_of_tools: bool = False

    def dialect(self, flexible: bool) -> Dialect:
        if self.is_lenient:
            return FLEXIBLE if flexible else PLAIN
        return STRICT_FLEXIBLE if flexible else STRICT_PLAIN


TOOLS = Form(is_dict=True, is_of_tools=True)
MADE = Form(is_dict=False)
"""Records for the coordinator."""
PROTOCOL, PROTOCOL_DICTS = (Form(is_dict, is_lenient=True) for is_dict in (False, True))


@lru_cache(1_024)
def uuid_text(raw: bytes) -> str:
    """Return the text form of a UUID: URL-safe base 64 without padding."""
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID in Kafka's text form."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise MalformedError(f"{text!r} is no uuid")
    return raw


# ---------------------------------------------------------------- source


class Source:
    """Source of one function, and the objects that it uses."""

    def __init__(self, name: str, parameters: str) -> None:
        self._name = name
        self._lines = [f"def {name}({parameters}):"]
        self.indent = 1
        self._objects: Values = {}

    def add(self, line: str) -> None:
        self._lines.append("    " * self.indent + line)

    def use(self, name: str, value: object) -> str:
        """Make an object available to the function, and return its name there."""
        self._objects[name] = value
        return name

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def compile(self) -> Callable[..., Any]:
        exec(compile(self.text, f"<schema {self._name}>", "exec"), self._objects)
        function: Callable[..., Any] = self._objects[self._name]
        return function


class _Present(NamedTuple):
    """A field that a version has: its number among all fields, and the attribute that holds it."""

    number: int
    field: Field
    attribute: str

    @property
    def code(self) -> str | None:
        return self.field.type.code if isinstance(self.field.type, Scalar) else None


def _present_fields(fields: Structure, version: int, form: Form) -> tuple[list[_Present], list[_Present]]:
    names = [field.name for field in fields.fields]
    if not form.is_dict and fields.made is not None and fields.made is not ALONE and not fields.by_name:
        names = _attribute_names(fields.made)[: len(names)]
    present = [
        _Present(number, field, name)
        for number, (field, name) in enumerate(zip(fields.fields, names, strict=True))
        if field.since <= version <= field.until
    ]
    return [field for field in present if field.field.tag is None], [p for p in present if p.field.tag is not None]


def _attribute_names(made: type[Any]) -> list[str]:
    return list(made._fields) if hasattr(made, "_fields") else [attribute.name for attribute in attributes_of(made)]


def _runs(fields: Sequence[_Present]) -> list[tuple[str | None, list[_Present]]]:
    """Return the layout of each run of adjacent numbers with its fields, and None with each other field."""
    runs: list[tuple[str | None, list[_Present]]] = []
    for is_number, group in groupby(fields, lambda present: present.code is not None):
        run = list(group)
        if is_number:
            runs.append((">" + "".join([str(present.code) for present in run]), run))
        else:
            runs += [(None, [present]) for present in run]
    return runs


# ---------------------------------------------------------------- reading


def read_whole(read: Reader[Any], data: bytes, position: int) -> Any:
    """Return the value from a position to the end; raise MalformedError if bytes are left over."""
    values, end = read(data, position)
    if end != len(data):
        raise MalformedError(f"{len(data) - end} bytes are left over")
    return values


@cache
def reader_of(
    fields: Structure, version: int, flexible: bool, form: Form = TOOLS, *, has_end: bool = True
) -> Reader[Any]:
    """Return the reader of one version of a structure: ``(data, position)`` to ``(value, position)``.

    It raises ``MalformedError``, ``IndexError``, ``struct.error`` or ``UnicodeDecodeError`` if the bytes do not fit.
    ``has_end``: whether tagged fields follow.
    """
    return reader_source(fields, version, flexible, form, has_end=has_end).compile()


def reader_source(
    fields: Structure,
    version: int,
    flexible: bool,
    form: Form,
    parameters: str = "data, position",
    given: Mapping[str, str] | None = None,
    *,
    has_end: bool = True,
) -> Source:
    """Return the source of a reader.

    Args:
        parameters: those of the function.
        given: expressions of attributes that are no fields; with them the reader returns no position.
    """
    source = Source("read", parameters)
    value, offset = _structure_source(source, "", fields, version, flexible, form, given or {}, has_end=has_end)
    source.add(f"return {value}" if given is not None else f"return {value}, {_place(offset)}")
    return source


def _place(offset: int) -> str:
    return f"position + {offset}" if offset else "position"


def _structure_source(
    source: Source,
    prefix: str,
    fields: Structure,
    version: int,
    flexible: bool,
    form: Form,
    given: Mapping[str, str],
    *,
    has_end: bool = True,
) -> tuple[str, int]:
    """Add the reading of a structure; return the expression of its value, and how far behind ``position`` it ends.

    ``prefix``: begins the numbers of its variables, since arrays of structures are read in the same function.
    """
    plain, tagged = _present_fields(fields, version, form)
    offset = 0
    for layout, run in _runs(plain):
        name = f"{prefix}{run[0].number}"
        if layout is not None:
            numbers = Struct(layout)
            names = ", ".join([f"v{prefix}{present.number}" for present in run])
            source.add(f"{names}, = {source.use(f'unpack{name}', numbers.unpack_from)}(data, {_place(offset)})")
            offset += numbers.size
            continue
        field = run[0].field
        if isinstance(field.type, Array) and isinstance(field.type.element, Structure):
            _array_source(source, name, field, field.type.element, _place(offset), version, flexible, form)
        else:
            read = source.use(f"read{name}", _field_reader(field, version, flexible, form))
            source.add(f"v{name}, position = {read}(data, {_place(offset)})")
        offset = 0
    if form.is_dict:
        items = ", ".join([f"{name!r}: v{prefix}{number}" for number, _, name in plain])
        source.add(f"values{prefix} = {{{items}}}")
    if flexible and has_end:
        kept = [present for present in tagged if present.attribute or not fields.by_name]
        _read_tagged_source(source, prefix, tagged, kept, _place(offset), version, form)
        source.add(f"    position += {offset + 1}")
        offset = 0
    if form.is_dict:
        return f"values{prefix}", offset
    return _make_source(source, prefix, fields, [*plain, *tagged], given), offset


def _array_source(
    source: Source, name: str, field: Field, element: Structure, at: str, version: int, flexible: bool, form: Form
) -> None:
    dialect = form.dialect(flexible)
    read_length = dialect.read_nullable_array_length if field.nullable else dialect.read_array_length
    source.add(f"length{name}, position = {source.use(f'read{name}', read_length)}(data, {at})")
    source.add(f"v{name} = []")
    source.add(f"for _ in range(length{name}):")
    source.indent += 1
    value, offset = _structure_source(source, f"{name}_", element, version, flexible, form, {})
    source.add(f"v{name}.append({value})")
    if offset:
        source.add(f"position += {offset}")
    source.indent -= 1
    elements = f"v{name}" if form.is_of_tools else f"tuple(v{name})"
    if field.nullable:
        elements = f"None if length{name} < 0 else {elements}"
    source.add(f"v{name} = {elements}")


def _read_tagged_source(
    source: Source, prefix: str, tagged: list[_Present], kept: list[_Present], at: str, version: int, form: Form
) -> None:
    known = {
        present.field.tag: (
            present.attribute if form.is_dict else present.number,
            _field_reader(present.field, version, True, form),
            present.field.default,
        )
        for present in tagged
    }
    if not form.is_dict:
        for number, field, _ in kept:
            source.add(f"v{prefix}{number} = {source.use(f'default{prefix}{number}', field.default)}")
    source.add(f"if data[{at}]:")
    read = source.use(f"read_tagged{prefix}", partial(_read_tagged_fields, known, form))
    source.add(f"    found, position = {read}(data, {at})")
    if form.is_dict:
        source.add(f"    values{prefix}.update(found)")
    for number, _, _ in kept if not form.is_dict else ():
        source.add(f"    v{prefix}{number} = found.get({number}, v{prefix}{number})")
    source.add("else:")


def _make_source(
    source: Source, prefix: str, fields: Structure, present: list[_Present], given: Mapping[str, str]
) -> str:
    made = fields.made
    if made is ALONE:
        return f"v{prefix}0"
    numbers = {number for number, _, _ in present}
    values = [
        f"v{prefix}{number}" if number in numbers else source.use(f"default{prefix}{number}", field.default)
        for number, field in enumerate(fields.fields)
    ]
    if made is None:
        return f"({', '.join(values)},)"
    if fields.by_name:
        absent = {
            field.name: values[number]
            for number, field in enumerate(fields.fields)
            if number not in numbers and field.default is not None
        }
        arguments = absent | {name: values[number] for number, _, name in present if name} | dict(given)
    else:
        arguments = dict(zip(_attribute_names(made), values, strict=False))
    if not issubclass(made, tuple):
        for attribute in attributes_of(made):
            if attribute.init and attribute.default is NOTHING:
                arguments.setdefault(attribute.alias, "None")
        listed = ", ".join([f"{name}={value}" for name, value in arguments.items()])
        return f"{source.use(f'make{prefix}', made)}({listed})"
    # The constructor of a named tuple takes twice as long.
    defaults = made._field_defaults  # type: ignore[attr-defined]
    in_order = [
        arguments[name] if name in arguments else source.use(f"default{prefix}_{name}", defaults.get(name))
        for name in _attribute_names(made)
    ]
    return f"{source.use('new', tuple.__new__)}({source.use(f'made{prefix}', made)}, ({', '.join(in_order)},))"


def _read_tagged_fields(
    known: Mapping[int | None, tuple[str | int, Reader[Any], Any]], form: Form, data: bytes, position: int
) -> tuple[dict[Any, Any], int]:
    """Return tagged fields by name or number. As in Kafka, lenient readers ignore the stated size of a known one."""
    is_strict = not form.is_lenient
    read_uvarint = primitives.read_minimal_uvarint if is_strict else primitives.read_uvarint
    found: dict[Any, Any] = {}
    unknown: list[tuple[int, bytes]] = []
    last_tag = -1
    count, position = read_uvarint(data, position)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if tag <= last_tag and is_strict:
            raise MalformedError(f"tag {tag} is out of order")
        last_tag = tag
        if tag not in known:
            content, position = read_content(data, position, size)
            unknown.append((tag, content))
            continue
        end = position + size
        key, read_field, default = known[tag]
        found[key], position = read_field(data, position)
        if position != end and is_strict:
            raise MalformedError(f"tag {tag} is not as long as it states")
        if is_strict and not form.is_dict and found[key] == default:
            raise MalformedError(f"tag {tag} has its default value, which is not written")
    if unknown and form.is_of_tools:
        found[UNKNOWN_TAGS] = unknown
    elif unknown and is_strict:
        raise MalformedError(f"tag {unknown[0][0]} is unknown")
    return found, position


def _field_reader(field: Field, version: int, flexible: bool, form: Form) -> Reader[Any]:
    kind, dialect = field.type, form.dialect(flexible)
    if isinstance(kind, Custom):
        return kind.codec(version, flexible)
    if isinstance(kind, Scalar):
        return _scalar_reader(kind)
    if isinstance(kind, Structure):
        read = reader_of(kind, version, flexible, form)
        return (
            partial(_read_nullable_structure, read, field.tag is not None, form.is_lenient) if field.nullable else read
        )
    if isinstance(kind, Array):
        read_length = dialect.read_nullable_array_length if field.nullable else dialect.read_array_length
        return _array_reader(read_length, kind.element, version, flexible, form)
    if kind is UUID:
        return _read_uuid_text if form.is_of_tools else read_uuid
    if kind is STRING:
        return dialect.read_nullable_string if field.nullable else dialect.read_string
    if kind is RECORDS:
        return partial(_read_records, dialect.read_length)
    return dialect.read_nullable_bytes if field.nullable else dialect.read_bytes


def _read_records(read_length: Reader[int], data: bytes, position: int) -> tuple[memoryview | None, int]:
    """Read batches of records as a view, because they may be large and are passed on."""
    length, position = read_length(data, position)
    return (None, position) if length < 0 else read_content(memoryview(data), position, length)


def _scalar_reader(kind: Scalar) -> Reader[Any]:
    number = Struct(">" + kind.code)
    unpack, size = number.unpack_from, number.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


def _read_uuid_text(data: bytes, position: int) -> tuple[str, int]:
    raw, position = read_content(data, position, 16)
    return uuid_text(raw), position


def _read_nullable_structure(
    read: Reader[Any], is_tagged: bool, is_lenient: bool, data: bytes, position: int
) -> tuple[Any, int]:
    """Read a structure behind its presence: a varint, 0 for null, if it is tagged; else an int8, negative for null."""
    presence = data[position]
    if (presence == 0) if is_tagged else (presence >= 0x80):
        return None, position + 1
    if presence != 1 and not is_lenient:
        raise MalformedError(f"the presence of a structure is {presence}")
    return read(data, position + 1)


def _array_reader(
    read_length: Reader[int], element: FieldType, version: int, flexible: bool, form: Form
) -> Reader[Any]:
    sequence: Callable[[Any], Sequence[Any]] = list if form.is_of_tools else tuple
    if isinstance(element, Scalar):
        code, size = element.code, Struct(">" + element.code).size

        def read_numbers(data: bytes, position: int) -> tuple[Sequence[int] | None, int]:
            length, position = read_length(data, position)
            if length < 0:
                return None, position
            return sequence(unpack_from(f">{length}{code}", data, position)), position + length * size

        return read_numbers
    read_element = _field_reader(Field("", element), version, flexible, form)

    def read(data: bytes, position: int) -> tuple[Sequence[Any] | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            return None, position
        elements = []
        for _ in range(length):
            value, position = read_element(data, position)
            elements.append(value)
        return sequence(elements), position

    return read


# ---------------------------------------------------------------- writing


@cache
def writer_of(fields: Structure, version: int, flexible: bool, form: Form = TOOLS, *, has_end: bool = True) -> Writer:
    """Return the writer of one version of a structure, the inverse of :func:`reader_of`.

    It raises ``MalformedError``, ``KeyError``, ``struct.error``, ``UnicodeEncodeError``, ``AttributeError`` or
    ``TypeError`` if a field is missing or does not fit. ``has_end``: whether tagged fields follow.
    """
    return writer_source(fields, version, flexible, form, has_end=has_end).compile()


def writer_source(
    fields: Structure, version: int, flexible: bool, form: Form, parameters: str = "value", *, has_end: bool = True
) -> Source:
    source = Source("write", parameters)
    plain, tagged = _present_fields(fields, version, form)
    parts = []
    for layout, run in _runs(plain):
        values = [_get_source(source, fields, present, form) for present in run]
        number, field, name = run[0]
        if layout is not None:
            parts.append(f"{source.use(f'pack{number}', Struct(layout).pack)}({', '.join(values)})")
            continue
        if not name and fields.by_name:
            parts.append(repr(_field_writer(field, version, flexible, form)(field.default)))
        else:
            parts.append(_part_source(source, run[0], values[0], version, flexible, form))
    if flexible and has_end:
        if tagged or form.is_of_tools:
            parts.append(_tagged_source(source, fields, tagged, version, form))
        else:
            parts.append(repr(b"\x00"))
    joined = parts[0] if len(parts) == 1 else f"{source.use('join', b''.join)}(({', '.join(parts)}))"
    source.add(f"return {joined}" if parts else "return b''")
    return source


def _part_source(source: Source, present: _Present, value: str, version: int, flexible: bool, form: Form) -> str:
    number, field, _ = present
    if field.type is UUID and not form.is_dict:
        return f"{value}.bytes"
    if field.type is STRING and form.is_lenient and not field.nullable:
        return f"{source.use(f'write{number}', form.dialect(flexible).write_string)}({value} or '')"
    if field.type is STRING and form.is_lenient:
        dialect = form.dialect(flexible)
        null, write = dialect.write_nullable_string(None), source.use(f"write{number}", dialect.write_string)
        return f"({null!r} if {value} is None else {write}({value}))"
    if isinstance(field.type, Structure) and field.nullable and field.tag is None and not form.is_dict:
        write = source.use(f"write{number}", writer_of(field.type, version, flexible, form))
        return f"(b'\\xff' if {value} is None else b'\\x01' + {write}({value}))"
    return f"{source.use(f'write{number}', _field_writer(field, version, flexible, form))}({value})"


def _get_source(source: Source, fields: Structure, present: _Present, form: Form) -> str:
    if form.is_dict:
        return f"value[{present.attribute!r}]" if present.attribute else "None"
    if fields.made is ALONE:
        return "value"
    if fields.made is None:
        return f"value[{present.number}]"
    if present.attribute:
        return f"value.{present.attribute}"
    return source.use(f"default{present.number}", present.field.default)


def _tagged_source(source: Source, fields: Structure, tagged: list[_Present], version: int, form: Form) -> str:
    lines, conditions = [], []
    for present in tagged:
        number, field, name = present
        write = source.use(f"write{number}", _field_writer(field, version, True, form))
        got = _get_source(source, fields, present, form)
        condition = f"{name!r} in value"
        if not form.is_dict:
            condition = f"{got} != {source.use(f'default{number}', field.default)}"
        lines.append(f"*((({field.tag}, {write}({got})),) if {condition} else ())")
        conditions.append(condition)
    if form.is_of_tools:
        lines.append(f"*value.get({UNKNOWN_TAGS!r}, ())")
        conditions.append(f"{UNKNOWN_TAGS!r} in value")
    written = f"{source.use('write_tagged', _write_tagged_fields)}([{', '.join(lines)}])"
    return f"({written} if {' or '.join(conditions)} else b'\\0')"


def _write_tagged_fields(contents: list[tuple[int, bytes]]) -> bytes:
    parts = [write_uvarint(len(contents))]
    for tag, content in sorted(contents) if len(contents) > 1 else contents:
        parts += (write_uvarint(tag), write_uvarint(len(content)), content)
    return b"".join(parts)


def _field_writer(field: Field, version: int, flexible: bool, form: Form) -> Writer:
    kind, dialect = field.type, form.dialect(flexible)
    if isinstance(kind, Custom):
        return kind.codec(version, flexible)
    if isinstance(kind, Scalar):
        return Struct(">" + kind.code).pack
    if isinstance(kind, Structure):
        write = writer_of(kind, version, flexible, form)
        null = b"\x00" if field.tag is not None else b"\xff"
        return (lambda value: null if value is None else b"\x01" + write(value)) if field.nullable else write
    if isinstance(kind, Array):
        return _array_writer(field, kind, version, flexible, form)
    if kind is UUID:
        if form.is_of_tools:
            return uuid_bytes
        return (lambda value: (value or ZERO_UUID).bytes) if form.is_lenient else attrgetter("bytes")
    if kind is STRING:
        write_string = dialect.write_nullable_string if field.nullable else dialect.write_string
        if not form.is_lenient:
            return partial(_write_named_string, field.name, write_string)
        return write_string if field.nullable else lambda text: write_string(text or "")
    return dialect.write_nullable_bytes if field.nullable or form.is_lenient else dialect.write_bytes


def _write_named_string(name: str, write: Writer, value: str | None) -> bytes:
    try:
        return write(value)
    except (MalformedError, AttributeError) as error:
        problem = (
            "is null" if value is None else f"has {len(value.encode())} bytes; at most {STRING_BYTES_MAX} fit a string"
        )
        raise MalformedError(f"the {name} {problem}") from error


def _array_writer(field: Field, kind: Array, version: int, flexible: bool, form: Form) -> Writer:
    write_length = form.dialect(flexible).write_length
    null, empty, one = write_length(-1), write_length(0), write_length(1)
    allows_null = field.nullable or form.is_lenient
    write_element = element_writer(kind, version, flexible, form)
    code = kind.element.code if isinstance(kind.element, Scalar) else None

    def write(value: Sequence[Any] | None) -> bytes:
        if not value:
            if value is None and not allows_null:
                raise MalformedError("null where it is not allowed")
            return null if value is None else empty
        length = len(value)
        if length == 1:  # nearly always
            return one + write_element(value[0])
        if code is not None:
            return write_length(length) + pack(f">{length}{code}", *value)
        return write_length(length) + b"".join([write_element(element) for element in value])

    return write


def element_writer(kind: FieldType, version: int, flexible: bool, form: Form) -> Writer:
    assert isinstance(kind, Array)
    return _field_writer(Field("element", kind.element), version, flexible, form)
