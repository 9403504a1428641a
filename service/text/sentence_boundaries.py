"""Where the sentences of running text begin.

German and English: each place behind a mark that may end a sentence is decided by what stands before and behind it
(`_Rules`); no splitter that was measured comes near them (`bench/quality/sentence_boundaries.py`).  Other languages:
sentencex.  Knows no lines and no spans; linear in time.

Sources of the abbreviations: Unicode's CLDR (common/segments, "suppressions"), pragmatic-segmenter and Duden, without
what is more often a word ("Alt.", "Link.", "Test.").  They are in lower case and without their last point.
"""

import re
from collections.abc import Iterator

from sentencex import segment as split_sentences

from service.text.numbers import MONTHS, SHORT_MONTHS


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


# The sentence always goes on behind them, whatever follows.
NEVER_LAST = {
    "de": _words(
        """
        abzgl allg ausschl dr prof hr hrn beil betr bez bzgl bzw ca dgl.z d.h d.i einschl entspr etw evt evtl exkl ggf
        ggfs gem i.d.r i.e inkl insb insbes lt m.e m.w mind möbl näml o.g resp sog sogen spez s.g tägl u.u ugs urspr
        ursprüngl v.a vgl vs wg z.b z.hd z.t z.zt zw zuzügl zzgl zzt
        """
    ),
    "en": _words(
        """
        approx ca cf e.g esp excl i.e incl resp viz vs capt cmdr dr gov hon lt messrs mlle mme mr mrs ms msgr prof rev
        sgt
        """
    ),
}

# The sentence goes on behind them unless the next word is one that begins sentences.  `_is_abbreviation` knows those
# without a vowel.
ABBREVIATIONS = {
    "de": _words(
        """
        a.a.o a.d abb abk abs abschn abt abw adj adr adv ahd akad angest anl anm ao app apr arch aug ausg bde begr
        beisp bem ber bes best bevollm biogr buchst chin co corp dat dept dez dim doz durchschn e.v ehem eidg einh
        em empf erf erg erl erw esq etc ev exz f fa fam feb febr fig forts frankr geb gebr gedr geg gegr gek gen ges
        gesch geschl gest gez griech habil hl hon i.a i.v inc ing inh inst int ital jahrh jan jap jew jul jun kap
        kath komp konv kop landw lat led lic lit maj masch math max med min mio mod n.chr nachf nachm no nov o.ä obb
        obj od okt op orth pat phil philos phys pol port priv prot proz psych qu red reg rel rep rez russ röm s.a
        s.o s.u schles schweiz schwäb sek sen sep sept span spezif stellv stud südd tab techn tel temp theol u.a
        u.dgl u.v.a u.v.m u.ä uff univ usf usw v.chr verb verf verh verl vers verw vet viell vol vorm vors wwe zit
        österr übers übl
        """
    ),
    "en": _words(
        """
        a.d a.k.a a.s.a.p abbr acad acct addr adj adm admin adv al alt apt arr assn assoc asst attn attrib aug auth
        ave avg b.a b.c b.sc bibl bros cap cent cert chap chron co comm comp conf cont contd corp cres cu d.c dec
        def deg dept diag diam dict dist div doc doz e.u ea eccl econ ed edn eds enc encl eng engr eq eqn eqs esq
        est etc ext feb fed freq fwy gal gaz geog geom govt gram hist hosp hwy illus inc ing inst instr intl introd
        jan jul jun kg lab lang lat lib lic lieut lit m.a m.d m.sc maj manuf max mech med min mins misc mod natl nov
        num obs occas oct orch org orig oz p.o p.s ph.d phil photog phys pref prelim prep pres prob proc prop prov
        pseud psych pub publ qty quot r.s.v.p recd rect ref refs rel repr rept rte sched sci sen sens sep sept ser
        soc spec stat ste suppl supt surg tech tel temp terr trans transl treas u.k u.n u.s u.s.a univ vac ver vet
        vocab vol vols yd yds yr yrs
        """
    ),
}

# They close a list: the sentence ends before any capital.
CLOSE_LISTS = _words("etc o.ä u.ä u.dgl u.s.w u.v.m usf usw")

