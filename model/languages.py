"""The languages of a model that translates several."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language of a model of several."""

    code: str  # BCP 47
    flores: str = ""  # as FLORES-200 names it, ISO 639-3 and script: fra_Latn; empty: it does not
    token: str = ""  # by which the model knows it; empty: it needs none
    is_source: bool = True
    is_target: bool = True

    @property
    def iso639_3(self) -> str:
        """The code of ISO 639-3, such as fra."""
        return self.flores.partition("_")[0]
