"""What addresses, placeholders, code, file names, patterns of dates and the like look like.

Most of it is one regular expression, whose quantifiers are possessive or bounded, so that no text makes it slow.  Knows
no language.  Everything else is language: "and/or", "e.g.", "5:30", "100%", "3.5", "1,200", "Mr.Smith".

    is_date_pattern("F j, Y")  # -> True: nothing in the text is language

knows the letters of Unicode (Java, .NET, Moment, Excel), of PHP, and of German forms ("TT.MM.JJJJ").  Those of strftime
("%Y-%m-%d") are placeholders.
"""

import re

from service.text.languages import UNSPACED

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
_DATE_LETTERS = frozenset("yYuJAMLFndDjlEeTHhKkGgimsSaAczZVXxPtoW")


def is_date_pattern(text: str) -> bool:
    """Whether a text has nothing but the letters of a pattern of dates or times, and signs; "y/n" is none."""
    if len(text) > _LONGEST or not _SHAPE.fullmatch(text):
        return False
    fields = [match[0] for match in _FIELDS.finditer(text) if match[1]]
    letters = {field[0] for field in fields}
    if any(len(field) > 1 for field in fields):
        return letters <= _DATE_LETTERS and len({letter.lower() for letter in letters}) > 1
    is_php = letters <= _DATE_LETTERS and len(letters) == len(fields)
    return is_php and any(letters & {*one} and letters & {*other} for one, other in (("dj", "FmMn"), ("HGhg", "i")))


# Top-level domains that are hardly ever the first word of a sentence whose space is missing ("end.it was").
_DOMAINS = (
    "ai|app|biz|ch|cloud|cn|co|com|cz|de|dev|dk|edu|eu|fi|fr|gov|gr|hu|info|io|jp|kr|li|mil|net|nl|nz|org|pl|pt|ru"
    "|shop|sk|tech|tv|ua|uk|wiki|xyz"
)
_EXTENSIONS = (
    "aac|apk|avi|bak|bash|bat|bin|bmp|bz2|cfg|conf|cpp|crt|css|csv|dart|dat|deb|dll|dmg|docx?|env|epub|exe|flac|gif|gz"
    "|heic|hpp|html?|ico|ini|ipynb|iso|jar|java|jpe?g|jsx?|json|kt|lock|log|lua|md|mkv|mov|mp[34]|mpe?g|msi|odp|ods|odt"
    "|ogg|onnx|otf|parquet|pdf|pem|php|pkl|plist|png|pot?|pptx?|proto|ps1|psd|pyc?|rar|rpm|rs|rst|rtf|safetensors|scss"
    "|sh|sln|sql|sqlite|srt|svg|swift|tar|tex|tgz|tiff?|tmp|toml|tsv|tsx?|ttf|txt|vbs|vtt|vue|wasm|wav|webm|webp|whl"
    "|woff2?|xcf|xlf|xliff|xlsx?|xml|xz|ya?ml|zip|zst"
)


def _balanced_braces(depth: int) -> str:
    """Return the pattern of braces in pairs; `depth` bounds what an opening one without its end costs."""
    pattern = r"\{[^{}]*+\}"
    for _ in range(depth - 1):
        pattern = rf"\{{(?:[^{{}}]++|{pattern})*+\}}"
    return pattern


