"""An imported model beside the same model in transformers or CTranslate2: which sentences get other tokens, and why.

Not a test.  Where tokens differ, the reference search must have had to choose between near-equals; any other difference
is a fault.  `DRAGOMAN_TEST_SENTENCES=500` compares as many sentences of each model, which takes minutes a file.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from ctranslate2.converters import transformers as converters

from model import search
from model.bundle import Bundle
from model.config import StopRule
from model.recurrent import Recurrent
from model.search import BeamConfig, beam_search
from model.transformer import Transformer
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import Job, SearchParams
from tests.fakes.engine_runs import hypotheses, run
from tests.parity.ctranslate2_model import numbered
from tests.parity.generate_models import generated, next_log_probs

MARGIN = 1e-4
SEARCHES = [  # beam size, early_stopping
    pytest.param(1, False, marks=pytest.mark.thorough),  # CTranslate2 shows it, too
    (4, False),
    pytest.param(4, True, marks=pytest.mark.thorough),
    pytest.param(6, False, marks=pytest.mark.thorough),
    (6, True),
]


def num_sentences(default: int) -> int:
    """Return how many sentences of each model to compare."""
    return int(os.environ.get("DRAGOMAN_TEST_SENTENCES", default))


@dataclass(frozen=True)
class Pair:
    """A model here and elsewhere, and sources for it: ids of transformers, with end-of-sentence."""

    bundle: Bundle
    reference: Transformer | Recurrent
    theirs: Any  # of transformers
    sources: list[list[int]]
    prefixes: list[list[int]] | None = None  # what each target begins with

    def tokens(self, beam_size: int, rule: StopRule) -> list[list[int]]:
        """Return what our engine gives."""
        decoding = replace(self.bundle.manifest.decoding, stop_rule=rule)
        bundle = replace(self.bundle, manifest=replace(self.bundle.manifest, decoding=decoding))
        params = SearchParams(
            beam_size=beam_size, length_penalty=decoding.length_penalty, max_target_tokens=self._longest
        )
        jobs = [
            Job(id=place, source_ids=tuple(source), params=params, prefix_ids=self._prefix(place))
            for place, source in enumerate(self.sources)
        ]
        outcomes = run(EngineLoop(CpuRunner(bundle)), jobs)
        return [list(hypotheses(outcomes[job.id])[0].token_ids) for job in jobs]

    def require_log_probs_of_transformers(self) -> None:
        """Raise AssertionError if encoder states or log-probabilities of a few sources, or the graphs, differ."""
        for place, source in enumerate(self.sources[:6]):
            target = [self.bundle.manifest.config.start_id, *self._prefix(place), *source[:-1]]
            ids, lengths = torch.tensor([source]), torch.tensor([len(source)])
            with torch.inference_mode():
                memory = self.reference.encode(ids, lengths)
                states = self.reference.decode(torch.tensor([target]), memory, lengths)
                ours = self.reference.log_probs(self.reference.project(states))[0]
                theirs = self.theirs.get_encoder()(input_ids=ids).last_hidden_state

            torch.testing.assert_close(memory, theirs, atol=1e-4, rtol=0.0)
            torch.testing.assert_close(ours, next_log_probs(self.theirs, source, target), atol=1e-4, rtol=0.0)
        assert self.bundle.manifest.variants["fp32"].parity["largest_difference"] < 1e-4  # of graphs and reference

    def require_tokens_of_generate(self, beam_size: int, *, early_stopping: bool) -> None:
        """Raise AssertionError if a sentence differs that is no near-tie."""
        theirs: dict[int, list[int]] = {}
        places = range(len(self.sources))
        for prefix, group in groupby(sorted(places, key=self._prefix), key=self._prefix):
            batch = list(group)
            found = generated(
                self.theirs,
                [self.sources[place] for place in batch],
                beam_size,
                early_stopping=early_stopping,
                forced_bos_token_id=next(iter(prefix), None),
            )
            theirs.update(zip(batch, found, strict=True))
        self._require(
            [theirs[place] for place in places], beam_size, StopRule.CTRANSLATE2 if early_stopping else StopRule.HF
        )

    def require_tokens_of_ctranslate2(self, directory: Path, beam_size: int) -> None:
        """Raise AssertionError if a sentence differs that is no near-tie.

        Beam search of CTranslate2 drops a hypothesis that ends right behind its prefix: such sentences may differ.

        Args:
            directory: from `write_ctranslate2_of`.
            beam_size: of both searches.
        """
        translator = ctranslate2.Translator(str(directory), compute_type="float32", intra_threads=1)
        results = translator.translate_batch(
            [[str(token) for token in source] for source in self.sources],
            target_prefix=[[str(token) for token in self._prefix(place)] for place in range(len(self.sources))],
            beam_size=beam_size,
            length_penalty=self.bundle.manifest.decoding.length_penalty,
            max_decoding_length=self._longest,
            min_decoding_length=0,
        )
        theirs = [[int(token) for token in result.hypotheses[0]] for result in results]
        self._require(
            theirs,
            beam_size,
            StopRule.CTRANSLATE2,
            is_known=lambda place: beam_size > 1 and self._ends_behind_prefix(place, beam_size),
        )

    def _require(
        self,
        theirs: Sequence[list[int]],
        beam_size: int,
        rule: StopRule,
        is_known: Callable[[int], bool] = lambda _: False,
    ) -> None:
        ours = self.tokens(beam_size, rule)
        different = [place for place, tokens in enumerate(theirs) if tokens != ours[place]]
        print(f"beam {beam_size}, {rule}: {len(theirs)} sentences, {len(different)} differ")
        faults = [place for place in different if self._margin(place, beam_size, rule) > MARGIN and not is_known(place)]
        assert [(ours[place], theirs[place]) for place in faults] == []

    def _margin(self, place: int, beam_size: int, rule: StopRule) -> float:
        return smallest_margin(self.reference, self.sources[place], self._config(place, beam_size, rule))

    def _ends_behind_prefix(self, place: int, beam_size: int) -> bool:
        config = self._config(place, beam_size, StopRule.CTRANSLATE2)
        found = beam_search(self.reference, self.sources[place], config)
        return bool(config.prefix) and any(one.tokens == list(config.prefix) for one in found)

    def _config(self, place: int, beam_size: int, rule: StopRule) -> BeamConfig:
        manifest = self.bundle.manifest
        return BeamConfig(
            beam_size=beam_size,
            length_penalty=manifest.decoding.length_penalty,
            max_target_tokens=self._longest,
            prefix=self._prefix(place),
            never_written=manifest.config.suppressed_ids,
            profile=manifest.profile._replace(stop_rule=rule),
        )

    @property
    def _longest(self) -> int:
        return int(self.theirs.generation_config.max_length) - 1

    def _prefix(self, place: int) -> tuple[int, ...]:
        return tuple(self.prefixes[place]) if self.prefixes else ()


def write_ctranslate2_of(theirs: Any, directory: Path) -> Path:
    """Convert a model of transformers with CTranslate2's loader, tokens being numbers; return the directory.

    Its loader of mBART asks for settings that transformers no longer has, and its vocabularies lack what a tokenizer
    of transformers 5 does not tell: the weights are all that is converted.
    """
    config = theirs.config
    config.normalize_before, config.normalize_embedding = True, True
    if config.model_type == "t5":  # transformers 5 ties every T5 and says elsewhere which of them are scaled
        config.tie_word_embeddings = config.scale_decoder_outputs
    spec = converters._MODEL_LOADERS[type(config).__name__].get_model_spec(theirs)
    names = numbered(config.vocab_size)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.bos_token = "3", "0"  # neither of them is looked up
    spec.config.eos_token = str(config.eos_token_id)
    spec.config.decoder_start_token = str(config.decoder_start_token_id)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(None)
    directory.mkdir(parents=True)
    spec.save(str(directory))
    return directory


def is_near_tie(
    reference: Transformer | Recurrent, bundle: Bundle, source: Sequence[int], params: SearchParams
) -> bool:
    """Return whether the search of the bundle's model had to choose between near-equals."""
    config = BeamConfig(
        beam_size=params.beam_size,
        length_penalty=params.length_penalty,
        max_target_tokens=params.max_target_tokens,
        never_written=bundle.manifest.config.suppressed_ids,
        profile=bundle.manifest.profile,
    )
    return smallest_margin(reference, source, config) <= MARGIN


def smallest_margin(reference: Transformer | Recurrent, source: Sequence[int], config: BeamConfig) -> float:
    """Return how near the reference search came to another choice."""
    with _watched_margins(config.beam_size) as margins:
        best, *others = beam_search(reference, source, config)
    return min(*margins, *(best.score - other.score for other in others[:1]), np.inf)


@contextmanager
def _watched_margins(beam_size: int) -> Iterator[list[float]]:
    """Collect the margin between the candidates of rank K and K + 1 at each step."""
    margins, original = list[float](), search._best_candidates

    def watch(*arguments: Any) -> Any:
        found = original(*arguments)
        margins.append(found[beam_size - 1].log_prob - found[beam_size].log_prob)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_best_candidates", watch)
        yield margins
