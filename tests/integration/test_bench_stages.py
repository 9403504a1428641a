"""A stage of the capacity card's benchmark against a real server."""

from rich.console import Console

from tests.bench.capacity.stages import Search, Sender

BEAM_1 = Search(beam_size=1, use_shortlist=False)


def test_a_stage_sends_its_texts_and_leaves_the_warm_up_out(server, tmp_path):
    texts = tmp_path / "texts"
    texts.write_text("Hi.\n")
    sender = Sender(address=server.address, texts=texts, stage_s=1.0, console=Console(quiet=True))

    seen = sender.at_rate(BEAM_1, 40.0)

    assert set(seen.codes) == {"OK"}
    assert 0 < seen.calls < 40
    assert sender.num_stages == 1
