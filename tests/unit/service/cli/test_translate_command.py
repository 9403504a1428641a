"""`dragoman translate`: what it prints where, and its exit codes, with a server and without."""

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from protos import translation_pb2 as pb
from tests.fakes.command_line import mirror, run, run_against
from tests.fakes.scripted_server import Context, failing
from tests.fakes.scripted_server import running as server

__all__ = ["mirror", "server"]


async def test_translate_reads_standard_input_and_keeps_blank_lines(server):
    result = await run_against(server, "translate", stdin="one\n\n  \ntwö\n")

    assert result.stdout.split("\n") == ["ONE", "", "  ", "TWÖ", ""]


async def test_translate_reads_a_file_of_any_length_in_order(server, tmp_path):
    words = [f"word {number}" for number in range(500)]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")

    result = await run_against(server, "translate", "--file", str(tmp_path / "words.txt"), "--batch-size", "7")

    assert result.stdout.splitlines() == [word.upper() for word in words]
    assert {len(request.texts) for request in server.service.requests} == {7, 500 % 7}


async def test_translate_sends_the_options_it_was_given_and_no_others(server):
    arguments = ["--beam-size", "2", "--length-penalty", "0.6", "--from", "en", "--to", "de", "--model", "loud"]
    await run_against(server, "translate", "one", *arguments)

    (request,) = server.service.requests
    assert (request.source_language, request.target_language, request.model) == ("en", "de", "loud")
    assert {field.name for field, _ in request.options.ListFields()} == {"beam_size", "length_penalty"}


async def test_options_of_the_search_go_by_the_names_that_people_type(server):
    arguments = [
        "-n",
        "2",
        "--alternatives",
        "--min-target-tokens",
        "3",
        "--repetition-penalty",
        "1.5",
        "--no-repeat-ngram",
        "4",
    ]
    await run_against(server, "translate", "one", *arguments, "--suppress", "a dog", "--suppress", "Dog")
    await run_against(
        server, "translate", "one", *["--top-k", "50", "--top-p", "0.75", "--temperature", "0.5", "--seed", "7"]
    )

    searched, drawn = (request.options for request in server.service.requests)
    assert searched == pb.TranslateOptions(
        num_hypotheses=2,
        return_alternatives=True,
        min_target_tokens=3,
        repetition_penalty=1.5,
        no_repeat_ngram_size=4,
        suppressed_phrases=["a dog", "Dog"],
    )
    assert drawn == pb.TranslateOptions(
        beam_size=1, sampling_top_k=50, sampling_top_p=0.75, sampling_temperature=0.5, sampling_seed=7
    )


async def test_one_failed_text_leaves_an_empty_line_and_exit_code_1(server):
    async def second_fails(request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        bad = pb.Status(code=3, message="texts[1] has 900 tokens, at most 512 are accepted")
        translations = [pb.Translation(hypotheses=[pb.Hypothesis(text=text)]) for text in request.texts]
        translations[1] = pb.Translation(status=bad)
        return pb.TranslateResponse(translations=translations)

    server.service.handler = second_fails
    result = await run_against(server, "translate", "a", "b", "c")

    assert (result.exit_code, result.stdout) == (1, "a\n\nc\n")
    assert result.stderr == "dragoman: line 2: the text has 900 tokens, at most 512 are accepted\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "advice"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2, ""),
        (grpc.StatusCode.UNAUTHENTICATED, 2, "; commands take it from DRAGOMAN_API_KEY or --api-key-file"),
        (grpc.StatusCode.INTERNAL, 3, ""),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 3, ""),
    ],
)
async def test_a_failed_call_is_one_line_and_an_exit_code(server, code, exit_code, advice):
    server.service.handler = failing(code, "given 7, at most 5")
    result = await run_against(server, "translate", "one")

    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr == f"dragoman: given 7, at most 5{advice}\n"


async def test_a_server_that_is_not_ready_is_named_with_a_way_out(server):
    await server.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    result = await run_against(server, "translate", "one", "--wait", "0.1")

    assert result.exit_code == 3
    assert f"no server was ready at {server.address} within 0.1 s" in result.stderr
    assert "dragoman serve" in result.stderr
    assert "--bundle" in result.stderr


def test_translate_in_process_needs_no_server(mirror):
    result = run("translate", "--bundle", "some/where", "--threads", "1", "--precision", "fp32", stdin="abc\n\nxyz\n")

    assert (result.exit_code, result.stdout) == (0, "cba\n\nzyx\n")
    assert mirror.opened["directory"] == Path("some/where")
    assert (mirror.opened["threads"], mirror.opened["precision"]) == (1, "fp32")


def test_included_bundle_is_meant_by_its_name(mirror):
    run("translate", "--bundle", "en-de", "one")

    assert mirror.opened["directory"].parts[-3:] == ("model", "pretrained", "en-de")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one", "--file", "words.txt"], "texts or --file"),
        (["--file", "no-such-file", "--bundle", "b"], "no-such-file"),
        (["one", "--bundle", "no-such-bundle"], "no-such-bundle is no directory, and no included model ("),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what(arguments, message):
    result = run("translate", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
