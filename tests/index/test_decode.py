from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailhold_server.ingest.decode import decode
from tailhold_server.ingest.report import UnreadableError, Why


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("The ‘quiet’ room costs 5 € per hour.".encode("cp1252"), "The ‘quiet’ room costs 5 € per hour."),
        ("Visitors need a badge.".encode("utf-16"), "Visitors need a badge."),
        ("Visitors need a badge.".encode("utf-16-le"), "Visitors need a badge."),
        ("Visitors need a badge.".encode("utf-16-be"), "Visitors need a badge."),
        ("Visitors need a badge.".encode("utf-32"), "Visitors need a badge."),
        (b"\xef\xbb\xbfid,text\n1,Lunch is at noon\n", "id,text\n1,Lunch is at noon\n"),
        ("会议室在三楼".encode("gbk"), "会议室在三楼"),
        ("회의실은 삼층에 있습니다.".encode("cp949"), "회의실은 삼층에 있습니다."),
        (
            "東京都の会議室は三階です。受付で名前を書いてください。".encode("shift_jis"),
            "東京都の会議室は三階です。受付で名前を書いてください。",
        ),
        ("Привет, как дела? Это текст.".encode("cp1251"), "Привет, как дела? Это текст."),
        ("El niño llegó mañana según Müller".encode("latin-1"), "El niño llegó mañana según Müller"),
        (b'<meta charset="iso-8859-2"><p>\xb3\xf3d\xbc', '<meta charset="iso-8859-2"><p>łódź'),
        (b"pay\x00roll day is the 25th", "payroll day is the 25th"),
    ],
)
def test_c85_c88_text_is_readable_whatever_its_encoding(data: bytes, text: str) -> None:
    assert decode(data).text == text


def test_c88_what_the_transport_declares_is_honoured() -> None:
    assert decode(b"caf\xe9", "iso-8859-1").text == "café"
    assert decode("naïve".encode(), "iso-8859-1").text == "naïve", "UTF-8 proves itself"


def test_c88_a_guess_says_how_sure_it_is() -> None:
    assert decode(b"plain").confidence == 1
    assert 0 <= decode("Größenwahn überall".encode("cp1252")).confidence <= 1


def test_c88_what_is_no_text_fails_alone() -> None:
    with pytest.raises(UnreadableError) as failed:
        decode(b"ok \xff\xfe\x00 \xc3\x28 end")
    assert failed.value.reason is Why.ENCODING


@pytest.mark.parametrize("name", ["hex", "zip", "rot13", "idna", "unknown-8", "undefined"])
def test_a_declared_codec_that_is_no_encoding_is_left_alone(name: str) -> None:
    assert decode(b"\xe9t\xe9 charset=" + name.encode()).text


@pytest.mark.parametrize(
    "name", ["unicode_escape", "raw_unicode_escape", "Unicode-Escape", "idna", "punycode", "utf-7"]
)
def test_a_declared_codec_of_escapes_is_not_used(name: str) -> None:
    text = decode(b"\\ud800 +2AA- caf\xe9", name).text
    assert text.startswith("\\ud800 +2AA- caf")
    text.encode()


@given(st.text(st.characters(codec="utf-8")))
def test_utf_8_loses_nothing_but_nul(text: str) -> None:
    if text.encode().count(0) <= len(text) // 8 and not text.startswith("\ufeff"):
        assert decode(text.encode()).text == text.replace("\0", "")


@settings(deadline=None, max_examples=600)
@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_a_failure_of_their_own(data: bytes) -> None:
    with suppress(UnreadableError):
        assert "\0" not in decode(data).text
