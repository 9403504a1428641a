"""Write the shipped bundles' translations of the golden sentences into NAME.tsv.

python tests/golden/update.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.quality.score import pairs_of
from model.bundle import Bundle, included_bundle_dirs
from tests.fakes.own_text import own_sentences
from tests.golden.test_embedded_model import golden_file, translate

# Beside sentences from parts: what people type first, and what breaks easily.
ENGLISH = (
    "The children are playing in the garden.",
    "Hello!",
    "How are you today?",
    "I would like a cup of tea, please.",
    "Where did you put my glasses?",
    "The train to Munich leaves at 8:15 from platform 7.",
    'She said: "I have never seen so many people."',
    "Click the button to save your changes.",
    "My name is Anna and I live in Hamburg.",
    "It costs 49.90 euros, including tax.",
    "IF YOU CAN READ THIS, YOU ARE TOO CLOSE",
    "the meeting was moved to next thursday",
    "Thank you for your help. I will call you tomorrow.",
    "All human beings are born free and equal in dignity and rights.",
    "a",
    "42",
)

GERMAN = (
    "Die Kinder spielen im Garten.",
    "Hallo!",
    "Wie geht es dir heute?",
    "Ich hätte gern eine Tasse Tee.",
    "Wo hast du meine Brille hingelegt?",
    "Der Zug nach München fährt um 8:15 Uhr von Gleis 7 ab.",
    "Sie sagte: „Ich habe noch nie so viele Menschen gesehen.“",
    "Klicken Sie auf die Schaltfläche, um Ihre Änderungen zu speichern.",
    "Ich heiße Anna und wohne in Hamburg.",
    "Es kostet 49,90 Euro einschließlich Steuern.",
    "WENN SIE DAS LESEN KÖNNEN, SIND SIE ZU NAH",
    "die sitzung wurde auf nächsten donnerstag verschoben",
    "Vielen Dank für Ihre Hilfe. Ich rufe Sie morgen an.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "a",
    "42",
)


def texts_for(bundle: Path) -> list[str]:
    """In the bundle's source language."""
    if Bundle.load(bundle, verify=False).manifest.source_language == "en":
        return [*ENGLISH, *own_sentences(64, seed=3)]
    return [*GERMAN, *pairs_of(bundle).sources[:64]]


if __name__ == "__main__":
    for bundle in included_bundle_dirs():
        texts, golden = texts_for(bundle), golden_file(bundle)
        rows = [f"{text}\t{translation}\n" for text, translation in zip(texts, translate(bundle, texts), strict=True)]
        golden.write_text("".join(rows), encoding="utf-8")
        print(f"{len(rows)} translations in {golden.name}; read what changed with git diff")
