"""Books as programs write them: of our own words by hand, by pandoc and by Sphinx; and what else pandoc writes."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pypandoc

_CONTAINER = """<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
_BOOK = """<?xml version="1.0"?>
<package version="3.0" xmlns="http://www.idpf.org/2007/opf" unique-identifier="i">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="i">x</dc:identifier>
<dc:title>The garden</dc:title><dc:language>en</dc:language></metadata>
<manifest><item id="c" href="one.xhtml" media-type="application/xhtml+xml"/>
<item id="n" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="c"/></spine></package>"""
_PAGE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><title>One</title></head><body><h1>In spring</h1>
<p>The <b>gardener</b> waters the roses.</p><pre>ls</pre></body></html>"""
_CONTENTS = """<?xml version="1.0" encoding="utf-8"?>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en"><head>
<title>Contents</title></head><body><nav epub:type="toc"><ol><li><a href="one.xhtml">In spring</a></li></ol></nav>
</body></html>"""


def as_specified() -> bytes:
    """An EPUB of one chapter, as the specification has it."""
    written = io.BytesIO()
    parts = {
        "META-INF/container.xml": _CONTAINER,
        "OPS/book.opf": _BOOK,
        "OPS/one.xhtml": _PAGE,
        "OPS/nav.xhtml": _CONTENTS,
    }
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        for name, content in parts.items():
            archive.writestr(name, content)
    return written.getvalue()


_MANUSCRIPT = """---
title: The garden
author: A gardener
lang: en-GB
description: A book about a garden and its cat.
---

# In spring

The **gardener** waters the *red* roses every morning.[^1] Read [the whole book](https://example.com/book)
before you ask, and open `garden.ini`.

[^1]: They are red because the old gardener likes them.

> The cat sleeps in the shed.
> Nobody wakes it.

- Feed the birds.
- Feed the cat & the dog.

    ls -l garden

## What grows where

| Plant         | Where it grows      | Price |
|---------------|---------------------|------:|
| The red rose  | Behind the shed     |  3.50 |
| An old tree   | Beside the **gate** | 12.00 |

Table: The plants of the garden.

# In winter

Rose
:   A flower that sleeps in winter.

The water is H~2~O, and $a^2 + b^2$ is a sum. The [first chapter](#in-spring) says more.\\
This line is short.
"""
_SLIDES = """---
title: Why we need bees
lang: en
---

# Bees visit the flowers

- Without **bees** there are no apples.
- Ask the *old* beekeeper.

::: notes
Tell them about the winter.
:::

# Honey

| Month  | Honey |
|--------|-------|
| In May | 12 kg |
"""


def by_pandoc(directory: Path) -> list[Path]:
    """Write a book in both editions of EPUB, a text and slides; return the files."""
    directory.mkdir()
    files = []
    for name, form, source in (
        ("book-2.epub", "epub2", _MANUSCRIPT),
        ("book-3.epub", "epub3", _MANUSCRIPT),
        ("book.docx", "docx", _MANUSCRIPT),
        ("book.odt", "odt", _MANUSCRIPT),
        ("slides.pptx", "pptx", _SLIDES),
    ):
        pypandoc.convert_text(source, form, "markdown", outputfile=directory / name, extra_args=["--toc"])
        files.append(directory / name)
    return files


_SETTINGS = """
project, author, copyright, language, version = "The garden", "A gardener", "2026, a gardener", "en", "1"
epub_show_urls, html_theme = "footnote", "alabaster"
"""
_INDEX = """
The garden
==========

The **gardener** waters the *red* roses. See `the book <https://example.com/book>`_.

.. note:: Water them in the morning.

.. toctree::

   winter
"""
_WINTER = """
In winter
=========

.. index:: cat; sleeping

The cat sleeps in the shed [#one]_, and ``garden.ini`` is empty.

.. code-block:: sh

   ls -l garden

.. [#one] It is warm there.
"""


def by_sphinx(directory: Path) -> list[Path]:
    """Write a manual, and return the file."""
    (directory / "source").mkdir(parents=True)
    for name, text in (("conf.py", _SETTINGS), ("index.rst", _INDEX), ("winter.rst", _WINTER)):
        (directory / "source" / name).write_text(text)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-qb",
            "epub",
            "-d",
            directory / "trees",
            directory / "source",
            directory / "built",
        ],
        check=True,
    )
    return sorted((directory / "built").glob("*.epub"))
