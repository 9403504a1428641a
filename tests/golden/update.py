"""Write the shipped bundle's translations of the golden sentences into golden.tsv.

python tests/golden/update.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes.own_text import own_sentences
from tests.golden.test_embedded_model import GOLDEN, translate

# Beside sentences from parts: what people type first, and what breaks easily.
BY_HAND = (
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

if __name__ == "__main__":
    texts = [*BY_HAND, *own_sentences(64, seed=3)]
    rows = [f"{text}\t{translation}\n" for text, translation in zip(texts, translate(texts), strict=True)]
    GOLDEN.write_text("".join(rows), encoding="utf-8")
    print(f"{len(rows)} translations in {GOLDEN.name}; read what changed with git diff")