# As those, but only in this case: other words, or words of German, are written in the same letters.
CAPITALISED = {
    "de": _words("Di Do Fr Mag Mi Min Mo Sa So"),
    "en": _words("Col Fr Fri Gen Mar Mon Rep Sat Sec Sun Thu Thur Thurs Tue Tues Wed"),
}

# Abbreviations where a number, a Roman one or a letter follows; else words, or a sentence of their own ("No.").
NUMBERED = {
    "de": _words("art"),
    "en": _words(
        "abs app appx art arts bk c ch chs col cols ex exs fig figs no nos op p para paras pp sec secs tab vs"
    ),
}

# What follows a time of day in its sentence ("8 p.m. Saturday").
AFTER_TIMES = _words(
    """
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun Eastern
    Central Mountain Pacific Atlantic Greenwich GMT UTC EST EDT CST CDT MST MDT PST PDT CET CEST BST IST
    """
)

# Words that begin sentences and, in upper case, hardly anything else: no names, no nouns.
STARTERS = {
    "de": _words(
        """
        ab aber alle alles allerdings als also am an andere anschließend auch auf aus außer außerdem bald bei beide
        beim bevor bis bitte da dabei dadurch dafür dagegen daher dahin damals damit danach dann daran darauf daraus
        darum darüber darunter das dass davon davor dazu dein deine deinen deiner dem den denn dennoch der deren des
        deshalb dessen deswegen die dies diese diesem diesen dieser dieses doch dort drei du durch ebenso eigentlich
        ein eine einem einen einer eines einige einmal endlich entweder er erst es etwas euer eure falls fast fünf für
        ganz gar gegen genau gestern gibt gleich habe haben hat hatte hatten hast heute hier hinter ich ihm ihn ihnen
        ihr ihre ihren ihrer im immer in ins inzwischen irgendwann ist ja jede jeder jedes jedoch jemand jene jetzt
        kann kein keine keiner keines können kommt komm lass leider letztlich man manche manchmal mehr mein meine
        meinem meinen meiner mit möchte möchten muss müssen nach nachdem nachher natürlich neben nein nicht nichts nie
        niemand noch nun nur ob obwohl oder oft ohne plötzlich schade schließlich schon sehr sein seine seinem seinen
        seiner seit seitdem sich sie sieben sind so sobald sofort sogar solange solche soll sollte sollten sondern
        sonst später sowie trotz trotzdem über überall übrigens um und uns unser unsere unserem unseren unserer unter
        viele vielen vielleicht vier vom von vor vorher während wann war waren warum was wegen weil weiter weitere
        welche welcher welches wem wen wenn wer werden wessen weshalb wie wieder wieso wieviel will wir wird wirklich
        wo wobei wodurch wofür woher wohin womit wurde wurden zehn zu zudem zuerst zuletzt zum zunächst zur zusammen
        zwar zwei zwischen zwölf acht neun sechs elf danke erstens zweitens drittens viertens obgleich sooft sodass
        hallo achtung ebenfalls abends morgens mittags nachts gern gerne genauso selbst dieselbe derselbe jahrelang
        wahrscheinlich vermutlich offenbar möglicherweise hoffentlich
        """
    ),
    "en": _words(
        """
        a about above according actually after afterwards again ago all almost along already also although always am
        among an and another any anybody anyone anything apparently are as ask at away be because before behind below
        beside besides between both but by call can cannot come could despite did do does don't during each either
        else even eventually every everybody everyone everything except few finally first following for fortunately
        four from further furthermore get give go had has have he hence her here hers herself him himself his how
        however i if in indeed instead into is isn't it its itself just last later least leave let like look make many
        may maybe me meanwhile might mine more moreover most much must my myself nearly neither never nevertheless
        next no nobody none nonetheless nor not nothing now nowadays of often oh okay on once one only or other others
        otherwise our ours outside over perhaps please put quite rather really recently see seven several shall she
        should shouldn't show similarly since six so some somebody someone something sometimes somewhere soon still
        such suddenly surely take ten than thank thanks that the their theirs them then there therefore these they
        thirdly this those though three through throughout thus till to today together tomorrow too toward towards
        tonight twelve twice two under unfortunately unless unlike until up upon us use usually very wait was we well
        were what whatever when whenever where whereas wherever whether which while who whoever whole whom whose why
        will with within without won't would wouldn't yes yesterday yet you your yours yourself five eight nine eleven
        secondly firstly
        """
    ),
}