# A piece of a web address: punctuation only where more follows, parentheses and braces in pairs.
_PIECE = (
    r"(?:[^\s<>\"`“”„«»‹›(){}\[\].,;:!?'’*|\u3000-\u303f\uff00-\uff65]|[.,;:!?'*|]++(?=[\w/%&=#+~@$-])"
    r"|\([^\s()<>]*+\)|\{[\w.]*+\})"
)
_PORT_AND_PATH = rf"(?::\d{{1,5}}+)?+(?:(?:/|[?#](?=\w)){_PIECE}*+)?+"
_PICTURE = (  # emoji, dingbats, arrows, technical and geometric signs
    "[\u00a9\u00ae\u203c\u2049\u2122\u2190-\u21ff\u2300-\u23ff\u25a0-\u2775\u2794-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001f0ff\U0001f10d-\U0001f1e5\U0001f200-\U0001faff]"
)
# Keys that are held while another one is pressed, other ones, and those whose names are no words.
_HELD = "Ctrl|Control|Strg|AltGr|Alt|Shift|Umschalt(?:taste)?|Cmd|Command|Win|Windowstaste|Meta|Super|Option|Opt|Fn"
_KEY = (
    rf"(?:{_HELD}|F\d{{1,2}}|Esc|Escape|Tab|Enter|Return|Eingabe|Space|Leertaste|Backspace|Del|Delete|Entf|Ins|Insert"
    r"|Einfg|Home|Pos1|End|Ende|PgUp|PgDn|PageUp|PageDown|Bild|Up|Down|Left|Right|Print|Druck|Pause|Plus|Minus|Klick"
    r"|Click|Scroll|Mausrad|Drag|[A-Za-z0-9])(?!\w)"
)
_LONE_KEY = "[Cc]trl|CTRL|Strg|STRG|AltGr|Entf|Einfg|PgUp|PgDn"
_BLOCK_CODES = "quote|code|list|table|spoiler|center|gallery|embed|playlist|toc"  # alone in a line
_COMMANDS_LIKE_ESCAPES = (  # of LaTeX, without their first letter
    r"(?:ext[a-z]*|iny|imes|heta|au|itle|oday|able[a-z]+|ef|ight[a-z]*|ho|ew(?:line|page|command)|oindent|eq|abla)(?![a-z])"
)
_NOT_AFTER_TEXT = r"(?<![^\s(\[\"'“„‚«])"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_NUMBER_BEGINS, _NUMBER_ENDS = r"(?<!\w)(?<!\d[.,:/-])", r"(?!\w|[.,:/-]\d)"
_LABELLED = r"(?:(?<=BIC )|(?<=BIC: )|(?<=[cC]ode )|(?<=[cC]ode: ))[A-Z][A-Z\d]{3,}+(?!\w)"

# A formula: operands with signs between them, one of which relates two sides.  An operand has no word of language.
_FUNCTION = "(?:sin|cos|tan|log|exp|max|min|lim)"
_OPERAND = (
    rf"(?:\d{{1,3}} (?![AI]\b)(?=(?:[A-Z][a-z]?\d*+){{1,9}}+(?!\w)))?+(?:{_FUNCTION}(?![a-z])|"
    r"(?![a-zß-ÿ]{3}|[A-Z][a-zß-ÿ]{2})[\w|^·×*/′%°∞√π]|['!](?=[\w(=])"
    r"|\((?![^()\n]*[^\W\d_]{4})[^()\n]{1,30}\)|\[\w{1,9}\]|[.,](?=\d)|[-−](?=\w)){1,30}+"
)
_RELATION = r"(?:[-<=]{0,2}+>=?|<(?!3\b|/?[A-Za-z][^<>]*>)[-=]?|[:!=]?=|[≤≥≈±≠≡∈∝→⇌↔])"
_WEAK = r"[-−+*/·×÷]"
_SPACED = r"[ \u00a0]?"

_TOOLS = "git|npm|npx|yarn|pip3?|docker|kubectl|apt(?:-get)?|brew|curl|wget|ssh|scp|chmod|chown|mkdir|cargo|systemctl"
_ORDERS = (
    "add|apply|build|checkout|clone|commit|compose|diff|exec|get|init|install|log|ps|pull|push|remove|restart|run|start"
    "|status|stop|test|uninstall|update|upgrade"
)
_ARGUMENT = r"(?:-[\w=-]++|\"[^\"\n]*+\"|[\w.@~-]*[/@=_:\d][\w/@=_:-]*+(?:\.\w[\w/@=_:-]*+)*+)"
_COMMAND = rf"(?:sudo )?+(?:{_TOOLS}) (?:(?:{_ORDERS})\b|{_ARGUMENT})(?: {_ARGUMENT})*+"
_QUERY = "(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|(?:CREATE|ALTER|DROP) (?:TABLE|VIEW|INDEX|DATABASE))"

EMOTICON = r"(?:[:;=](?:['^-]?[()|*/\\]|['^-][DPpOo3])|[xX]D++|\^_*+\^|[oO][._][oO]|[->][._][-<])"

