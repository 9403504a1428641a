"""Files of messages for users: JSON, ARB, YAML and CSV; `app_strings.py` has the formats of single platforms.

A message is a text at a place of the file, written as the format needs it.  Only these places are written anew, so
keys, comments, order and layout stay.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from model.language_codes import subtags_of
from service.documents.draft import Answer, Lines, Notice, Part, Passage, Slot, Unit, has_language
from service.records import TextFormat
from service.text.markup_lexer import HTML

if TYPE_CHECKING:
    import yaml

_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][\w-]*)[^<>]*?(?P<empty>/?)>")
_BARE_AMPERSAND = re.compile(r"&(?!#?\w+;)")
# Names of columns and keys that are languages: longer codes, and "id", mostly mean something else.
_LANGUAGE = re.compile(r"(?!id\Z)(?:[a-z]{2}|fil)(?:[-_][A-Za-z0-9]{2,8})*")
# ICU MessageFormat: "{n, plural, one{# cat} other{# cats}}".
_CHOICE = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
_BRANCH = re.compile(r"\s*(?:offset:\d+\s*)?(?:=\d+|\w+)\s*\{")
_NO_PIECES = "the choice of this message stands within a sentence, whose words cannot be translated apart"
_NUMBER, _PLACEHOLDER = "#", "{number}"  # which a text keeps; "#" alone may be a sign


class Message(NamedTuple):
    """A text in a file, and how it is written."""

    begin: int
    end: int
    text: str
    write: Callable[[str], str]  # text -> what stands at the place
    format: TextFormat | None = None  # of the text; None: as it looks


def format_of_message(text: str) -> TextFormat:
    """Return HTML for a message of one line whose tags are in pairs; in others "<file>" and "&" are text."""
    if "<" not in text or "\n" in text.strip() or _BARE_AMPERSAND.search(text):
        return TextFormat.PLAIN
    tags = list(_TAG.finditer(text))
    balance = Counter[str]()  # start tags less end tags
    for tag in tags:
        if not tag["empty"] and tag["name"].lower() not in HTML.voids:
            balance[tag["name"].lower()] += -1 if tag["end"] else 1
    return TextFormat.HTML if tags and not any(balance.values()) else TextFormat.PLAIN


def part_of_messages(source: str, messages: Sequence[Message], fixed: Sequence[Slot] = ()) -> Part:
    """Return a file with these messages, in order.

    Args:
        fixed: what is written where any message is.
    """
    part = Part(source, also=[*fixed])
    lines = Lines(source)
    for message in messages:
        text = message.text
        if not text.isascii():  # escapes are units of UTF-16; one without its other half is no character
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        found = pieces_of(text)
        line = lines.number(message.begin)
        if found is None:
            part.lost.append(Notice(line, _NO_PIECES, text))
        elif any(map(has_language, found[1::2])):
            units = [Unit(text, message.format or format_of_message(text), line) for text in found[1::2]]
            part.passages.append(Passage(tuple(units), partial(_slots, message, found)))
    return part


def _slots(message: Message, found: Sequence[str], answers: Sequence[Answer]) -> tuple[Slot]:
    """Return a message as it is written: all pieces as they were found, but for the translated ones."""
    is_choice, new = len(found) > 3 or bool(found[0]), list(found)
    for number, answer in enumerate(answers):
        new[2 * number + 1] = answer.text.replace(_PLACEHOLDER, _NUMBER) if is_choice else answer.text
    return (Slot(message.begin, message.end, message.write("".join(new))),)


def pieces_of(text: str) -> list[str] | None:
    """Return a message in pieces, every second of which is translated: the branches of a choice, or all of it.

    None: there is a choice within a sentence, whose words nobody can translate apart.
    """
    choice = _CHOICE.search(text)
    if choice is None:
        return ["", text, ""]
    if has_language(text[: choice.start()]):
        return None
    pieces, at = [text[: choice.end()]], choice.end()
    while branch := _BRANCH.match(text, at):
        pieces[-1] += branch[0]
        end = _closing(text, branch.end())
        inner = text[branch.end() : end]
        if end < 0 or _CHOICE.search(inner):
            return None
        pieces += inner.replace(_NUMBER, _PLACEHOLDER) if _PLACEHOLDER not in inner else inner, ""
        at = end
        pieces[-1] += "}"
        at += 1
    pieces[-1] += text[at:]
    return None if has_language(text[at:]) or len(pieces) < 3 else pieces


def _closing(text: str, at: int) -> int:
    """Return where the brace is closed that was opened before; -1: nowhere."""
    depth = 1
    for match in re.compile("[{}]").finditer(text, at):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return -1


def is_language(key: str) -> bool:
    """Whether a key names the language of what is under it."""
    return bool(_LANGUAGE.fullmatch(key)) and subtags_of(key) is not None


_JSON_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*+")(?P<key>\s*+:)?+|[{}\[\]]')


def read_json(text: str, target_language: str = "", *, is_arb: bool = False) -> Part:
    """Return a JSON file, or of ARB, where what begins with "@" describes messages; raises ValueError."""
    try:
        root = json.loads(text)
    except RecursionError:
        raise ValueError("the file is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"the file is no JSON: {error}") from None
    is_escaped = text.isascii() and "\\u" in text
    messages: list[Message] = []
    fixed: list[Slot] = []
    keys: list[str] = []  # of the objects around the present place; an array has ""
    key = ""  # the last one
    for token in _JSON_TOKEN.finditer(text):
        if token["string"] is None:
            if token[0] in "{[":
                keys.append(key)
                key = ""
            else:
                key = keys.pop()
            continue
        place, said = token.span("string"), json.loads(token["string"])
        if token["key"]:
            key = said
            is_root = len(keys) == 1 and len(root) == 1 and isinstance(root[key], dict)
            if target_language and is_root and is_language(key):
                fixed.append(Slot(*place, json.dumps(target_language)))
        elif is_arb and key == "@@locale" and target_language:
            fixed.append(Slot(*place, json.dumps(target_language.replace("-", "_"))))
        elif not (is_arb and any(one.startswith("@") for one in (*keys, key))):
            messages.append(Message(*place, said, partial(json.dumps, ensure_ascii=is_escaped)))
    return part_of_messages(text, messages, fixed)


_YAML_PROPERTIES = re.compile(r"(?:[&!]\S*+\s++)++")  # anchor and tag before a value
_YAML_STRING = {None, "!", "tag:yaml.org,2002:str"}


def read_yaml(text: str, target_language: str = "") -> Part:
    """Return a YAML file, whose values keep their style; raises ValueError."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast
    messages: list[Message] = []
    fixed: list[Slot] = []
    around: list[list[bool]] = []  # of each collection: whether it is a mapping, in braces, and waits for a key
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.CollectionStartEvent):
                _passed(around)
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                around.append([is_mapping, bool(event.flow_style), True])
            elif isinstance(event, yaml.CollectionEndEvent):
                around.pop()
            elif isinstance(event, yaml.AliasEvent):
                _passed(around)
            elif isinstance(event, yaml.ScalarEvent):
                place = event.start_mark.index, event.end_mark.index
                if _passed(around):  # it is a key
                    if (
                        target_language
                        and len(around) == 1
                        and is_language(event.value)
                        and text[place[1] :].lstrip(" ").startswith(":\n")
                    ):
                        fixed.append(Slot(*place, target_language))
                elif event.tag in _YAML_STRING and (event.style or _is_yaml_string(event.value)):
                    messages.append(_yaml_message(text, place, event, bool(around and around[-1][1])))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"the file is no YAML: {' '.join(str(error).split())}") from None
    return part_of_messages(text, messages, fixed if len(fixed) == 1 else ())


