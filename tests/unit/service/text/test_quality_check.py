"""What the quality check finds and which of two translations is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.wire import FinishReason, SearchParams
from service.records import Link, Span, WarningKind
from service.text.quality import Attempt, Retry, better, coverage, issues, safer


def kinds(source: str, target: str, languages: str = "en-de", **given: object) -> set[WarningKind]:
    source_language, target_language = languages.split("-", 1)
    found = issues(source, target, source_language=source_language, target_language=target_language, **given)  # type: ignore[arg-type]
    return {kind for kind, _ in found}


GOOD = [
    ("en-de", "The children are playing in the garden.", "Die Kinder spielen im Garten."),
    ("en-de", "Yes.", "Ja."),
    ("en-de", "OK", "In Ordnung"),
    ("en-de", "Thank you very much for it!", "Danke!"),
    ("en-de", "1,299.99", "1.299,99"),
    ("en-de", "", ""),
    ("en-de", " \n", ""),
    ("en-de", "!!!", ""),
    ("de-en", "Donaudampfschifffahrtsgesellschaft", "Danube steamship company"),
    ("en-ru", "Open Windows 11 and type the name of the file.", "Откройте Windows 11 и введите имя файла."),
    ("ru-en", "Москва - столица России.", "Moscow is the capital of Russia."),
    ("en-ja", "My name is Anna, and I live in the south of Japan.", "私の名前はアンナで、日本の南部に住んでいます。"),
    ("ja-en", "私は東京に住んでいます。", "I live in Tokyo."),
    ("en-xx", "The cats sleep.", "Кошки спят."),  # a language that the table does not know
]


@pytest.mark.parametrize(("languages", "source", "target"), GOOD)
def test_a_good_translation_has_no_fault(languages, source, target):
    assert not issues(source, target, source_language=languages.split("-")[0], target_language=languages.split("-")[1])


LOOPS = [
    ("We left early.", "Wir gingen gingen gingen gingen früh."),
    ("The ring is made of dust.", "Der Ring ist aus Staub, aus Staub, aus Staub, aus Staub."),
    ("He spoke about the law of the land.", "Er sprach über das Recht des Landes des Landes des Landes."),
    ("They came by train at noon.", "Sie kamen mit dem Zug und mit dem Zug und mit dem Zug und"),
    ("She has an account there.", "She has an account an account an account there."),
    ("It rains.", "Es Es Es Es Es Es Es Es Es Es"),
    ("It may be so in Spain.", "Das mag z. B. z. B. z. B. z. B. in Spanien so sein."),
    ("The minister of the states will march.", "Der Minister der Staaten der Staaten der Staaten der Staaten."),
    (
        "All of us want to be here today.",
        "Wir wollen heute hier sein, wir wollen heute hier sein, wir wollen heute hier sein.",
    ),
    ("The old man went home late.", "Der alte Mann ging spät nach Hause. Der alte Mann ging spät nach Hause."),
    ("Until the members return.", "Bis die Mitglieder der Mitglieder der Mitglieder zurückkehren."),
    ("Dinner is served.", "essenessenessenessenessenessenessenessen"),
    ("A long road lies ahead.", "Ein langer Weg " + "-o" * 20),
    ("Numbers follow here.", "Zahlen: 9.9.9.9.9.9.9.9.9.9.9.9.9.9.9.9.9.9.9."),
    ("Sing it again.", "Sing es la la la la la la la."),
    ("Ha, he said.", "Ha ha ha ha ha ha, sagte er."),
    (
        "The tree stands by the wall, and the dog sleeps under the table near an old brown door that nobody opens.",
        "Der Baum der Wand, der Hund der Wand, die Tür der Wand, der Hund der Tür, der Baum der Tür, die Wand.",
    ),
    ("Tokyo is large.", "東京は大きい大きい大きい大きい大きい大きい大きい大きい大きい大きい大きい大きい大きい"),
]


@pytest.mark.parametrize(("source", "target"), LOOPS)
def test_a_loop_is_found(source, target):
    assert WarningKind.REPETITION in kinds(source, target, "en-")


NO_LOOPS = [
    ("No, no, no, no, no!", "Nein, nein, nein, nein, nein!"),
    ("That is very, very good.", "Das ist sehr, sehr, sehr gut."),
    ("Ha ha ha ha ha!", "Ha ha ha ha ha ha!"),
    ("Contents ........................................ 7", "Inhalt ........................................ 7"),
    ("Sleeeeeeeeeeeeeeeeeeeeeeeeeeeeep well", "Schlaaaaaaaaaaaaaaaaaaaaaaaaaaaaaf gut"),
    ("row row row row your boat", "rudre rudre rudre rudre dein Boot"),
    ("The man who has the key is the one who saw him.", "Der Mann, der den Schlüssel hat, ist der, der ihn sah."),
    ("Day by day by day it grew.", "Tag für Tag für Tag wuchs es."),
    ("Time and again we lose.", "Wieder und wieder und wieder verlieren wir."),
    ("0 0 0 0 0 0 1", "0 0 0 0 0 0 1"),
    ("https://example.com/aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "https://example.com/aaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("A very long word", "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz"),
    ("Where there is a will there is a way.", "Wo ein Wille ist, da ist ein Weg."),
    ("The more the merrier, the fewer the better.", "Je mehr, desto besser, je weniger, desto besser."),
    (
        "Merry Christmas to all of you, merry Christmas to all of you!",
        "Frohe Weihnachten euch allen, frohe Weihnachten euch allen!",
    ),
    ("Blah, blah, blah.", "Bla, bla, bla."),
]


@pytest.mark.parametrize(("source", "target"), NO_LOOPS)
def test_what_the_source_repeats_or_language_does_is_no_loop(source, target):
    assert WarningKind.REPETITION not in kinds(source, target)


COPIES = [
    ("en-de", "The cats are sleeping in the garden.", "The cats are sleeping in the garden."),
    ("en-de", "The cats are sleeping in the garden.", "The cats are sleeping in the garden!"),
    ("en-de", "The cats are sleeping in the garden.", "  The cats are sleeping in the garden. "),
    ("en-de", "My name is Anna.", "My name is Anna."),
    ("en-de", "We bought a new red car last week.", "Wir bought a new red car last week."),
    ("en-de", "bring me the hammer", "bring me the hammer"),
    ("en-de", "Press the button to open the door.", "Press the Button to open the door."),
    ("en-de", "THE CATS ARE SLEEPING IN THE GARDEN", "THE CATS ARE SLEEPING IN THE GARDEN"),
    ("en-de", "2 files were moved to the folder Berlin", "2 files were moved to the folder Berlin"),
    ("de-en", "Der Hund bellt den ganzen Tag.", "Der Hund bellt den ganzen Tag."),
    ("de-en", "Wir haben noch nichts davon gehört.", "Wir haben noch nichts davon gehört."),
    ("fr-en", "Je ne sais pas ce que tu veux.", "Je ne sais pas ce que tu veux."),
    ("fr-en", "il a mangé une pomme", "il a mangé une pomme"),
    ("ja-zh", "昨日彼女は東京大学図書館で勉強した。", "昨日彼女は東京大学図書館で勉強した。"),
    ("ru-en", "Мы ещё ничего не слышали.", "Мы ещё ничего не слышали."),
    ("-", "The cats are sleeping in the garden.", "The cats are sleeping in the garden."),
]
NO_COPIES = [
    ("en-de", "Angela Merkel", "Angela Merkel"),
    ("en-de", "Computer", "Computer"),
    ("en-de", "so warm", "so warm"),
    ("en-de", "Taxi in Berlin", "Taxi in Berlin"),
    ("en-de", "Hand in Hand", "Hand in Hand"),
    ("en-de", "1 2 3 4 5 6 7", "1 2 3 4 5 6 7"),
    ("en-de", "IBM, SAP, BMW", "IBM, SAP, BMW"),
    ("en-de", "Johann Sebastian Bach, Leipzig, 1723", "Johann Sebastian Bach, Leipzig, 1723"),
    ("en-de", "NASA", "NASA"),
    ("en-de", "I was in Bonn in August.", "Ich war in Bonn im August."),
    ("en-de", "The film in the studio was warm.", "Der Film im Studio war warm."),
    ("en-de", "café", "Café"),
    ("en-en", "The cats are sleeping in the garden.", "The cats are sleeping in the garden."),
    ("en-US-en-GB", "Colors of the sea are many.", "Colors of the sea are many."),
    ("da-nb", "Han bor i en liten by.", "Han bor i en liten by."),
    ("es-pt", "la casa de Ana", "la casa de Ana"),
    ("ja-zh", "東京大学", "東京大学"),
    ("en-de", "x = y + z", "x = y + z"),
    ("en-de", "John F. Kennedy International Airport", "John F. Kennedy International Airport"),
]


@pytest.mark.parametrize(("languages", "source", "target"), COPIES)
def test_a_copied_source_is_found(languages, source, target):
    assert WarningKind.COPIED in kinds(source, target, languages)


@pytest.mark.parametrize(("languages", "source", "target"), NO_COPIES)
def test_names_numbers_and_words_that_languages_share_are_no_copies(languages, source, target):
    primary = languages.replace("-US-en-GB", "-en-GB")
    assert WarningKind.COPIED not in kinds(source, target, primary)


SENTENCE = (
    "The children of the village play in the garden behind the old school every day."  # 79 characters: from 36 to 142
)


@pytest.mark.parametrize(
    ("source", "target", "tokens"),
    [
        (SENTENCE, "Die Kinder.", (0, 0)),
        (SENTENCE, "Die Kinder spielen im Garten.", (0, 0)),
        (SENTENCE, "Die Kinder " + "d" * 24, (0, 0)),
        (SENTENCE, "x " * 72, (0, 0)),
        (SENTENCE, SENTENCE.upper() + " " + SENTENCE.upper(), (0, 0)),
        (SENTENCE * 2, SENTENCE.upper(), (0, 0)),
        (SENTENCE * 5, SENTENCE.upper() * 2, (0, 0)),
        (SENTENCE, "Die Kinder des Dorfes spielen jeden Tag im Garten hinter der Schule.", (20, 8)),
        (SENTENCE, "Die Kinder des Dorfes spielen jeden Tag im Garten hinter der Schule.", (20, 39)),
        ("Yes, of course.", "Ja, selbstverständlich, das ist doch ganz klar.", (0, 0)),
        ("Hello", "Hallo, wie geht es Ihnen an diesem Tag?", (0, 0)),
        ("Hello", "Hallo", (2, 8)),
        ("Good morning to all of you, my friends!", "Guten", (0, 0)),
        ("A " * 50, "B", (0, 0)),
        ("a", "b" * 18, (0, 0)),
        ("日本語", "日" * 22, (0, 0)),
    ],
)
def test_a_translation_of_unusual_length_is_found(source, target, tokens):
    assert WarningKind.LENGTH_RATIO in kinds(source, target, "en-de", source_tokens=tokens[0], target_tokens=tokens[1])


@pytest.mark.parametrize(
    ("languages", "source", "target", "tokens"),
    [
        ("en-de", SENTENCE, "Die Kinder des Dorfes spielen jeden Tag im Garten hinter der alten Schule.", (20, 18)),
        ("en-de", SENTENCE, "Die Kinder " + "d" * 26, (0, 0)),
        ("en-de", SENTENCE, "x " * 71, (0, 0)),
        ("en-de", SENTENCE, SENTENCE.upper(), (20, 9)),
        ("en-de", SENTENCE, SENTENCE.upper(), (20, 38)),
        ("en-de", "Hi", "Guten Tag!", (0, 0)),
        ("en-de", "OK", "Einverstanden", (1, 5)),
        ("en-de", "Thanks a lot.", "Danke!", (0, 0)),
        ("en-de", "a", "b" * 17, (0, 0)),
        ("en-de", "PIN", "persönliche Nummer", (2, 5)),
        ("en-de", "Cancel", "Abbrechen", (2, 3)),
        ("de-en", "Selbstverständlich!", "Sure!", (5, 2)),
        ("en-zh", SENTENCE, "村里的孩子们每天都在旧学校后面的花园里玩耍。", (20, 16)),
        ("zh-en", "村里的孩子们每天都在旧学校后面的花园里玩耍。", SENTENCE, (16, 20)),
        ("ja-en", "はい、わかりました。", "Yes, I understand that now.", (0, 0)),
        ("en-ko", "The weather is good today.", "오늘은 날씨가 좋네요.", (0, 0)),
    ],
)
def test_short_texts_and_dense_scripts_may_have_another_length(languages, source, target, tokens):
    found = kinds(source, target, languages, source_tokens=tokens[0], target_tokens=tokens[1])

    assert WarningKind.LENGTH_RATIO not in found


@pytest.mark.parametrize(
    ("languages", "source", "target"),
    [
        ("en-de", "The cats are sleeping.", "Кошки спят."),
        ("en-ru", "The cats are sleeping.", "Die Katzen schlafen."),
        ("ru-en", "Кошки спят в саду.", "Кошки спят в саду."),
        ("ja-en", "東京", "東京"),
        ("en-el", "Good morning", "Доброе утро"),
        ("en-zh", "I love the sea.", "私は海が好きです。"),
        ("en-ja", "I love the sea.", "나는 바다를 좋아한다."),
        ("en-sr-Latn", "Good morning to you", "Добро јутро"),
        ("eng_Latn-rus_Cyrl", "Good morning to you", "Guten Morgen"),
        ("en-hi", "Good morning to you", "صبح بخیر"),
        ("en-de", "He lives in a house.", "Er wohnt в большом доме."),
    ],
)
def test_another_script_is_found(languages, source, target):
    source_language, target_language = ("en", "sr-Latn") if "sr" in languages else languages.split("-")

    assert WarningKind.WRONG_SCRIPT in kinds(source, target, f"{source_language}-{target_language}")


@pytest.mark.parametrize(
    ("languages", "source", "target"),
    [
        ("en-de", "The word привет is Russian.", "Das Wort привет ist russisch."),
        ("en-de", "привет", "привет"),  # it is not English either
        ("en-ru", "iPhone 15 Pro Max", "iPhone 15 Pro Max"),
        ("en-ru", "See https://example.com/path/to/page", "См. https://example.com/path/to/page"),
        ("en-de", "5 µm at 10 Ω", "5 µm bei 10 Ω"),
        ("en-de", "Ångström", "Ångström"),
        ("en-ja", "I use Linux.", "私は Linux を使っています。"),
        ("en-vi", "Vietnam is beautiful.", "Việt Nam thật đẹp."),
        ("en-tr", "Good day", "İyi günler"),
        ("en-ar", "Peace", "سلام"),
        ("en-zh-Hant", "I love the sea.", "我愛大海。"),
        ("en-ko", "I love the sea.", "나는 바다(海)를 사랑한다."),
        ("en-sr", "Good morning to you", "Добро јутро"),
        ("en-de", "5 + 5 = 10", "5 + 5 = 10"),
    ],
)
def test_names_units_and_quotes_may_stay_in_their_script(languages, source, target):
    assert WarningKind.WRONG_SCRIPT not in kinds(source, target, languages)


def test_other_numbers_are_found_and_told_without_the_text():
    assert issues("Call 5551 now", "Ruf 555 an", source_language="en", target_language="de") == [
        (WarningKind.NUMBERS, "numbers of the source that are missing: 1; new ones: 1")
    ]


@pytest.mark.parametrize("target", ["", " ", "\n", "\u3000"])
def test_nothing_for_something_is_empty(target):
    assert kinds("The cats are sleeping.", target) == {WarningKind.EMPTY}
    assert kinds("…", target) == set()


def test_a_translation_at_its_longest_length_is_truncated():
    reason = FinishReason.LENGTH

    assert kinds("The cats are sleeping.", "Die Katzen schl", finish_reason=reason) == {WarningKind.TRUNCATED}
    assert kinds("Go.", "", finish_reason=reason) == {WarningKind.TRUNCATED, WarningKind.EMPTY}


def test_coverage_counts_the_longer_words_of_the_source():
    source = "The children of Rome play outside."
    links = [Link(Span(4, 12), Span(0, 3)), Link(Span(21, 33), Span(4, 9)), Link(Span(0, 3), Span(0, 3))]

    assert coverage(source, links) == pytest.approx(3 / 4)
    assert coverage(source, []) == 0
    assert coverage("The children play outside.", []) == 1  # too few to say anything
    assert kinds(source, "Die Kinder in Rom", coverage=0.49) == {WarningKind.LOW_COVERAGE}
    assert kinds(source, "Die Kinder in Rom", coverage=0.5) == set()


@given(st.text(), st.text(), st.sampled_from(["", "de", "ru", "ja", "en-US", "zho_Hans", "-", "_", "x-y"]))
def test_any_two_texts_can_be_compared_and_no_message_has_them(source, target, language):
    found = issues(source, target, source_language="en", target_language=language)

    assert len({kind for kind, _ in found}) == len(found)
    for _, message in found:
        assert len(target) < 12 or target not in message


PLAIN = SearchParams(max_target_tokens=64)
WITHOUT_LOOPS = PLAIN._replace(no_repeat_ngram_size=3)
LONG = "The children of the village play in the garden every day."


@pytest.mark.parametrize(
    ("kinds", "params", "expected"),
    [
        ([], PLAIN, None),
        ([WarningKind.COPIED], PLAIN, None),
        ([WarningKind.WRONG_SCRIPT], PLAIN, None),
        ([WarningKind.TERM_MISSED, WarningKind.SPLIT], PLAIN, None),
        ([WarningKind.REPETITION], PLAIN, Retry(WITHOUT_LOOPS)),
        ([WarningKind.TRUNCATED, WarningKind.REPETITION], PLAIN, Retry(WITHOUT_LOOPS)),
        ([WarningKind.REPETITION], PLAIN._replace(no_repeat_ngram_size=5), Retry(WITHOUT_LOOPS)),
        ([WarningKind.REPETITION], WITHOUT_LOOPS, Retry(WITHOUT_LOOPS, in_pieces=True)),
        ([WarningKind.LENGTH_RATIO], PLAIN, Retry(PLAIN, in_pieces=True)),
        ([WarningKind.LOW_COVERAGE], PLAIN, Retry(PLAIN, in_pieces=True)),
        ([WarningKind.EMPTY], PLAIN, Retry(PLAIN, in_pieces=True)),
        ([WarningKind.TRUNCATED], PLAIN, Retry(PLAIN, in_pieces=True)),
    ],
)
def test_each_issue_has_its_remedy(kinds, params, expected):
    assert safer(LONG, [(kind, "") for kind in kinds], params) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Attempt([(WarningKind.COPIED, "")], -0.1), Attempt([], -2.0), True),
        (Attempt([(WarningKind.LENGTH_RATIO, "")], -1.0), Attempt([(WarningKind.EMPTY, "")], -0.1), False),
        (Attempt([], -0.5, 0.9), Attempt([], -0.6, 0.95), True),
        (Attempt([], -0.5, 0.9), Attempt([], -0.4, 0.9), True),
        (Attempt([], -0.5, 0.9), Attempt([], -0.4), True),
        (Attempt([], -0.5), Attempt([], -0.5), False),  # the first is kept
        (Attempt([(WarningKind.UNKNOWN_CHARACTERS, "")], -0.5), Attempt([], -0.9), True),
    ],
)
def test_fewer_issues_go_before_coverage_and_coverage_before_score(first, second, expected):
    assert better(first, second) is expected