# Where several kinds fit at a place, the first one here is taken.
KINDS = {
    "dates": DATES_IN_SENTENCES,
    "formula": (  # n = 1,204; a² + b² = c²; 2H2 + O2 -> 2H2O; O(n log n)
        rf"(?<![\w.'’-])(?![a-z]{{2}} ){_OPERAND}(?:{_SPACED}{_WEAK}{_SPACED}{_OPERAND}){{0,9}}+"
        rf"{_SPACED}{_RELATION}{_SPACED}{_OPERAND}(?:{_SPACED}(?:{_RELATION}|{_WEAK}){_SPACED}{_OPERAND}){{0,9}}+(?!\.?\w)"
        rf"|(?<![\w.'’-])(?:[A-Za-z]|{_FUNCTION})\((?![^()\n]*[^\W\d_]{{4}})[^()\n]{{1,30}}\)"
    ),
    "program": (  # git pull; SELECT a FROM b;
        rf"(?<![\w-]){_COMMAND}|\b(?=SELECT\b[^\n;]{{1,300}}?\bFROM\b|UPDATE \S++ SET\b|[ICAD]){_QUERY}\b[^\n;]*+;?"
    ),
    "keys": (  # Ctrl+C, Alt-F4, ⌘S
        rf"(?<![\w+-])(?i:(?:{_HELD})(?:(?:\+| \+ ){_KEY})++(?:\+[-+=](?!\w))?+)"
        rf"|(?<![\w+-])(?:(?:{_HELD})-)++(?:F\d{{1,2}}|Tab|Enter|Space|Del|Entf|Home|End|Up|Down|Left|Right|[A-Za-z0-9])"
        r"(?![\w-])|(?:[⌘⌥⌃][⇧⌘⌥⌃]*+ ?+|⇧++[⌘⌥⌃]++ ?+|⇧)\+?(?:F\d{1,2}|[A-Z0-9]|[↑↓←→⌫⏎↩⇥⎋⌦]|[,.](?=\s|\Z))(?!\w)"
        rf"|(?<![\w-])(?:{_LONE_KEY}|F(?:[1-9]|1\d|2[0-4]))(?!\w)"
    ),
    "pictures": (  # with skin tones, joiners, variation selectors, tags of flags; keycaps; a run is one
        rf"(?:(?:[\U0001f1e6-\U0001f1ff]{{1,2}}+|{_PICTURE}|[0-9#*]\ufe0f?+\u20e3)"
        rf"(?:[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]|\u200d{_PICTURE})*+)++"
    ),
    "code": r"```[^`]{1,5000}+```|``(?:[^`\n]|`(?!`)){1,500}+``|`[^`\n]{1,500}+`",
    "escape": (  # of a character in a string of a program, not a folder's name in a path; \% of LaTeX
        rf"(?:\\{{1,2}}+[nrtN](?!{_COMMANDS_LIKE_ESCAPES})|\\{{1,2}}+(?:u[0-9A-Fa-f]{{4}}|x[0-9A-Fa-f]{{2}})"
        r"|\\[%#&@$_~^])++"
    ),
    "icu": (  # the whole message: what stands in its branches is not translated
        r"\{\s*+\w++\s*+,\s*+(?:plural|selectordinal|select|choice|number|date|time|duration|list)\b"
        + _balanced_braces(6).removeprefix(r"\{")
    ),
    "templates": (
        r"[$%#]?\{\{(?:[^{}\n]{1,200}+|\{{1,2}+[^{}\n]{0,100}+\}{1,2}+){0,9}+\}\}|\[%[^%\n]{0,200}+%\]|\{%[^%\n]{0,200}+%\}|\{#[^#\n]{1,200}+#\}|[$%#@]\{[^{}\n]{1,200}+\}"
        r"|<%[^%]{0,200}+%>|<\?[^<>?]{0,200}+\?>|\*\|[^|\n]{1,60}+\|\*|\$\([^()\n]{1,200}+\)|\[\[[^\[\]\n]{1,200}+\]\]"
    ),
    "braces": r"\{[^{}\s]{0,100}+(?:\{[^{}\s]{0,100}+\}[^{}\s]{0,100}+)?+\}|\{ [\w.]{1,100}+ \}",
    "markup": (
        r"</?[A-Za-z][^<>\n]{0,500}+>|<!--[^<>]{0,500}+-->"
        r"|&(?:[A-Za-z][A-Za-z0-9]{1,30}+|#[0-9]{1,7}+|#x[0-9a-fA-F]{1,6}+);"
    ),
    "web": (
        rf"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{{1,20}}+://{_PIECE}++|(?<!\w)(?:mailto|tel|sms|magnet):(?=\S){_PIECE}++"
        rf"|(?<![\w@.-])(?:www\.(?=\w){_PIECE}++|localhost(?=[:/]\w){_PORT_AND_PATH})"
    ),
    "mail": (
        r"(?<![\w.+%-])[\w+%-](?:[\w+%-]|\.(?=[\w+%-])){0,63}+@(?:[A-Za-z0-9-]{1,63}+\.){1,6}[A-Za-z]{2,24}+(?![\w@])"
    ),
    "domain": (
        rf"(?<![\w@.-])(?:[A-Za-z0-9-]{{1,63}}+\.){{1,6}}(?:(?:{_DOMAINS})(?![\w-]|\.\w|\()|[a-z]{{2}}(?=/\w))"
        + _PORT_AND_PATH
    ),
    "phone": (  # international
        r"(?<![\w+])\+(?=(?:[ \u00a0./()-]{0,2}\d){7})\d{1,3}+(?:[ \u00a0./-]?+\(?+\d{1,8}+\)?+){1,8}+(?!\w)"
    ),
    "network": (
        rf"(?<![\w.]){_OCTET}(?:\.{_OCTET}){{3}}(?!\w|\.\d)(?::\d{{1,5}}+|/\d{{1,2}}+)?+"
        r"|(?<![\w:])[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){7}(?!\w)"
        r"|(?<![\w:])(?=[A-Fa-f:]{0,30}+\d)[0-9A-Fa-f:]{0,30}::[0-9A-Fa-f:]{0,30}+(?:/\d{1,3}+)?+(?!\w)"
        r"|(?<![\w:-])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![\w:-])"
    ),
    "tags": (r"(?<![\w@])@[A-Za-z_]\w*+(?:[.-]\w++)*+(?:[/@][\w.-]+(?<=\w))?+|(?<![\w#&])\#\w++|(?<!\w)[CFJ]\#(?!\w)"),
    "percent": (  # %name%, %1%, %#@cats@, %<name>s, dates of strftime
        r"(?<![\d%])(?:%(?!(?:[A-Za-z]|(?:hh|ll|[hlLqjzt])[diouxXeEfgGcsSp])%[\w%(])[A-Za-z_](?:[\w.:-]{0,60}\w)?%)++"
        r"|(?<![\d%])%\d{1,2}+%(?![\w%])|%(?:\d++\$)?+#@\w++@|%<\w{1,60}+>[-+0# ]*+\d*+(?:\.\d++)?+[a-zA-Z]?"
        r"|(?<![\d%])%-?(?:[YmHyBbAaIjDTFRe](?:[-/:., T]{0,2}+%[-_0]?[A-Za-z](?![^\W_]|[.:-][\w.:-]*+%(?![\w%(])))++"
        r"|d(?:[-/.] ?| )%-?[mbBY](?:[-/:., ]{1,2}+%[-_0]?[A-Za-z](?![^\W_]|[.:-][\w.:-]*+%(?![\w%(])))*+)"
    ),
    "printf": (
        r"%\(\w{1,100}+\)[-+0# ]*+\d*+(?:\.\d++)?+[a-zA-Z]|%%|(?<![\d%])%[1-9](?![\w$]|[.,]\d)"
        r"|(?<![\d%])(?<!\d[ \u00a0\u202f])%(?:\d{1,2}+\$)?+[-+0#']*+(?:\*|\d{1,4}+)?+(?:\.(?:\*|\d{1,4}+))?+"
        r"(?:hh|h|ll|l|L|q|j|z|t)?(?:[diouxXeEfgGcsSp@]|[YmHMBbAaIyZjDTRFWUVklPCLNhw](?![^\W_]))"
        r"|(?<=\d[ \u00a0\u202f])%(?:\d{1,2}+\$)?+(?:\.\d{1,2}+)?+[dfsu@](?!\w)"  # "Page 3 %s", not "50 % sure"
    ),
    "variables": (
        r"(?<![\w$])\$[A-Za-z_][\w.]{0,60}+\$(?![\w$])|(?<!\w)\$[A-Za-z_]\w*+(?:\.\w++)*+|(?<![\w:)\]}])::?[A-Za-z_]\w*+(?:-\w++)*+:?+"
        r"|(?<![\w.-])[A-Za-z_][\w.-]*+=(?=[^\s=])(?:[^\s,;)\].]|\.(?=\w))++"  # timeout=30
        rf"|(?<!\S){EMOTICON}(?![\w()/\\-])"
    ),
    "shortcodes": (  # of BBCode and WordPress: in pairs, with attributes, alone in a line; what stands in [code]
        r"\[(?:code|pre|noparse)(?:=[^\[\]\n]{0,40}+)?+\](?:[^\[]{1,500}+|\[(?!/(?:code|pre|noparse)\])){0,99}+"
        r"\[/(?:code|pre|noparse)\]|\[/[A-Za-z][\w-]{0,40}+\]"
        r"|\[(?:\*|[A-Za-z][\w-]{0,40}+)\](?=[^\n\[]{0,500}+(?:\[(?!/)[^\n\[]{0,500}+){0,5}+\[/)"
        rf"|(?<![^\n])\[(?:{_BLOCK_CODES})\](?=\s*+(?:\n|\Z))"
        r"|\[[A-Za-z][\w:-]{0,40}+(?:=[^\[\]\n]{1,300}+|(?=[^\[\]\n]{1,500}?=)(?:\s++[\w:-]{1,40}+(?:=(?:\"[^\"\n]{0,300}+\""
        r"|'[^'\n]{0,300}+'|[^\s\[\]\"']{1,300}+))?+){1,40}+)\s*+/?\]"
    ),
    "link": (  # what stands behind the text of a link in Markdown
        r"\]\((?:<[^<>\n]{0,300}+>|(?:[^\s()<>]|\([^\s()]{0,100}+\)){1,500}+)"
        r"(?: (?:\"[^\"\n]{0,200}+\"|'[^'\n]{0,200}+'))?+\)"
        r"|(?<=[\w.!?])\]\[[^\[\]\n]{1,60}+\](?!\w)"
    ),
    "marks": (  # of Markdown and MediaWiki around words
        r"(?<=[^\s*])\*{2,3}+(?!\*)|(?<!\*)\*{2,3}+(?=[^\s*])|(?<![\w*])\*(?=[\w\"'“„(\[])|(?<=[\w.!?:,;\"'”“)\]])\*(?![\w*])"
        r"|(?<![\w'])'{2,5}+(?!')|(?<!')'{2,5}+(?![\w'])"
    ),
    "footnote": r"\[\d{1,5}+(?:[,–-] ?\d{1,5}+){0,20}+\]",
    "path": (  # the third one has a backslash that begins no escape: src\lib\new
        r"(?<![\w/.~\\])(?:[A-Za-z]:[\\/]|~/|\.\.?/|\\\\(?=\w))(?:[^\s<>:\"|?*`,;()\[\]{}!.'’]|[.'’](?=[\w/\\.-]))*+"
        r"|(?<![\w/.)\]}%*<€$£¥°])/(?=[A-Za-z._~][\w./-])(?:[\w+@%~-]|\.(?=[\w.])|/(?=[\w.+@~-]))*+/?+"
        r"|(?<![\w.\\-])[\w.-]{2,60}+(?:\\(?=[nrtuxN])[\w.-]{1,60}+){0,9}+\\(?![nrtuxN])[A-Za-z][\w.-]{0,60}+(?:\\[\w.-]{1,60}+)*+"
    ),
    "command": r"(?<![\w\\])\\[A-Za-z]{2,30}+\*?+(?:\[[^\[\]\n]{0,60}+\])?+\{?",
    "file": (
        r"(?<![\w/.-])(?:[\w.+-]{1,100}+[/\\]){0,20}+(?:[\w+-]|\.(?=\w)){0,100}"
        rf"(?:(?<=\w)\.(?:{_EXTENSIONS})|(?<=/)\.\w++)(?![\w(/]|\.\w)"
        r"|(?<![\w.-])\*\.\w++|(?<![\w.])\.(?:git|env|docker|npm|bash|zsh|vim|ssh|editor)[\w-]*+(?!\.\w)"
    ),
    "flag": (
        rf"{_NOT_AFTER_TEXT}--[A-Za-z][\w-]*+(?:=(?:[^\s,;)\].]|\.(?=\w))++)?+|{_NOT_AFTER_TEXT}-[A-Za-z](?![\w'’-])"
    ),
    "opaque": (  # keys and certificates, base64, wallets, tokens, DNA, what no language has words for
        r"-----BEGIN [A-Z0-9 ]{1,40}+-----(?:\s++[A-Za-z0-9+/=]{16,}+)*+"
        r"(?:\s++[A-Za-z0-9+/]{1,15}+={0,2}+(?=\s*+-----END))?+"
        r"(?:\s*+-----END [A-Z0-9 ]{1,40}+-----)?+|-----END [A-Z0-9 ]{1,40}+-----"
        r"|(?<![\w.-])ey[IJ][\w-]{10,}+(?:\.[\w-]++)*+"
        r"|(?<![\w+/=])(?:[A-Za-z]{2,12}[-_:])?+(?=[A-Za-z]*+\d)(?=\d*+[A-Za-z])[A-Za-z0-9]{20,}+(?![\w+/=])"
        r"|(?<![\w+/=])(?=[A-Za-z+/]*+\d)(?=[A-Z0-9+/]*+[a-z])(?=[a-z0-9+/]*+[A-Z])"
        r"(?=[A-Za-z0-9+/]*?(?:[A-Za-z]\d[A-Za-z]|\+|=))[A-Za-z0-9+/]{20,}+={0,2}+(?!\w)"
        r"|(?<!\w)(?:[ACGTUN]{10,}+|[acgtun]{14,}+)(?!\w)"
        rf"|(?<!\w)(?:[^\W\d_{UNSPACED}]{{100,}}+|[XxZz*#?]{{4,}}+)(?!\w)"
        rf"|(?<!\S)[^\W{UNSPACED}](?:[^\W{UNSPACED}]|[-.,/:;+'*~|!?=]){{199,}}+"
    ),
    "hexadecimal": (  # UUID, hash, number
        r"(?<![\w-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![\w-])"
        r"|(?<![\w-])(?=[a-fA-F]*+\d)(?=\d*+[a-fA-F])(?:[0-9a-f]{7,128}+|[0-9A-F]{7,128}+)(?![\w-])"
        r"|(?<!\w)(?:sha\d{1,3}|md5):[0-9a-f]++|(?<!\w)0[xX][0-9A-Fa-f]++(?!\w)"
    ),
    "version": (  # three numbers, unless they are a date or have points after each third digit
        r"(?<![\w.])[vV]\d++(?:\.\d++)*+(?:[-+][A-Za-z0-9]++(?:\.[A-Za-z0-9]++)*+)?+(?!\w)"
        r"|(?<![\w.,])(?!\d{1,3}(?:\.\d{3})++(?![\w-]|\.\w))(?!(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.\d{4}(?!\w))"
        r"\d++(?:\.\d++){2,8}+(?:-?[A-Za-z][A-Za-z0-9]*+(?:\.[A-Za-z0-9]++)*+)?+(?:\+[A-Za-z0-9]++(?:\.[A-Za-z0-9]++)*+)?+(?!\w|\.\d)"
        r"|(?<![\w.,])\d++\.\d++-?(?:alpha|beta|rc|dev|pre|post|snapshot)(?:\.?[A-Za-z0-9]++)*+"
    ),
    "codes": (  # digits that no language writes in a way of its own
        # IBAN; (555) 010-9999; 030/123456, 0800 - 1234
        r"(?<!\w)[A-Z]{2}\d\d(?:[ \u00a0]?[A-Z]{4})?+(?:[ \u00a0]?(?=[A-Z]{0,3}\d)[A-Z\d]{4}){2,7}+"
        r"(?:[ \u00a0]?\d{1,3})?+(?!\w)"
        # E11.9
        r"|(?<![\w.-])(?!EUR|USD|GBP|CHF)[A-Z]{1,3}\d{1,4}\.\d{1,3}(?!\w|[.,]\d)"
        # INV-2024-0017, KX-440/B, 1Z999AA10123456784; B-MW 1234, AB12 CDE, SW1A 2AA; ABCD-EFGH-IJKL; BIC COBADEFFXXX
        r"|(?<![\w-])(?:(?=[\d/-]{0,40}[A-Z])(?=(?:[A-Z/-]{0,20}\d){3})[A-Z\d]++(?:[-/][A-Z\d]++)*+"
        r"|[A-ZÄÖÜ]{1,3}-[A-Z]{1,2}[ -]?\d{1,4}[EH]?|[A-Z]{2}\d\d ?[A-Z]{3}|[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}"
        rf"|[A-Z\d]{{4,}}(?:-[A-Z\d]{{4,}}){{2,}}+|{_LABELLED})(?![\w-])"
        r"|(?<!\w)\(\d{2,5}\)[ \u00a0]?\d{2,}+(?:[ \u00a0/-]\d{2,}+){0,4}+(?!\w)"
        rf"|{_NUMBER_BEGINS}(?:"
        r"0\d{1,5}+(?:[ \u00a0/-]|[ \u00a0][/-][ \u00a0])\d{2,}+(?:[ \u00a0/-]\d{2,}+){0,4}+"
        # 31.12.2024; 12/31/2024; 2024/12/31; 23:59:59; 2 1/2; 1e6
        r"|\d{1,2}\.\d{1,2}\.(?:\d{4}|\d\d)|\d{1,2}/\d{1,2}/(?:\d{4}|\d\d)|\d{4}/\d{1,2}/\d{1,2}"
        r"|\d{1,3}:\d\d:\d\d(?:[.,]\d{1,9}+)?+"
        r"|(?:\d{1,3}[ \u00a0])?+\d{1,3}+/\d{1,3}+|\d++(?:\.\d++)?+[eE][-+]?\d{1,3}+"
        # 2024-12-31, 6171-1231-1311; 4111 1111 1111 1111, 1 000 000; 555-0199; 445544
        rf"|\d++(?:(?:-\d++){{2,12}}+|(?:[ \u00a0\u202f]\d{{2,}}+){{2,12}}+)|\d{{3}}-\d{{4}}|\d{{6,}}+){_NUMBER_ENDS}"
        # 52.52001, 13.40495; 52° 31' 12" N
        r"|(?<![\w.,])[-−]?\d{1,3}\.\d{4,}+°?,[ \u00a0]?[-−]?\d{1,3}\.\d{4,}+°?(?!\w)"
        r"|(?<![\w.,])\d{1,3}°[ \u00a0]?\d{1,2}['’′](?:[ \u00a0]?\d{1,2}(?:[.,]\d++)?[\"”″])?+"
        r"(?:[ \u00a0]?[NSEWO](?!\w))?+"
    ),
    "identifier": (  # call(), a::b, list[0], userName, snake_case, __VAR__
        r"(?<!\w)[^\W\d]\w*+(?:(?:\.|::|->)[A-Za-z_]\w*+){0,8}+\(\)|(?<!\w)[A-Za-z_]\w*+(?:::[A-Za-z_~]\w*+)++"
        r"|(?<!\w)[A-Za-z]\w*+\[(?:\w*+|\"[^\"\n]{0,40}+\"|'[^'\n]{0,40}+')\]"
        r"|(?<!\w)[a-z]{2,}+[A-Z]\w*+(?:\.[a-z]\w*+)*+"
        r"|(?<!\w)(?:_*+[a-zA-Z][a-zA-Z0-9]*+(?:_++[a-zA-Z0-9]++)++_*+|__++[a-zA-Z0-9]++_*+)(?!\w)"
    ),
    "rules": r"-{3,}+>|-{4,}+|<-{3,}+|={3,}+|~{3,}+|_{3,}+|\+{3,}+|(?<!\S)\*{3,}+(?!\S)",  # frames, arrows, blanks
}

