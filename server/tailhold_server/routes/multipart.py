"""One file and some short fields, as `multipart/form-data`, handed on as they come."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.message import Message

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.uploads.names import checked_name

KIND = "multipart/form-data"
_FIELD_BYTES = 4096
_HEADER_BYTES = 16384
_MOST_PARTS = 16


@dataclass
class Form:
    """What a form held beside its file."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    """None where it held no file."""


@dataclass
class _Part:
    name: str = ""
    filename: str | None = None
    data: bytearray = field(default_factory=bytearray)


class FormReader:
    """Reads one form. The file's bytes go to `take`, piece by piece."""

    def __init__(self, content_type: str, take: Callable[[bytes], Awaitable[object]]) -> None:
        self._take = take
        self._form = Form()
        self._part = _Part()
        self._header, self._value = bytearray(), bytearray()
        self._header_bytes = self._parts = 0
        self._pieces: list[bytes] = []
        self._ended = False
        self._parser = MultipartParser(
            _boundary(content_type),
            {
                "on_part_begin": self._begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._header_end,
                "on_part_data": self._on_data,
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
        )

    async def read(self, pieces: AsyncIterator[bytes]) -> Form:
        """To the end. Raises ServeError."""
        async for piece in pieces:
            try:
                self._parser.write(piece)
            except FormParserError as error:
                raise invalid(f"the form cannot be read: {error}") from None
            if taken := b"".join(self._pieces):
                self._pieces.clear()
                await self._take(taken)
        if not self._ended:
            raise invalid("the form is cut: its last boundary did not come")
        return self._form

    def _begin(self) -> None:
        self._part = _Part()
        self._header_bytes = 0
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise invalid(f"the form has more than {_MOST_PARTS} parts")

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _HEADER_BYTES:
            raise invalid(f"a part of the form has headers of more than {_HEADER_BYTES} bytes")

    def _header_end(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            options = parse_options_header(bytes(self._value))[1]
            self._part.name = options.get(b"name", b"").decode(errors="replace")
            name = _filename(bytes(self._value), options.get(b"filename"))
            if name is not None:
                self._start_file(name)
        self._header, self._value = bytearray(), bytearray()

    def _start_file(self, filename: str) -> None:
        if self._part.name != "file":
            raise invalid(f"`{self._part.name[:100]}` is a file: only `file` may be one", "file")
        if self._form.filename is not None:
            raise invalid("the form has more than one file: upload one at a time", "file")
        self._form.filename = self._part.filename = checked_name(filename, "file") if filename else ""

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._part.filename is not None:
            self._pieces.append(data[start:end])
            return
        self._part.data += data[start:end]
        if len(self._part.data) > _FIELD_BYTES:
            name = self._part.name[:100]
            raise invalid(f"`{name}` has more than {_FIELD_BYTES} bytes", name or None)

    def _part_end(self) -> None:
        if self._part.filename is None:
            self._form.fields[self._part.name] = bytes(self._part.data).decode(errors="replace")

    def _end(self) -> None:
        self._ended = True


def _filename(disposition: bytes, plain: bytes | None) -> str | None:
    """What a part's file is called; None where it is no file. Raises ServeError.

    `filename*`, which some clients send though RFC 7578 has forms without it, wins over the plain one (RFC 6266).
    """
    message = Message()
    message["content-disposition"] = disposition.decode("latin-1")
    given = message.get_params([], "content-disposition")
    found = [value for key, value in given if key.lower() == "filename"]
    extended = [value for value in found if isinstance(value, tuple)]
    if extended:
        return _decoded(*extended[-1])
    if plain is not None:
        return plain.decode(errors="replace")
    return found[-1] if found else None  # in pieces: `filename*0`, `filename*1`


def _decoded(charset: str | None, _: str | None, value: str) -> str:
    try:
        if (charset or "").lower() not in ("utf-8", "iso-8859-1"):
            raise UnicodeError
        return value.encode("latin-1").decode(str(charset))
    except UnicodeError:
        told = "`filename*` of `file` cannot be read: give `UTF-8''` and the percent-encoded name, or `filename`"
        raise invalid(told, "file") from None


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != KIND.encode():
        told = f"`Content-Type` is `{content_type[:100]}`: send {KIND}"
        raise ServeError(Failure.MEDIA_TYPE, told, param="content-type")
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 200:
        raise invalid("`Content-Type` names no boundary", "content-type")
    return boundary
