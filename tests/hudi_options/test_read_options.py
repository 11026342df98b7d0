from __future__ import annotations

import warnings

import pytest

from pyhudi.errors import InvalidRequestError
from pyhudi.hudi_options.read_options import parse_read_options

TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"


def test_the_default_is_a_snapshot_of_now() -> None:
    read = parse_read_options({"path": "x"})
    assert (read.as_of, read.begin, read.end) == (None, None, None)
    assert not read.question.read_optimized


def test_a_read_optimized_read_with_columns_and_a_predicate() -> None:
    options = {TYPE: "READ_OPTIMIZED", "columns": "a, b", "where": "a = 1"}
    question = parse_read_options(options).question
    assert question.read_optimized
    assert question.columns == ("a", "b")
    assert question.where == "a = 1"


INSTANTS = [
    ("20260102030405678", "20260102030405678"),
    ("20260102030405", "20260102030405"),
    ("2026-01-02", "20260102000000000"),
    ("2026-01-02 03:04:05", "20260102030405000"),
    ("2026-01-02 03:04:05.678", "20260102030405678"),
]


@pytest.mark.parametrize(("given", "digits"), INSTANTS)
def test_instants_are_given_in_hudis_formats(given: str, digits: str) -> None:
    assert parse_read_options({"as.of.instant": given}).as_of == digits


def test_an_incremental_range_begins_with_the_table_at_000() -> None:
    read = parse_read_options({TYPE: "incremental", BEGIN: "000", END: "20260102030405678"})
    assert (read.begin, read.end) == ("", "20260102030405678")


REFUSED = [
    ({TYPE: "magic"}, "cannot be honoured"),
    ({TYPE: "incremental"}, "no beginning"),
    ({TYPE: "incremental", BEGIN: "earliest"}, "17 digits"),
    (
        {TYPE: "incremental", BEGIN: "000", "hoodie.datasource.query.incremental.format": "cdc"},
        "only latest_state",
    ),
    ({"hoodie.datasource.merge.type": "skip_merge"}, "unmerged log rows are not offered"),
    ({"hoodie.datasource.query.typ": "snapshot"}, "Did you mean 'hoodie.datasource.query.type'"),
    ({"nonsense": "1"}, "no read option 'nonsense'"),
    ({"as.of.instant": "tomorrow"}, "17 digits"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_would_change_the_meaning_are_refused(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_read_options(options)


def test_a_question_ends_with_its_mark() -> None:
    with pytest.raises(InvalidRequestError, match=r" Did you mean 'where'\?$"):
        parse_read_options({"were": "1"})


def test_an_option_without_effect_is_said_once() -> None:
    with pytest.warns(UserWarning, match="does not read the metadata table"):
        parse_read_options({"hoodie.metadata.enable": "true"})


def test_an_option_that_says_what_pyhudi_does_is_silent() -> None:
    silent = {
        "hoodie.metadata.enable": "false",
        "hoodie.schema.on.read.enable": "false",
        "hoodie.datasource.merge.type": "payload_combine",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = {"hoodie.datasource.query.type": "snapshot"}
        assert parse_read_options(silent) == parse_read_options(plain)
