"""Patterns of dates and times, as programs and forms write them: "dd.MM.yyyy", "MMM d, yyyy 'at' h:mm a", "F j, Y".

    is_date_pattern("F j, Y")  # -> True: nothing in the text is language

Knows the letters of Unicode (Java, .NET, Moment, Excel), of PHP, and of German forms ("TT.MM.JJJJ").  Those of strftime
("%Y-%m-%d") are placeholders.  Takes linear time, as `patterns.py`.
"""

import re

# A field is a letter as often as it may stand there.
_FIELD = (
    "(?:y{2,4}+|Y{2,4}+|J{2,4}+|A{2,4}+|M{1,5}+|d{1,4}+|D{1,4}+|T{1,2}+|E{1,4}+|H{1,2}+|h{1,2}+|m{1,2}+|s{1,2}+"
    "|S{1,3}+|t{1,2}+)"
)
_JOINED = rf"{_FIELD}(?:[./:-]{_FIELD})++"
_TWICE = "(?:yy|YY|JJ|AA|MM|dd|DD|TT|HH|hh|mm|ss)"  # one of these is there: "d.h." is no date
_ENDS = r"(?![\w/:@-]|\.\w)"  # nor does it begin an address
# What stands in sentences: fields that signs join, those of fixed width, and the long form with a month in words.
DATES_IN_SENTENCES = (
    rf"(?<![\w.])(?=[A-Za-z./:-]{{0,14}}?{_TWICE}){_JOINED}(?:(?:,? |T|'T'|_){_JOINED}{_ENDS})?+"
    r"(?: (?:a|tt|TT)(?=[)\"'”“,;]|\.(?!\w)|\s*+\Z))?+"
    rf"{_ENDS}|(?<!\w)(?:yyyyMMdd|YYYYMMDD|JJJJMMTT)(?:'?[T_-]?'?HHmm(?:ss)?+)?+(?![\w@])"
    r"|(?<![\w.])(?:E{3,4}+,? |d{4}+,? )?+(?:[dD]{1,2}+\.?+ M{2,4}+|M{2,4}+ [dD]{1,2}+)(?:,? (?:y{2,4}+|Y{2,4}+))?+"
    rf"(?:,? {_JOINED}{_ENDS})?+(?![\w@])"
)
# Words with which such a pattern may begin.
DATE_BEGINS = r"(?:M{2,4}+|E{3,4}+|[dD]{1,4}+(?=[.,]?+ M|-[mM])|[yY]{2,4}+(?=-[mM]))(?![^\W_])"

_LONGEST = 60  # characters
_SHAPE = re.compile(r"(?:'[^'\n]*+'|\[[^\]\n]*+\]|jS(?![a-zA-Z])|([A-Za-z])\1{0,4}+(?![a-yA-Y])|[^\w'\[])+")
_FIELDS = re.compile(r"'[^'\n]*+'|\[[^\]\n]*+\]|([A-Za-z])\1*+")
_UNICODE = {  # by letter; fields of any width
    **dict.fromkeys("yYuJA", "year"),
    **dict.fromkeys("ML", "month"),
    **dict.fromkeys("dDEecT", "day"),
    **dict.fromkeys("HhKk", "hour"),
    **dict.fromkeys("m", "minute"),
    **dict.fromkeys("sS", "second"),
    **dict.fromkeys("azZVXxGtoW", ""),
}
_PHP = {  # each letter stands once
    **dict.fromkeys("Yy", "year"),
    **dict.fromkeys("FmMn", "month"),
    **dict.fromkeys("dj", "day"),
    **dict.fromkeys("HGhg", "hour"),
    **dict.fromkeys("i", "minute"),
    **dict.fromkeys("s", "second"),
    **dict.fromkeys("DlaATePS", ""),
}


def is_date_pattern(text: str) -> bool:
    """Whether a text has nothing but the letters of a pattern of dates or times, and signs; "y/n" is none."""
    if len(text) > _LONGEST or not _SHAPE.fullmatch(text):
        return False
    fields = [match[0] for match in _FIELDS.finditer(text) if match[1]]
    letters = {field[0] for field in fields}
    if letters <= _UNICODE.keys() and any(len(field) > 1 and _UNICODE[field[0]] for field in fields):
        return len({_UNICODE[letter] for letter in letters} - {""}) > 1
    units = [_PHP[field] for field in fields if _PHP.get(field)]
    is_php = letters <= _PHP.keys() and len(units) == len(set(units))
    return is_php and ({"hour", "minute"} <= set(units) or {"day", "month"} <= set(units))