def _passed(around: list[list[bool]]) -> bool:
    """Note that a node of the innermost collection begins, and return whether it is a key."""
    if not around or not around[-1][0]:
        return False
    around[-1][2] = not around[-1][2]
    return not around[-1][2]


def _is_yaml_string(value: str) -> bool:
    """Whether a value without quotes is text: neither a number nor a date, even one that no calendar has."""
    import yaml

    return bool(yaml.SafeLoader("").resolve(yaml.ScalarNode, value, (True, False)) == "tag:yaml.org,2002:str")


def _yaml_message(text: str, place: tuple[int, int], event: "yaml.ScalarEvent", is_flow: bool) -> Message:
    if (event.anchor or event.tag) and (properties := _YAML_PROPERTIES.match(text, *place)):
        place = properties.end(), place[1]
    style, written = event.style or None, text[slice(*place)]

    def write(new: str) -> str:
        if style in ("|", ">"):
            return _yaml_block(written, new, is_folded=style == ">")
        if style == "'" and "\n" not in new:
            return "'" + new.replace("'", "''") + "'"
        if style is None and _is_plain_yaml(new, is_flow=is_flow):
            return new
        return json.dumps(new, ensure_ascii=False)

    return Message(*place, event.value, write)


def _is_plain_yaml(text: str, *, is_flow: bool) -> bool:
    """Whether a text is itself without quotes."""
    import yaml

    if "\n" in text:
        return False
    try:
        return bool(yaml.safe_load(f"[{text}]") == [text] if is_flow else yaml.safe_load(f"a: {text}") == {"a": text})
    except (yaml.YAMLError, ValueError):  # ValueError: it looks like a date, and is none
        return False


