"""Text of HTML pages."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

_DROPPED = frozenset(
    {
        "script",
        "style",
        "noscript",
        "template",
        "nav",
        "header",
        "footer",
        "aside",
        "form",
        "button",
        "select",
    }
    | {"svg", "iframe", "object"}
)
_DROPPED_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "menu", "menubar"})
_DROPPED_NAMES = frozenset(
    {
        "nav",
        "navbar",
        "navigation",
        "docnav",
        "breadcrumb",
        "breadcrumbs",
        "menu",
        "pagination",
        "toc",
        "banner",
    }
    | {"headerlink", "skip-link"}
)
"""Words of `class` and `id` that mark navigation; not `sidebar`, which holds text in many books."""
_INLINE = frozenset(
    {
        "a",
        "abbr",
        "acronym",
        "b",
        "bdi",
        "bdo",
        "big",
        "cite",
        "code",
        "data",
        "del",
        "dfn",
        "em",
        "font",
        "i",
    }
    | {"img", "input", "ins", "kbd", "label", "mark", "meter", "output", "q", "rp", "rt", "ruby", "s", "samp"}
    | {"small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr"}
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_CELLS = frozenset({"td", "th"})
_VERBATIM = frozenset({"pre", "textarea"})
"""Kept as they are, within a fence: a shell's prompt is no heading."""
_MANY_LINKS = 0.25
"""Share of a page's words within links above which they are taken for menus."""
_LOSSLESS = 0.97
"""Share of the words outside links that an article's text must keep, or the page's whole text is taken."""
_SPACES = re.compile(r"[ \t\r\n\f\v\u00a0]+")
_KEPT_SPACE = "\x01"
"""Stands for a space of a <pre> until the others are tidied."""
_BREAK = "\n"
_PARAGRAPH = "\n\n"


def read_html(text: str) -> tuple[str, str]:
    """Title and text; nothing raises, however broken the markup.

    The text is all that stands outside navigation, headings and lists as in Markdown. A page full of links
    has the article extractor's, which knows menus without a tag, unless that drops more than links.
    """
    root = _parse(text)
    if root is None:
        return "", ""
    for element in list(root.iter()):
        if _is_dropped(element):
            _remove(element)
    title, whole, unlinked = _title(root), _tidy(_walk(root)), _tidy(_walk(root, links=False))
    if _words(unlinked).total() > _words(whole).total() * (1 - _MANY_LINKS):
        return title, whole
    article = _article(root)
    return title, article if article is not None and _keeps(article, unlinked) else whole


def _parse(text: str) -> Any:
    from lxml import etree, html  # type: ignore[import-untyped]

    # Text that names its own encoding is refused as str, and a NUL ends a parse early.
    clean = re.sub(r"^\s*<\?xml[^>]*\?>", "", text.replace("\0", "").replace(_KEPT_SPACE, ""))
    try:
        parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
        return html.document_fromstring(clean.encode("utf-8", "replace"), parser=parser)
    except (etree.LxmlError, ValueError):
        return None


def _is_dropped(element: Any) -> bool:
    if not isinstance(element.tag, str):
        return True
    return (
        element.tag in _DROPPED
        or element.get("role") in _DROPPED_ROLES
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or not _DROPPED_NAMES.isdisjoint(_names(element))
    )


def _names(element: Any) -> list[str]:
    return f"{element.get('class', '')} {element.get('id', '')}".lower().split()


def _remove(element: Any) -> None:
    # A heading within <header> of an article is its title; only what frames the page is dropped.
    if element.getparent() is None or (element.tag == "header" and _within(element, {"article", "main"})):
        return
    element.drop_tree()


def _within(element: Any, tags: set[str]) -> bool:
    return any(parent.tag in tags for parent in element.iterancestors())


def _walk(element: Any, *, links: bool = True, verbatim: bool = False) -> Iterator[str]:
    tag = element.tag
    if tag in {"head", "title"} or (tag == "a" and not links):
        return
    before, after = ("", "") if verbatim else _around(tag)
    verbatim = verbatim or tag in _VERBATIM
    yield before
    yield from _own(element.text, verbatim)
    for child in element:
        yield from _walk(child, links=links, verbatim=verbatim)
        yield from _own(child.tail, verbatim)
    yield after


def _around(tag: str) -> tuple[str, str]:
    if tag in _HEADINGS:
        return f"{_PARAGRAPH}{_HEADINGS[tag]} ", _PARAGRAPH
    if tag == "li":
        return f"{_BREAK}- ", _BREAK
    if tag in _VERBATIM:
        return f"{_PARAGRAPH}```{_BREAK}", f"{_BREAK}```{_PARAGRAPH}"
    if tag in _CELLS:
        return "", "\t"
    if tag in {"br", "tr", "dt", "dd", "hr", "option"}:
        return _BREAK, _BREAK
    return ("", "") if tag in _INLINE else (_PARAGRAPH, _PARAGRAPH)


def _own(text: str | None, verbatim: bool) -> Iterator[str]:
    if text:
        yield text.expandtabs().replace(" ", _KEPT_SPACE) if verbatim else _SPACES.sub(" ", text)


def _tidy(pieces: Iterable[str]) -> str:
    text = re.sub(r" *\n *", _BREAK, "".join(pieces))
    text = re.sub(r" *\t *", " \t", text)
    text = re.sub(r"(?m)^(#+|-)\s*\n+(?=[^\s#-])", r"\1 ", text)
    text = re.sub(r"(?m)^(#+|-)\s*$|[ \t]+$", "", text)
    return re.sub(r"\n{3,}", _PARAGRAPH, text).strip().replace(_KEPT_SPACE, " ")


def _article(root: Any) -> str | None:
    import trafilatura

    return trafilatura.extract(root, output_format="txt", favor_recall=True, include_comments=False)


def _keeps(article: str, body: str) -> bool:
    wanted = _words(body)
    return (wanted - _words(article)).total() <= wanted.total() * (1 - _LOSSLESS)


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))


def _title(root: Any) -> str:
    for tag in ("title", "h1", "h2"):
        found = root.find(f".//{tag}")
        if found is not None and (title := _SPACES.sub(" ", found.text_content()).strip()):
            return title
    return ""
