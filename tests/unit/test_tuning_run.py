"""What `dragoman tune` reads, prints and writes; measuring is tests/unit/test_tuning.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.bundle import default_bundle_dir
from service.commands import tuning_run
from service.commands.tuning_choice import Measurement, Sample, Setting, Turn
from service.commands.tuning_run import SENTENCES, TuneCommand, configuration, run
from service.config import EngineConfig, LimitsConfig, ServerConfig, load_config
from service.engine.job import FinishReason, Hypothesis, JobResult, SearchParams
from service.errors import InvalidInput, Unavailable

SETTING = Setting(num_engines=3, threads=2, max_rows=77)
SOURCE = (5, 6, 7)


def command(output: Path, **changes: Any) -> TuneCommand:
    config = ServerConfig(engine=EngineConfig(bundle=changes.pop("bundle", None)))
    return TuneCommand(config=config, seconds=1.0, output=output, **changes)


def measured(setting: Setting = SETTING, *speeds: float) -> Measurement:
    turns = [Turn(rows_per_s=speed, memory_bytes=50_000_000) for speed in speeds or (400.0, 400.0)]
    return Measurement(setting, [0.0125], turns)


def worked(sample: Sample) -> Sample:
    """A sample of sentences that take 10 steps of 4 rows each."""
    hypothesis = Hypothesis(token_ids=(9,) * 9, score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE)
    sample.note(SOURCE, JobResult(job_id=0, hypotheses=(hypothesis,), queue_s=0, encode_s=0, decode_s=0, num_steps=10))
    return sample


@pytest.fixture
def found(monkeypatch) -> list[Measurement]:
    """What measuring gives, instead of measuring."""
    results = [measured(replace(SETTING, max_rows=10), 100.0), measured()]

    def measure(_: TuneCommand, sample: Sample, __: object) -> list[Measurement]:
        worked(sample)
        return results

    monkeypatch.setattr(tuning_run, "_measure", measure)
    return results


class TestConfiguration:
    def text(self, engine: EngineConfig | None = None) -> str:
        return configuration(
            measured(), worked(Sample([SOURCE], SearchParams())), engine or EngineConfig(), origin="here"
        )

    def test_serve_reads_the_settings_that_were_chosen(self, tmp_path):
        (tmp_path / "dragoman.toml").write_text(self.text())

        engine = load_config(tmp_path / "dragoman.toml").engine

        assert engine == EngineConfig(num_engines=3, threads=2, max_rows=77)

    def test_bundle_and_precision_are_written_where_they_are_set(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        bundle = Path('my "models"/für')
        (tmp_path / "dragoman.toml").write_text(self.text(EngineConfig(bundle=bundle, precision="fp32")))

        engine = load_config(tmp_path / "dragoman.toml").engine

        assert (engine.bundle, engine.precision) == (tmp_path / bundle, "fp32")

    def test_no_bundle_is_written_where_none_is_named_as_then_all_included_models_serve(self):
        assert "bundle" not in self.text()
        assert "bundle = " in self.text(EngineConfig(bundle=default_bundle_dir()))

    def test_figures_are_in_the_comments(self):
        assert self.text().startswith(
            "# here\n# 10.0 sentences/s; a sentence alone takes 12.5 ms (median); the engines hold 50 MB\n"
        )


class TestRun:
    def test_best_setting_is_marked_in_the_table_and_written(self, tmp_path, capsys, found):
        run(command(tmp_path / "out.toml"))

        printed = capsys.readouterr().out
        (row,) = (line for line in printed.splitlines() if "*" in line)
        assert [cell.strip() for cell in row.strip("│ ").split("│")] == [
            "*", "3", "2", "77", "10.0", "0 %", "90", "12.5", "12.5", "50", "2",
        ]  # fmt: skip
        assert "chosen: 3 engines x 2 threads, max_rows 77" in printed
        assert f"dragoman serve --config {tmp_path / 'out.toml'}" in printed.replace("\n", "")
        assert load_config(tmp_path / "out.toml").engine.num_engines == 3

    def test_preference_decides(self, tmp_path, found):
        found[0].latencies_s[0] = 0.005

        run(command(tmp_path / "latency.toml", prefer="latency"))
        run(command(tmp_path / "throughput.toml", prefer="throughput"))

        assert load_config(tmp_path / "latency.toml").engine.max_rows == 10
        assert load_config(tmp_path / "throughput.toml").engine.max_rows == 77

    def test_disturbed_turns_and_failed_settings_are_named(self, tmp_path, capsys, found):
        found[1].turns[0] = replace(found[1].turns[0], rows_per_s=900.0)
        found.append(Measurement(SETTING, [], failure="no memory left"))

        run(command(tmp_path / "out.toml"))

        printed = capsys.readouterr().out
        assert "the machine has other work" in printed
        assert "not usable: 3 engines x 2 threads, max_rows 77: no memory left" in printed

    def test_nothing_measured_is_an_error_with_its_reason(self, tmp_path, found):
        found[:] = [Measurement(SETTING, [], failure="the engine did not start")]
        with pytest.raises(Unavailable, match="the engine did not start"):
            run(command(tmp_path / "out.toml"))

        found[:] = [Measurement(SETTING, [])]
        with pytest.raises(Unavailable, match="within 1 s; give more --seconds"):
            run(command(tmp_path / "out.toml"))
        assert not (tmp_path / "out.toml").exists()


class TestSentences:
    @pytest.fixture
    def sources(self, monkeypatch, found) -> list[tuple[int, ...]]:
        """What the sample is made of."""
        taken: list[tuple[int, ...]] = []

        class Spy(Sample):
            def __init__(self, sources: list[tuple[int, ...]], params: SearchParams) -> None:
                taken.extend(sources)
                super().__init__(sources, params)

        monkeypatch.setattr(tuning_run, "Sample", Spy)
        return taken

    def test_ours_are_all_used_and_are_of_mixed_length(self, tmp_path, sources):
        run(command(tmp_path / "out.toml"))

        assert len(sources) == len(SENTENCES) == len(set(SENTENCES))
        assert min(map(len, sources)) < 6
        assert max(map(len, sources)) > 40

    def test_a_file_s_blank_and_overlong_lines_are_left_out(self, tmp_path, sources, capsys):
        (tmp_path / "texts.en").write_text("The cat sleeps.\n\n" + "word " * 3_000 + "\nIt rains.\n")

        run(command(tmp_path / "out.toml", texts=tmp_path / "texts.en"))

        assert len(sources) == 2
        assert "sentences of our own" not in capsys.readouterr().out

    def test_a_file_without_text_is_refused(self, tmp_path):
        (tmp_path / "texts.en").write_text("\n \n")

        with pytest.raises(ValueError, match=r"texts.en has no text that the model takes"):
            run(command(tmp_path / "out.toml", texts=tmp_path / "texts.en"))


class TestRefusals:
    def test_existing_output_is_kept_unless_forced(self, tmp_path, found):
        output = tmp_path / "out.toml"
        output.write_text("mine")

        with pytest.raises(ValueError, match=r"out.toml exists: --force replaces it"):
            command(output)
        assert output.read_text() == "mine"
        run(command(output, is_forced=True))
        assert "num_engines = 3" in output.read_text()

    def test_preference_that_is_none_is_named(self, tmp_path):
        with pytest.raises(ValueError, match="--prefer is 'memory', it must be one of balance, latency, throughput"):
            command(tmp_path / "out.toml", prefer="memory")

    def test_directory_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ValueError, match="there is no directory"):
            command(tmp_path / "no" / "out.toml")


def test_beam_is_measured_only_where_the_server_would_accept_it(tmp_path, found):
    wide = replace(command(tmp_path / "out.toml"), beam_size=20)

    with pytest.raises(InvalidInput, match=r"options\.beam_size is 20, from 1 to 16 is accepted"):
        run(wide)
    run(replace(wide, config=ServerConfig(limits=LimitsConfig(max_beam_size=32))))

    assert (tmp_path / "out.toml").exists()
