"""YAML: string values, written in the style that they had; comments, anchors and aliases stay."""

import json
import re

import yaml

from service.documents.draft import Draft, Slot
from service.documents.messages import Message, draft_of_messages, is_language

_PROPERTIES = re.compile(r"(?:[&!]\S*+\s++)++")  # anchor and tag before a value
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast
_STRING = {None, "!", "tag:yaml.org,2002:str"}


def read(text: str, target_language: str = "") -> Draft:
    """Return the draft of a YAML file; raises ValueError."""
    messages: list[Message] = []
    fixed: list[Slot] = []
    around: list[list[bool]] = []  # of each collection: whether it is a mapping, in braces, and waits for a key
    try:
        for event in yaml.parse(text, Loader=_LOADER):
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
                elif event.tag in _STRING and (event.style or isinstance(yaml.safe_load(event.value), str)):
                    messages.append(_message(text, place, event, bool(around and around[-1][1])))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"the file is no YAML: {' '.join(str(error).split())}") from None
    return draft_of_messages(text, messages, fixed if len(fixed) == 1 else ())


def _passed(around: list[list[bool]]) -> bool:
    """Note that a node of the innermost collection begins, and return whether it is a key."""
    if not around or not around[-1][0]:
        return False
    around[-1][2] = not around[-1][2]
    return not around[-1][2]


def _message(text: str, place: tuple[int, int], event: yaml.ScalarEvent, is_flow: bool) -> Message:
    if (event.anchor or event.tag) and (properties := _PROPERTIES.match(text, *place)):
        place = properties.end(), place[1]
    style, written = event.style or None, text[slice(*place)]

    def write(new: str) -> str:
        if style in ("|", ">"):
            return _block(written, new, is_folded=style == ">")
        if style == "'" and "\n" not in new:
            return "'" + new.replace("'", "''") + "'"
        if style is None and _is_plain(new, is_flow=is_flow):
            return new
        return json.dumps(new, ensure_ascii=False)

    return Message(*place, event.value, write)


def _is_plain(text: str, *, is_flow: bool) -> bool:
    """Whether a text is itself without quotes."""
    if "\n" in text:
        return False
    try:
        return bool(yaml.safe_load(f"[{text}]") == [text] if is_flow else yaml.safe_load(f"a: {text}") == {"a": text})
    except yaml.YAMLError:
        return False


def _block(written: str, new: str, *, is_folded: bool) -> str:
    """Return a text as a block with the header, the indentation and the end that there were."""
    header, _, body = written.partition("\n")
    found = re.search(r"^( +)\S", body, re.MULTILINE)
    indent = found[1] if found else "  "
    lines = new.rstrip("\n").split("\n")
    joined = ("\n\n" if is_folded else "\n").join(f"{indent}{line}" if line else "" for line in lines)
    return f"{header}\n{joined}{body[len(body.rstrip()) :]}"
