"""What the formats of marked-up text differ in."""

from dataclasses import dataclass

from service.records import TextFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Elements and attributes by what they mean for a translation; names in HTML are in lower case."""

    is_xml: bool = True
    blocks: frozenset[str] = frozenset()  # end a segment
    voids: frozenset[str] = frozenset()  # have no end tag
    raw: frozenset[str] = frozenset()  # contain no markup
    untouched: frozenset[str] = frozenset()  # come back as they are, with their content
    unseen: frozenset[str] = frozenset()  # those of them, and of `notes`, whose content is no text
    notes: frozenset[str] = frozenset()  # belong to the word before them where they hold no letter
    links: frozenset[str] = frozenset()  # likewise, where they hold nothing but a number or a sign, and touch the word
    breaks: frozenset[str] = frozenset()  # separate words as white space does; two of them end a segment
    attributes: frozenset[str] = frozenset()  # their values are language
    openers: frozenset[str] = frozenset()  # untouched elements that open something ...
    closers: frozenset[str] = frozenset()  # ... and close it


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


HTML = Syntax(
    is_xml=False,
    blocks=_names(
        """
        address article aside base blockquote body button caption center col colgroup dd details dialog dir div dl dt
        fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html label legend
        li link main menu meta nav noframes noscript ol optgroup option p pre search section select summary table tbody
        td template textarea tfoot th thead title tr ul
        """
    ),
    voids=_names("area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"),
    raw=_names("iframe noembed noframes script style textarea xmp"),
    untouched=_names("code iframe kbd math noembed noframes pre samp script style svg textarea tt var xmp"),
    unseen=_names("iframe math noembed noframes script style sub sup svg"),
    notes=_names("sub sup"),
    links=_names("a span"),
    breaks=_names("br"),
    attributes=_names("alt aria-label placeholder title"),
)
XML = Syntax()
# XLIFF 1.2: bpt and ept hold the codes of a pair, bx and ex stand for them, it and ph hold what has no partner.
# XLIFF 2: sc and ec are the ends of a pair, sm and em those of an annotation.
XLIFF = Syntax(
    untouched=_names("bpt ept it ph"),
    unseen=_names("bpt ept it"),
    openers=_names("bpt bx sc sm"),
    closers=_names("ept ex ec em"),
)
SYNTAXES = {TextFormat.HTML: HTML, TextFormat.XML: XML, TextFormat.XLIFF: XLIFF}