# Words that begin nothing of that kind are passed over together.
_AMOUNT = r"(?!0\d)\d{1,5}+(?!\d)(?:,\d++)*+(?:\.\d{1,3}+(?!\.?\d))?+(?![- \u00a0\u202f]\d)"
_NO_WORDS = rf"(?:[Xx]D+(?!\w)|[ACGTUN]{{10}}|[acgtun]{{14}}|[XxZz]{{4}}|{_LABELLED}|{_QUERY}\b|(?:sudo|{_TOOLS}) )"
_BEGINS = rf"(?!{DATE_BEGINS}|[^\W_]++[ \u00a0]?(?:[=<>≤≥≈±≠→⇌+*·×−]|->)|(?:{_LONE_KEY})(?!\w)|{_NO_WORDS})"
_WORD = rf"(?:[A-Z]?[^\W\d_A-Z]{{1,99}}+(?:[-'’][^\W\d_A-Z]++){{0,6}}+|[A-Z]++|{_AMOUNT})"
_PLAIN = (
    rf"(?:{_BEGINS}{_WORD}(?![\w@#/\\(\[\ufe0f\u20e3-]|[.:,+%][^\s\"”’)])(?:[\s,!?\"“”„’)–]|;(?![-)(])|[.:](?!\S))*+)++"
)

