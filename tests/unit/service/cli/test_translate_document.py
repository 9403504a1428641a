"""`dragoman translate --document`: files in, files out, with a server and without."""

import json

import pytest

from protos import translation_pb2 as pb
from tests.fakes.command_line import mirror, run, run_against
from tests.fakes.packages import word
from tests.fakes.scripted_server import Context
from tests.fakes.scripted_server import running as server

__all__ = ["mirror", "server"]


def answers(*translations: pb.Translation) -> pb.TranslateResponse:
    return pb.TranslateResponse(translations=translations)


async def test_a_document_is_translated_into_another_file(server, tmp_path):
    source, output = tmp_path / "a.md", tmp_path / "b.md"
    source.write_text("# One\n\n`two`\n\n- [three](u)\n")

    async def no_tag(request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        return answers(
            *(pb.Translation(hypotheses=[pb.Hypothesis(text=text.replace("e", "E"))]) for text in request.texts)
        )

    server.service.handler = no_tag
    result = await run_against(server, "translate", "--document", str(source), "-o", str(output), "--to", "de")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert output.read_text() == "# OnE\n\n`two`\n\n- [thrEE](u)\n"
    (request,) = server.service.requests
    assert list(request.texts) == ["One", '<g id="1">three</g>']
    assert (request.format, request.target_language) == (pb.TEXT_FORMAT_XLIFF, "de")


async def test_units_of_each_format_are_calls_of_their_own_and_come_back_in_order(server, tmp_path):
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr ""\n\nmsgid "b"\nmsgstr ""\n\nmsgid "<c>d</c>"\nmsgstr ""\n')
    result = await run_against(server, "translate", "--document", str(tmp_path / "a.po"))

    assert result.stdout.count("msgstr") == 3
    assert [line for line in result.stdout.splitlines() if "msgstr" in line] == [
        'msgstr "A"',
        'msgstr "B"',
        'msgstr "<C>D</C>"',
    ]
    assert [request.format for request in server.service.requests] == [pb.TEXT_FORMAT_UNSPECIFIED, pb.TEXT_FORMAT_HTML]


async def test_a_failed_unit_stays_as_it_was_and_exit_code_1(server, tmp_path):
    async def second_fails(request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        good = pb.Translation(hypotheses=[pb.Hypothesis(text="eins\n")])
        return answers(
            good, pb.Translation(status=pb.Status(code=3, message="texts[1] has 900 tokens, at most 512 are accepted"))
        )

    server.service.handler = second_fails
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    result = await run_against(server, "translate", "--document", str(tmp_path / "a.txt"))

    assert (result.exit_code, result.stdout) == (1, "eins\n\ntwo\n")
    assert result.stderr == "dragoman: line 3: the text has 900 tokens, at most 512 are accepted\n"


async def test_warnings_are_a_table_and_no_failure(server, tmp_path):
    async def warn(request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        translations = []
        for number, text in enumerate(request.texts):
            kind = pb.WARNING_KIND_COPIED if number < 2 else pb.WARNING_KIND_SPLIT
            found = [pb.TextWarning(kind=kind, source=pb.Span(begin=0, end=1))] if number else []
            segment = pb.Segment(hypotheses=[pb.Hypothesis(text=text)], warnings=found)
            translations.append(
                pb.Translation(hypotheses=[pb.Hypothesis(text=text)], segments=[segment], warnings=found)
            )
        return answers(*translations)

    server.service.handler = warn
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\nthree\n\nfour\n")
    result = await run_against(server, "translate", "--document", str(tmp_path / "a.txt"))

    assert result.exit_code == 0
    assert [line.split() for line in result.stderr.splitlines()] == [
        ["warning", "count", "first", "in", "line"],
        ["split", "2", "5"],
        ["copied", "1", "3"],
    ]


async def test_report_has_every_warning_with_its_place(server, tmp_path):
    async def warn(request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        found = pb.TextWarning(kind=pb.WARNING_KIND_COPIED, message="the same", source=pb.Span(begin=4, end=10))
        segment = pb.Segment(source=pb.Span(begin=4, end=10), target=pb.Span(begin=4, end=10), warnings=[found])
        return answers(
            *(pb.Translation(hypotheses=[pb.Hypothesis(text=text)], segments=[segment]) for text in request.texts)
        )

    server.service.handler = warn
    (tmp_path / "a.txt").write_text("one\ntwo on\n")
    (tmp_path / "b.docx").write_bytes(word("<w:p><w:r><w:t>one two on</w:t></w:r></w:p>"))
    line = {"kind": "copied", "message": "the same", "line": 2, "source": "two on", "translation": "two on"}
    part = {"line": 1, "part": "word/document.xml"}

    for name, expected in (("a.txt", line), ("b.docx", line | part)):
        out, report = str(tmp_path / "out"), tmp_path / "report.json"
        await run_against(server, "translate", "--document", str(tmp_path / name), "-o", out, "--report", str(report))

        assert json.loads(report.read_text()) == [expected]


async def test_marks_that_the_translation_lost_are_a_warning_at_their_line(server, tmp_path):
    async def lose(request: pb.TranslateRequest, _: Context) -> pb.TranslateResponse:
        return answers(*(pb.Translation(hypotheses=[pb.Hypothesis(text="lost")]) for _ in request.texts))

    server.service.handler = lose
    (tmp_path / "a.md").write_text("one\n\n**two** three\n")
    result = await run_against(server, "translate", "--document", str(tmp_path / "a.md"))

    assert (result.exit_code, result.stdout) == (0, "lost\n\n**two** three\n")
    assert result.stderr.splitlines()[1].split() == ["not", "translated", "1", "3"]


def test_a_document_in_process_needs_no_server(mirror, tmp_path):
    (tmp_path / "a.txt").write_text("abc\n\nxyz\n")
    result = run("translate", "--bundle", "some/where", "--document", str(tmp_path / "a.txt"))

    assert (result.exit_code, result.stdout) == (0, "\ncba\n\nzyx")
    assert mirror.request.format == "plain"


def test_a_document_may_be_written_over(mirror, tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("abc")

    assert run("translate", "--bundle", "b", "--document", str(file), "-o", str(file)).exit_code == 0
    assert file.read_text() == "cba"


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("a.xyz", b"", (), "a.xyz has none of the suffixes .txt, .html"),
        ("a.docx", b"", (), "a.docx: the file is no ZIP package"),
        ("a.txt", b"a\xff", (), "a.txt: the file is not valid UTF-8 at byte 1: convert it with `iconv"),
        ("a.po", b"hello\n", (), "a.po: this is no gettext PO file"),
        ("a.txt", b"", ("--format", "word"), "--format is 'word', there are auto, text, html"),
        ("a.txt", b"", ("text",), "--document goes with no texts"),
        ("a.txt", b"", ("--json",), "--document goes with no texts"),
        ("a.xml", b"<a>", (), "a.xml: the file is no well-formed XML"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what(mirror, tmp_path, name, content, arguments, message):
    (tmp_path / name).write_bytes(content)
    result = run("translate", "--bundle", "b", "--document", str(tmp_path / name), *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_options_of_a_document_need_one(mirror):
    assert (
        "--output, --format and --report need --document" in run("translate", "--bundle", "b", "text", "-o", "x").stderr
    )
