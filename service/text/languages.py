"""Which offered language a caller means: BCP 47 tags, compared as people mean them.

Pure.
"""

from enum import IntEnum

from model.language_codes import subtags_of


class Closeness(IntEnum):
    """How well an offered language serves for the one that is asked for; lower is better."""

    EXACT = 0  # the same tag
    GENERAL = 1  # the same or less specific: "en" for "en-US", as RFC 4647 looks up
    LIKELY = 2  # the same once what is likely is filled in: "zh-Hant" for "zh-TW", "en-US" for "en"
    REGION = 3  # that of another region: "en-GB" for "en" or "en-US"
    SCRIPT = 4  # in another script, where neither script nor region is asked for: "zh-Hant" for "zh"


def closeness(asked: str, offered: str) -> Closeness | None:
    """Return how well a language on offer serves for the one that is asked for; None: it does not.

    Case does not count.  The script is never another one than the tag names or its region writes: "zh-TW" does not find
    "zh-Hans".  What is no BCP 47 tag finds only itself.
    """
    if asked.lower() == offered.lower():
        return Closeness.EXACT
    wanted, given = subtags_of(asked), subtags_of(offered)
    if wanted is None or given is None or wanted.language != given.language:
        return None
    likely_wanted, likely_given = wanted.likely, given.likely
    if likely_wanted.script != likely_given.script:
        return None if wanted.script or wanted.region else Closeness.SCRIPT
    if given.script in ("", wanted.script) and given.region in ("", wanted.region):
        return Closeness.GENERAL
    return Closeness.LIKELY if likely_wanted == likely_given else Closeness.REGION