SPANS = re.compile(rf"{_PLAIN}|({'|'.join(KINDS.values())})|\w++")  # group 1: a span

# Lines of programs and shells: group 1.
CODE = re.compile(
    r"^[ \t]*+((?:\$|>>>) (?=[a-z./~_])[^\n]*+"
    r"|[^\n{]*[^\s$#%{]\s?\{(?:[^\n]*;\s?\})?"  # main() {
    r"|(?:\#(?:include|define|ifn?def)\b|import (?:\w+ as \w|[\w*]*[.{])|from [\w.]+ import "
    r"|(?:def|fn|func|function|class) \w+[(:])[^\n]*+"
    r"|[\w.\[\]'\"*&<>:, ]{1,60}[-+*/|&:]?= [^\n]++(?<=;)"  # int x = 5;
    r"|[a-z_]\w*+(?:\.\w++)*+ [-+*/]?= (?=[^\n]*[(\[{\"'])[^\n]*+"  # names = ["Tom"]
    r"|(?:[\w*&<>]++ ){0,3}[a-z_][\w.:>-]*+\((?:\)|[\w ]*+[^\w\s)])[^\n]*+(?<=;)"  # printf("Hi");
    r"|(?:print|echo|console\.\w+)\([^\n]*\)"
    r"|(?:\}? ?else )?(?:return|if|for|while|switch|elif|throw)\b"
    r"(?: [\w.]++;|(?=[^\n]*(?:\w[(\[]|[=<>!]=|[<>\"]))[^\n]*[;:])"
    rf"|{_COMMAND}(?: \w[\w-]*+(?: {_ARGUMENT})*+){{0,2}}"
    r")[ \t]*+$",
    re.MULTILINE,
)

