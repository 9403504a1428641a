"""Which model a request means, and what it is told when there is none."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from service.errors import NotFound
from service.registry.host import Catalog, Lease, ModelHost
from tests.fakes.model_info import model_info


def loaded(name: str, source: str, target: str) -> ModelHost:
    info = model_info(name, source_language=source, target_language=target)
    return cast("ModelHost", SimpleNamespace(info=info))  # nobody translates here


CATALOG = Catalog([loaded("a", "en", "de"), loaded("b", "en", "de"), loaded("c", "de", "en")])


@pytest.mark.parametrize(
    ("model", "source", "target", "found"),
    [
        (None, "", "", "a"),
        (None, "en", "de", "a"),
        (None, "DE", "EN", "c"),
        (None, "", "en", "c"),
        (None, "de", "", "c"),
        ("b", "", "", "b"),
        ("b", "en", "de", "b"),
    ],
)
def test_first_model_that_fits_is_found(model, source, target, found):
    assert CATALOG.find(model=model, source_language=source, target_language=target).info.name == found


@pytest.mark.parametrize(
    ("model", "source", "target", "message"),
    [
        ("x", "", "", "there is no model 'x'; loaded: a, b, c"),
        ("", "", "", "there is no model ''; loaded: a, b, c"),
        (None, "fr", "", "there is no model for 'fr' to any language; language pairs: en-de, en-de, de-en"),
        ("c", "en", "de", "there is no model for 'en' to 'de'; language pairs: de-en"),
    ],
)
def test_nothing_that_fits_is_not_found_with_what_there_is(model, source, target, message):
    with pytest.raises(NotFound) as error:
        CATALOG.find(model=model, source_language=source, target_language=target)

    assert str(error.value) == message


def test_long_or_unprintable_names_are_shortened_and_escaped():
    with pytest.raises(NotFound) as error:
        CATALOG.find(model="\u202e" + "x" * 1_000, source_language="", target_language="")

    assert str(error.value) == f"there is no model '\\u202e{'x' * 39}...'; loaded: a, b, c"


def test_replaced_models_are_what_later_requests_find_and_earlier_ones_keep_theirs():
    catalog = Catalog([loaded("a", "en", "de")])
    before = catalog.find(model="a", source_language="", target_language="")

    catalog.replace([loaded("a", "en", "de")])

    after = catalog.find(model="a", source_language="", target_language="")
    assert before is not after
    assert before.info.name == "a"


async def test_lease_is_idle_when_the_last_call_has_left():
    lease = Lease()
    await lease.wait_idle()
    with lease, lease:
        waiting = asyncio.create_task(lease.wait_idle())
        await asyncio.sleep(0)
        assert (lease.calls, waiting.done()) == (2, False)

    await asyncio.wait_for(waiting, 5)
    assert lease.calls == 0


def test_model_that_the_caller_may_not_use_is_as_if_it_were_not_there():
    only_b = CATALOG.find(model=None, source_language="en", target_language="de", may_use=lambda name: name == "b")
    with pytest.raises(NotFound) as of_another:
        CATALOG.find(model="a", source_language="", target_language="", may_use=lambda name: name == "b")
    with pytest.raises(NotFound) as of_none:
        CATALOG.find(model=None, source_language="", target_language="", may_use=lambda name: False)

    assert only_b.info.name == "b"
    assert str(of_another.value) == "there is no model 'a'; loaded: b"
    assert str(of_none.value) == "there is no model; loaded: none"
