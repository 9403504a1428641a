"""The command that draws attention."""

from typer.testing import CliRunner

from model.tools.attention import MAX_TOKENS, app
from tests.fakes.tiny_model import write_tiny_checkpoint


def test_the_command_writes_a_png_and_refuses_what_it_cannot_draw(tmp_path):
    checkpoint, output = write_tiny_checkpoint(tmp_path / "run"), tmp_path / "attention.png"

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*arguments, "--output", str(output)], env={"COLUMNS": "200"})
        return result.exit_code, result.output

    code, said = run(str(checkpoint), "The dog $plays_$.", "--part", "cross", "--layer", "2", "--beam-size", "1")

    assert code == 0, said
    assert output.read_bytes().startswith(b"\x89PNG")
    for arguments, reason in (
        ((str(checkpoint), " "), "sentence has 0 tokens"),
        ((str(checkpoint), "dog " * 99), f"1 to {MAX_TOKENS} can be drawn"),
        ((str(checkpoint), "dog", "--part", "cross", "--layer", "3"), "--layer is 3, the part cross has 2"),
        ((str(checkpoint), "dog", "--layer", "1"), "--layer 1 needs --part"),
        ((str(tmp_path), "dog"), "is no checkpoint"),
    ):
        code, said = run(*arguments)
        assert code == 2
        assert reason in said
