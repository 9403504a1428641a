"""Which tokens of a multilingual model are languages.

Checkpoints of older versions of transformers do not say it: those lists are part of its tokenizers, and so of this
module.  The order is that of the ids.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from export.importers.checkpoint import text_of
from export.importers.foreign import ForeignModelError, ImportOptions, read_settings
from model.language_codes import bcp47_of, flores_of
from model.languages import Language
from model.manifest import SOURCE_LANGUAGE, TARGET_LANGUAGE, TokenizerFiles

_NLLB_CODES = """
    ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab
    ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl
    bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn
    cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn
    est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn
    gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn
    ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab
    kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn
    kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn
    lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn
    mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn
    nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn
    ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn
    sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn
    szl_Latn tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn
    tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn
    vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn
"""  # NLLB-200
_M2M100_CODES = """
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy
    id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru
    sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""  # M2M100
_WMT21 = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")  # of facebook/wmt21-dense-24-wide
_MBART_CODES = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP
    nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN
    mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""  # mBART-50; the first 25 are those of mBART
_NLLB, _M2M100, _MBART = _NLLB_CODES.split(), _M2M100_CODES.split(), _MBART_CODES.split()
_NUM_MBART_25 = 25
_PATTERN = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
_CODE = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}")  # of M2M100, NLLB
_OPUS_TARGET = re.compile(r">>[^<>]+<<")


def languages_of(
    directory: Path, settings: dict[str, Any], tokens: list[str], *, has_vocabulary: bool
) -> dict[int, Language]:
    """Return the languages of a checkpoint by id; of a newer one, its files name them.

    Args:
        directory: of the checkpoint.
        settings: of model and tokenizer.
        tokens: by id, without those that are not in a vocabulary.
        has_vocabulary: whether it is a file of the checkpoint, as of M2M100.

    Raises:
        ForeignModelError: what the files say is no list of tokens, or names ids that the model does not have.
    """
    first = max((number for number, token in enumerate(tokens) if token), default=0) + 1
    usual = _usual_tokens(settings, len(tokens) - first, has_vocabulary=has_vocabulary)
    added = added_tokens(directory, settings)
    found = {number: token for number, token in enumerate(tokens) if token in usual}
    found |= {number: token for number, token in added.items() if _PATTERN.fullmatch(token)}
    if not found:
        found = dict(enumerate(usual, start=first))
    if max(found) >= len(tokens):
        raise ForeignModelError(f"{directory}: {found[max(found)]!r} has id {max(found)}, the model {len(tokens)} rows")
    return {number: language_of(token) for number, token in found.items()}


def language_of(token: str) -> Language:
    """Return the language of fra_Latn (NLLB), __fr__ (M2M100), fr_XX (mBART), >>fra<< (OPUS-MT) or <2fr> (MADLAD)."""
    code = token.strip("_<>").removeprefix("2")
    if code in _MBART:
        code = code.partition("_")[0]  # the region says nothing
    tag = bcp47_of(code)
    return Language(code=tag, flores=token if token in _NLLB else flores_of(tag), token=token)


def codes_in(tokens: Sequence[str]) -> list[str]:
    """Return the languages' tokens in a vocabulary of NLLB, M2M100 or mBART; none where it has less than two."""
    of_mbart = _MBART if "en_XX" in tokens else ()  # de_DE may stand in the vocabulary of any text
    found = [token for token in tokens if _CODE.fullmatch(token) or token in of_mbart]
    return found if len(found) > 1 else []


def with_languages(
    files: TokenizerFiles,
    tokens: Sequence[str],
    named: tuple[str, str],
    options: ImportOptions,
    *,
    is_last: bool = False,
) -> tuple[TokenizerFiles, tuple[str, str]]:
    """Return the tokenizer of a model with all languages that its vocabulary has tokens for, if it has several.

    Args:
        files: the tokenizer of the same model with one pair of languages.
        tokens: of sources, by id.
        named: source and target, as the model's files name them; may be empty, or a group such as "mul" or "zle".
        options: what the owner says; with a prefix of sources, a model of OPUS-MT has one pair, into its language.
        is_last: whether the token of a source's language stands behind it, unless the owner says it; not of OPUS-MT.

    Returns:
        The tokenizer, and the languages of requests that name none.

    Raises:
        ForeignModelError: these are not known, the model does not have them, or a prefix is in their way.
    """
    if codes := codes_in(tokens):
        refuse_source_prefix(options, codes)
        is_last = is_last if options.language_last is None else options.language_last
        language = (SOURCE_LANGUAGE,)
        files = replace(
            files,
            source_prefix=() if is_last else language,
            source_suffix=(*files.source_suffix, *language) if is_last else files.source_suffix,
            target_prefix=(TARGET_LANGUAGE,),
            languages=tuple(map(language_of, codes)),
        )
        languages: Sequence[Language] = files.languages
    elif asked := [token for token in options.source_prefix if _OPUS_TARGET.fullmatch(token)]:
        if lacking := [token for token in asked if token not in tokens]:
            known = " ".join([token for token in tokens if _OPUS_TARGET.fullmatch(token)][:8])
            raise ForeignModelError(
                f"--source-prefix {lacking[0]!r:.60} is no token of the model, which has {known or 'none of this kind'}"
            )
        languages = _languages_of_opus(asked, options.languages(*named)[0], is_symmetric=False)
    elif len(asked := [token for token in tokens if _OPUS_TARGET.fullmatch(token)]) > 1 and not options.source_prefix:
        languages = _languages_of_opus(asked, options.languages(*named)[0], is_symmetric=named[0] == named[1] != "")
        files = replace(files, source_prefix=(*files.source_prefix, TARGET_LANGUAGE), languages=tuple(languages))
    else:
        return files, options.languages(*named)
    return files, choose_pair(languages, {"src_lang": named[0], "tgt_lang": named[1]}, options)


