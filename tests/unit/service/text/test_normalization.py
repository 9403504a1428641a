"""What a model gets instead of words with hidden characters, lengthened words and escaped quotes."""

import pytest

from service.records import Span, TextFormat
from service.text.markup import parse
from service.text.normalization import readable, spelled
from service.text.protected_spans import Alphabet, spans_of
from service.text.segments import Segment

KNOWN = frozenset(map(chr, range(32, 127))) - {"\\"} | set("äöüß")
ALPHABET = Alphabet(lambda character: character if character in KNOWN else None)


def read(text: str) -> Segment:
    return readable(Segment(text, 0, text), ALPHABET)


@pytest.mark.parametrize(
    ("text", "is_read_as"),
    [
        ("The moun\u00adtain is high.", "The mountain is high."),
        ("Die Frei\u00adheits\u00adstatue steht dort.", "Die Freiheitsstatue steht dort."),
        ("har\u200bbour, win\u200cdow, riv\u200der", "harbour, window, river"),
        ("Fens\ufeffter und Tü\u2060re", "Fenster und Türe"),
        ("\u00adThe door\u00ad is open\u200b.", "The door is open."),
        ("\ufeffDas Boot", "Das Boot"),
        ("\u00ad the door", "the door"),
    ],
)
def test_hidden_characters_are_taken_out_of_words(text, is_read_as):
    assert read(text).text == is_read_as


@pytest.mark.parametrize(
    "text",
    [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
        "\u0915\u094d\u200d\u0937",  # Hindi
        "\u1797\u17b6\u179f\u17b6\u200b\u1781\u17d2\u1798\u17c2\u179a",  # Khmer
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "https://example.org/a\u00adb",
        "Schifffahrt und Flussschifffahrt, aaa, hahaha, 100000",
    ],
)
def test_what_a_script_a_picture_or_a_span_needs_stays(text):
    assert read(text).text == text


@pytest.mark.parametrize(
    ("text", "is_read_as"),
    [
        ("This is waaaaaay too long!", "This is waaay too long!"),
        ("Das ist toooooll und schööööön.", "Das ist toooll und schööön."),
        ("hahahahahaha", "hahaha"),
        ("Lalalalala, sang er.", "Lalalala, sang er."),
        ("Nooooooo!!!!!", "Nooo!!!!!"),
        ("Mr. XXXXXX has 1000000, AAAA, AAAAah", "Mr. XXXXXX has 1000000, AAAA, AAAah"),
    ],
)
def test_a_letter_or_a_syllable_stays_three_times(text, is_read_as):
    assert read(text).text == is_read_as


@pytest.mark.parametrize(
    ("text", "is_read_as", "target", "is_written_as"),
    [
        (r"We\'ll come", "We'll come", "Wir haben's", r"Wir haben\'s"),
        (r"Er sagt \"Nein\" dazu", 'Er sagt "Nein" dazu', 'He says "No" to it', r"He says \"No\" to it"),
        ("That''s {0}", "That's {0}", "Anna's {0}", "Anna''s {0}"),
        (r"Say \"I\'m\"", 'Say "I\'m"', 'Sag "ich\'s"', r"Sag \"ich\'s\""),
        (r"It\'s `x='a'` here", "It's `x='a'` here", "'s ist `x='a'`", r"\'s ist `x='a'`"),
    ],
)
def test_escaped_quotes_are_read_as_quotes_and_written_back(text, is_read_as, target, is_written_as):
    segment = read(text)
    segment = segment._replace(spans=spans_of(segment, ALPHABET))

    assert segment.text == is_read_as
    assert spelled(segment, target, ())[0] == is_written_as


def test_places_in_the_request_and_of_tags_stay_known():
    (segment,) = [
        part for part in parse("<p>The <b>gar&shy;den</b> is green.</p>", TextFormat.HTML) if isinstance(part, Segment)
    ]

    found = readable(segment, ALPHABET)

    assert found.text == "The garden is green."
    assert [tag.position for tag in found.tags] == [4, 10]
    assert found.origin(Span(4, 10)) == Span(10, 21)
    assert found.source == segment.source