# Before a number with a point they say that it is an ordinal one ("die 2. Auflage"); forms of "ein", "mein" and
# "kein" are found by their stems.
BEFORE_ORDINALS = _words(
    """
    ab als am ans bis beim das dem den der des die im in ins jede jedem jeden jeder jedes oder per seit sowie und vom
    zu zum zur dieser dieses diesem diesen diese jener jenes jenem jenen jene alle welche welcher welches kommenden
    letzten nächsten bereits schon pro je nach vor mit
    """
)
ARTICLE_STEMS = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser", "unsr", "euer", "eur", "dies", "jed", "jen")

# Short words that people who write without capitals end sentences with; other ones of three letters are abbreviations.
SHORT_WORDS = _words(
    """
    ab am an auf aus da das du er es gut hat ich ihm ihn im in ist ja man mit nie nun nur ob rot so tag tod tun um uns
    vor wer wie wir wo zu zug all and any are as at bad be bed big boy but by can car cat cup cut day dog eat end far
    few for fun get go got guy had has he her him his hot how if in is it job key law let lot man map may me men my
    new no not now of off oh ok old on one or our out own pay put red run sad say sea see she sit six so sun tea ten
    the tie to too top try two up us use war was way we who why win yes yet you
    """
)

# Words without a vowel that are no abbreviations: units, interjections and what is spelled.
WORDS_WITHOUT_VOWELS = _words(
    """
    mm cm dm km mg kg ml cl dl hl kw kwh kb mb gb tb hz khz mhz ghz db px hm hmm mhm pst psst brr pfft shh grr http
    https html xml css php sql pdf sms
    """
)


_WIDE = "。｡！？।؟۔"  # of scripts without spaces between sentences
_CLOSERS = "\"'”’»«“‘›‹)\\]}*_」』）"
_PLACES = re.compile(  # marks and what closes quotes and brackets, numbers of notes, white space
    rf"(?P<marks>[.!?…‼⁇⁈⁉{_WIDE}](?:[ \u00a0]\.)*+[.!?…‼⁇⁈⁉{_WIDE}{_CLOSERS}]*+)(?:\[\d{{1,4}}\]|[¹²³⁰⁴-⁹])*+"
    r"(?P<space>\s*+)(?:\[\d{1,4}\](?:\s++|\Z))*+(?=\S)"
)
_ASIDES = re.compile(  # short quotes and brackets, which are not cut
    r"\"(?<![\w.,!?]\")[^\"\n]{1,100}+\"(?!\w)|“[^“”]{1,100}+”|„[^„“”]{1,100}+[“”]|»[^«»]{1,100}+«|«[^«»]{1,100}+»"
    r"|\([^()]{1,100}+\)|\[[^\[\]]{1,100}+\]"
)
_GLUED = re.compile(r"[A-ZÄÖÜ](?:[a-zäöüß]++[\s,;!?]|['’ ])")  # "It was late.We walked": the space is missing
_REACH = 60  # characters before a mark that are looked at
_NO_TOKEN = re.compile(r"[^\w.,:'’/&-]|(?<!\d)[,:]|[,:](?!\d)")
_SINGLE = re.compile(r"[^\W\d_]{1,2}\.")  # "z." of "z. B."
_PARTS = re.compile(r"[-.&]|/(?=\w\w)")  # between the words of a token: "Dipl.-Ing"
_NEXT_WORD = re.compile(r"[\W_]*+([^\W_][\w'’-]*+)?")
_CAMEL = re.compile(r"[a-z]+[A-Z]")  # "iPhone" may begin a sentence
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.)++(?:[^\W\d_]|Chr|Hd|Zt|[a-z]{2})")
_ROMAN = re.compile(r"[IVXLC]++")
_NUMBER = re.compile(r"\d++(?:[.,:]\d++)*+")
_DAY = re.compile(r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])")  # 24.12
_ITEM = re.compile(r"\d{1,2}[.)]\s")
_EARLIER_ORDINAL = re.compile(r"\d\.\s?[-–/]?\s?\Z")  # "im 1.-3. Jahrhundert"
_POLITE_ORDER = re.compile(r"[A-ZÄÖÜ][a-zäöüß]+n Sie\b|[A-ZÄÖÜ][a-zäöüß]+ (?:dich|euch)\b")  # "Warten Sie"
_VOWEL = re.compile(r"[aeiouyäöüáàâéèêíìîóòôúùûæøåœ]", re.IGNORECASE)
_CUT_ADJECTIVE = re.compile(r"[^\W\d_]{2,}[bdfgkmnpstz]l")  # "schriftl", "gesetzl"
_HIGHEST_ORDINAL = 20  # that is one without an article before it: "sie wurde 2. Siegerin", "es sind 34. Anna ..."