def refuse_source_prefix(options: ImportOptions, codes: Sequence[str]) -> None:
    """Raise ForeignModelError if a prefix of sources is given for a model that has languages with these tokens."""
    if options.source_prefix:
        raise ForeignModelError(
            f"--source-prefix is given, and the model has {len(codes)} languages such as {codes[0]}: name those "
            "with --source-language and --target-language"
        )


def _languages_of_opus(asked: Sequence[str], source: str, *, is_symmetric: bool) -> list[Language]:
    """Return the targets and the source; a model of one group, such as "mul" to "mul", has all of them as sources.

    Of tokens that mean one language (>>zho<<, >>cmn_Hans<<) the shortest has its tag; the others have their own codes.
    """
    start = replace(language_of(source), token="", is_target=False)
    found: dict[str, Language] = {}
    for token in sorted(asked, key=len):
        one = language_of(token)
        if one.code in found:
            one = replace(one, code=token.strip("<>").replace("_", "-"))
        found[one.code] = replace(one, is_source=is_symmetric or one.code == start.code)
    return list(found.values() if is_symmetric else {start.code: start, **found}.values())


def choose_pair(languages: Sequence[Language], settings: dict[str, Any], options: ImportOptions) -> tuple[str, str]:
    """Return source and target, as BCP 47 tags, of requests that name none.

    Raises:
        ForeignModelError: neither the owner nor the files name them, or the model does not have them.
    """
    targets = [one.code for one in languages if one.is_target]
    only = targets[0] if len(targets) == 1 else ""
    source, target = text_of(settings, "src_lang"), text_of(settings, "tgt_lang")
    names = options.languages(source, only or target)
    sources = [one.code for one in languages if one.is_source]
    return _find(names[0], languages, sources, "from"), _find(names[1], languages, targets, "into")


def _find(name: str, languages: Sequence[Language], codes: Sequence[str], direction: str) -> str:
    named = [one for one in languages if one.code in codes]
    tag = language_of(name).code
    # `cmn-Hans` is a language of its own beside `zh`, although both mean the same.
    for is_meant in (
        lambda one: name in (one.code, one.token),
        lambda one: name == one.flores,
        lambda one: tag == one.code,
    ):
        if found := next(filter(is_meant, named), None):
            return found.code
    some = ", ".join(codes[:8])
    raise ForeignModelError(
        f"the model does not translate {direction} {name!r}, but {len(codes)} others: {some}, ...; give one with "
        f"{'--source-language' if direction == 'from' else '--target-language'}"
    )


def _usual_tokens(settings: dict[str, Any], num_free: int, *, has_vocabulary: bool) -> list[str]:
    """Return the languages' tokens of a checkpoint that has room for so many, if it names none."""
    if settings.get("model_type") == "mbart":
        return _MBART if num_free > len(_MBART) else _MBART[:_NUM_MBART_25]
    if has_vocabulary:
        return [f"__{code}__" for code in (_WMT21 if settings.get("language_codes") == "wmt21" else _M2M100)]
    return _NLLB


def added_tokens(directory: Path, settings: dict[str, Any]) -> dict[int, str]:
    """Return the tokens by id that the tokenizer's files name beside the pieces; none where they say nothing."""
    path = directory / "tokenizer.json"
    listed = settings.get("added_tokens_decoder") or {}
    if path.is_file():
        listed = read_settings(path).get("added_tokens") or listed
    try:
        entries = [{"id": key, **one} for key, one in listed.items()] if isinstance(listed, dict) else listed
        return {int(one["id"]): str(one["content"]) for one in entries}
    except (TypeError, KeyError, ValueError) as error:
        raise ForeignModelError(f"{directory}: the added tokens of the tokenizer cannot be read: {error}") from error