def _yaml_block(written: str, new: str, *, is_folded: bool) -> str:
    """Return a text as a block with the header, the indentation and the end that there were."""
    header, _, body = written.partition("\n")
    found = re.search(r"^( +)\S", body, re.MULTILINE)
    indent = found[1] if found else "  "
    lines = new.rstrip("\n").split("\n")
    joined = ("\n\n" if is_folded else "\n").join(f"{indent}{line}" if line else "" for line in lines)
    return f"{header}\n{joined}{body[len(body.rstrip()) :]}"


_SOURCES, _TARGETS = {"source", "source text", "original"}, {"target", "target text", "translation"}


def read_csv(text: str, target_language: str = "") -> Part:
    """Return a file in columns; raises ValueError if its quotes do not match.

    A column of the source language fills one of the target's; without these, cells are translated in place.
    """
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count) if first else ","
    rows = list(_rows(text, delimiter))
    source, target = _columns([cell.text.strip().lower() for cell in rows[0]] if rows else [], target_language)
    messages: list[Message] = []
    for row in rows[1:] if target is not None or len(rows) > 1 else rows:
        if source is None or target is None:
            messages += row
        elif max(source, target) < len(row) and not row[target].text.strip():
            messages.append(row[target]._replace(text=row[source].text))
    return part_of_messages(text, messages)


def _columns(head: list[str], target_language: str) -> tuple[int | None, int | None]:
    """Return the places of the columns with sources and targets, None where there are none."""
    tag = target_language.lower().replace("_", "-")
    names = [name.replace("_", "-") for name in head]
    target = next(
        (i for i, name in enumerate(names) if name in _TARGETS or (tag and name in {tag, tag.partition("-")[0]})), None
    )
    sources = (i for i, name in enumerate(names) if i != target and (name in _SOURCES or is_language(name)))
    return next(sources, None), target


def _rows(text: str, delimiter: str) -> Iterator[list[Message]]:
    """Yield the cells of each row that is not empty."""
    cell = re.compile(rf'"(?P<quoted>(?:[^"]|"")*+)"|(?P<bare>(?!")[^{re.escape(delimiter)}\r\n]*+)')

    def write(new: str) -> str:
        needs_quotes = any(character in new for character in f'{delimiter}"\r\n') or new != new.strip()
        return '"' + new.replace('"', '""') + '"' if needs_quotes else new

    row: list[Message] = []
    at = 0
    while at <= len(text):
        match = cell.match(text, at)
        end = match.end() if match else at
        following = text[end : end + 1]
        if match is None or following not in ("", delimiter, "\r", "\n"):
            raise ValueError(f"line {Lines(text).number(at)} has a quote that is not closed, or text behind one")
        said = match["quoted"].replace('""', '"') if match["quoted"] is not None else match["bare"]
        row.append(Message(at, end, said, write))
        at = end + 1
        if following != delimiter:
            at += text.startswith("\r\n", end)
            if len(row) > 1 or row[0].text:
                yield row
            row = []