def sentence_begins(text: str, language: str) -> list[int]:
    """Return where the sentences of a text begin, but the first.

    Args:
        text: running text; line breaks count as spaces.
        language: BCP 47, without script and region.
    """
    if language in _RULES:
        return list(_RULES[language].begins(text))
    places, place = list[int](), 0
    for sentence in split_sentences(language, text):
        places.append(place)
        place += len(sentence)
    return places[1:]


class _Rules:
    """The rules of a language.

    What follows a mark counts: a small letter goes on, a word that hardly anything but a sentence begins with ends even
    what an abbreviation or a number ends with.
    """

    def __init__(self, language: str) -> None:
        self._is_german = language == "de"
        self._never_last = NEVER_LAST[language]
        self._abbreviations = ABBREVIATIONS[language]
        self._capitalised = CAPITALISED[language]
        self._numbered = NUMBERED[language]
        self._months = {*MONTHS[language], *SHORT_MONTHS[language]}
        self._starters = STARTERS[language]

    def begins(self, text: str) -> Iterator[int]:
        """Yield where the second sentence and those after it begin."""
        begin = 0
        asides = _ASIDES.finditer(text)
        aside = next(asides, None)
        for place in _PLACES.finditer(text):
            while aside is not None and aside.end() <= place.start():
                aside = next(asides, None)
            is_inside = aside is not None and aside.start() < place.start() and place.end() <= aside.end()
            if not is_inside and self._ends(text, begin, place):
                begin = place.end()
                yield begin

    def _ends(self, text: str, begin: int, place: re.Match[str]) -> bool:
        """Whether the sentence that begins at `begin` ends with the marks of a place."""
        following = _NEXT_WORD.match(text, place.end())
        word = following[1] if following else None
        marks = place["marks"]
        if not word or marks[0] in _WIDE:
            return bool(word)
        if not place["space"]:  # not in names of files and addresses
            last = text[max(begin, place.start() - _REACH) : place.start()].split()[-1:]
            is_word = len(word) > 3 or word.lower() in self._starters
            return bool(is_word and last and len(last[0]) > 3 and last[0].isalpha() and _GLUED.match(text, place.end()))
        goes_on = word[0].islower() and not _CAMEL.match(word)
        first = _NEXT_WORD.match(text, begin) if goes_on else None
        has_no_capitals = bool(first and first[1] and first[1].islower())  # its writer uses none
        if "!" in marks or "?" in marks:
            return not goes_on or (has_no_capitals and marks[-1] in "!?")
        if not marks.startswith(".") or marks.startswith(("..", ". .", ".\u00a0.")):
            return not goes_on and not word[0].isdigit()
        token, before = self._token_before(text, max(begin, place.start() - _REACH), place.start())
        behind = text[place.end() : place.end() + _REACH]
        is_start = self._is_start(word, behind)
        if goes_on:
            is_known = not (token.islower() and len(token) <= 3) or token in SHORT_WORDS
            is_word = token.isalpha() and len(token) > 1 and is_known and not self._is_abbreviation(token)
            ends = has_no_capitals and is_word
        elif _NUMBER.fullmatch(token):
            is_listed = self._is_listed(token, before, behind)
            ends = not is_listed and self._number_ends(token, before, word, is_start=is_start)
        else:
            ends = self._token_ends(token, before, word, is_start=is_start, is_item=bool(_ITEM.match(behind)))
        return ends

    def _token_before(self, text: str, begin: int, end: int) -> tuple[str, str]:
        """Return the token that ends a text, without its spaces, and what stands before it."""
        chunks = text[begin:end].split()
        if not chunks or text[end - 1].isspace():
            return "", text[begin:end].rstrip()
        token = chunks.pop()
        if not token.isalnum():
            whole, token = token, _NO_TOKEN.split(token)[-1].lstrip("'’-/&.")
            chunks = chunks if token == whole else []
        place = end - len(token)
        while chunks and _SINGLE.fullmatch(chunks[-1]):
            single = chunks.pop()
            token, place = single + token, text.rindex(single, begin, place)
        return token, text[begin:place].rstrip()

    def _is_start(self, word: str, text: str) -> bool:
        """Whether a word, which the text begins with, hardly does anything but begin a sentence."""
        if self._is_german and _POLITE_ORDER.match(text):
            return True
        small = word.replace("’", "'").partition("'")[0].lower()
        return word[0].isupper() and small in self._starters and not (len(small) == 1 and text[1:2] == ".")

    def _token_ends(self, token: str, before: str, following: str, *, is_start: bool, is_item: bool) -> bool:
        """Whether a sentence ends with a token and a point, before a word with a capital or a number."""
        small = token.lower()
        if small in ("a.m", "p.m"):
            return not (following in AFTER_TIMES or following in self._months or following[0].isdigit())
        word = token if _INITIALS.fullmatch(token) else _PARTS.split(token)[-1] or token
        if small in self._never_last or word.lower() in self._never_last:
            return False
        if small in CLOSE_LISTS or word.lower() in CLOSE_LISTS:
            return following[0].isupper()
        if ("." in token and word is token) or ".-" in token:  # "U.S", "Dipl.-Ing"
            return is_start
        if len(word) == 1 and word.isalpha():  # an initial, a name ("plan B") or a unit ("5 m")
            return bool(before) and (is_start if word.isupper() else word in "ghlmst" and before[-1].isdigit())
        return self._word_ends(word, following, is_start=is_start, is_item=is_item)

    def _word_ends(self, word: str, following: str, *, is_start: bool, is_item: bool) -> bool:
        is_number = following[0].isdigit()
        is_pronoun = following == "I" and not self._is_german
        is_label = len(following) == 1 or following == "Nr" or _ROMAN.fullmatch(following)
        if word.lower() in self._numbered and (is_number or (is_label and not is_pronoun)):
            return False
        if self._is_abbreviation(word) or (self._is_german and _ROMAN.fullmatch(word)):
            return is_start
        is_short = word.islower() and len(word) <= 3 and word not in SHORT_WORDS
        return not (is_number and is_short) or is_item

    def _is_abbreviation(self, word: str) -> bool:
        small = word.lower()
        if small in self._never_last or small in self._abbreviations or word in self._capitalised:
            return True
        if not word.isalpha() or small in WORDS_WITHOUT_VOWELS:
            return False
        if self._is_german and (small.endswith(("str", "nr")) or _CUT_ADJECTIVE.fullmatch(word)):
            return True
        return 1 < len(word) < 6 and not word.isupper() and not _VOWEL.search(word)

    def _is_listed(self, number: str, before: str, text: str) -> bool:
        """Whether a number with a point numbers what follows it: at the beginning, behind a colon, in a list."""
        if len(number) > 2 or not number.isdigit():
            return False
        is_first = before[-1:] in ("", ":", ";", ",")
        is_later = before.endswith((" and", " or", " und", " oder")) and re.search(r"(?<!\w)\d{1,2}\.\s", before)
        return bool(is_first or is_later or re.search(rf"[,;]\s(?:\w+\s)?{int(number) + 1}\.\s", text))

    def _number_ends(self, number: str, before: str, following: str, *, is_start: bool) -> bool:
        """Whether a sentence ends with a number and a point, before a word with a capital or another number."""
        if following in self._months:
            return False
        if following[0].isdigit():
            return number.isdigit() and len(number) > 3
        is_day = bool(_DAY.fullmatch(number))
        if not self._is_german or not (number.isdigit() or is_day):
            return True
        last = before.rsplit(maxsplit=1)[-1].strip("\"„“»«'’(),;:-–") if before else ""
        word = last.lower()
        introduces = word in BEFORE_ORDINALS or (word.startswith(ARTICLE_STEMS) and len(word) <= 7)
        if is_start:  # "Am 24.12. Um sechs Uhr kommen alle."
            return not (is_day and introduces and word == before.lower())
        is_low = number.isdigit() and int(number) <= _HIGHEST_ORDINAL and last.islower()
        return not (introduces or is_low or _EARLIER_ORDINAL.search(before))


_RULES = {language: _Rules(language) for language in ("de", "en")}