_CHOICE = re.compile(r"\{\s*+\w++\s*+,\s*+(?:plural|selectordinal|select|choice)\b")


def has_branches(span: str) -> bool:
    """Whether a span is an ICU message with words in its branches, which are not translated."""
    if "{" not in span or not _CHOICE.search(span):
        return False
    depth = 0
    for character in span:  # branches, and those of messages in them, are every second pair of braces
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth > 0 and depth % 2 == 0 and character.isalpha():
            return True
    return False


# Marks of keys in menus: "&File", "St&art", "_Open".
_MOST_WORDS = 8  # of what stands in a menu or on a button
_SENTENCES = re.compile(r"(?<![.])[.!?](?=\s)")
_KEY_MARK = re.compile(
    r"(?<![\w&])&(?=[^\W_])(?!\w++[;=])"  # &File
    # St&art, Form&at, but not rock&roll: one half is short
    r"|(?<=\b[^\W\d_])&(?=[a-zß-ÿ]{3,}+(?![\w&]))|(?<=\b[^\W\d_]{2})&(?=[a-zß-ÿ]{2,}+(?![\w&]))"
    r"|(?<=[^\W\d_]{3})&(?=[a-zß-ÿ]{1,2}+(?![\w&]))"
    r"|(?<![\w_])_(?=[^\W\d_][^\W_]*+(?![\w(.\[]))"  # _Open
)
_EMPHASIS = re.compile(r"\w_(?!\w)")


def key_marks(text: str) -> list[int]:
    """Return where a text that may stand in a menu or on a button has a mark of a key."""
    if ("&" not in text and "_" not in text) or len(text.split()) > _MOST_WORDS or _SENTENCES.search(text):
        return []
    is_marked = (text[0].isupper() or re.search(r"_[A-ZÄÖÜ]", text)) and not _EMPHASIS.search(text)
    return [match.start() for match in _KEY_MARK.finditer(text) if match[0] == "&" or is_marked]
