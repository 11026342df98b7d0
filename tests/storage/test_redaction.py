"""Secrets are planted wherever a user may put one, and looked for in every text that comes out."""

from __future__ import annotations

import traceback

import pytest

from pyhudi.errors import HudiError
from pyhudi.storage.open import open_storage
from pyhudi.storage.redaction import redacted, secret_values
from pyhudi.storage.stores.object_store import ObstoreStorage

CANARY = "Canary/7+x="  # with what a quoted form would change
NOBODY = "http://127.0.0.1:1"  # refuses every connection
QUICK = {"allow_http": "true", "max_retries": "0"}
S3 = QUICK | {"aws_endpoint": NOBODY, "aws_access_key_id": "x", "aws_secret_access_key": "x"}
GS = QUICK | {"google_base_url": NOBODY, "google_bearer_token": "x"}
AZ = QUICK | {"azure_storage_endpoint": NOBODY, "azure_storage_account_name": "me"}

PLANTED: list[tuple[str, dict[str, str]]] = [
    ("s3://bucket/t", S3 | {"aws_access_key_id": CANARY}),
    ("s3://bucket/t", S3 | {"aws_secret_access_key": CANARY}),
    ("s3://bucket/t", S3 | {"aws_session_token": CANARY}),
    ("s3://bucket/t", S3 | {"aws_sse_customer_key_base64": CANARY}),
    ("s3://bucket/t", S3 | {"aws_endpoint": f"http://me:{CANARY}@127.0.0.1:1"}),
    ("s3://bucket/t", S3 | {"aws_endpoint": "http://me:Canary@127.0.0.1:1"}),
    ("s3://bucket/t", S3 | {"proxy_url": f"http://me:{CANARY}@127.0.0.1:1"}),
    ("s3://bucket/t", S3 | {"aws_sercet_key": CANARY}),
    ("s3://bucket/t", S3 | {"password": CANARY}),
    (f"s3://me:{CANARY}@bucket/t", S3),
    ("gs://bucket/t", GS | {"google_bearer_token": CANARY}),
    ("gs://bucket/t", QUICK | {"google_service_account_key": CANARY}),
    ("az://box/t", AZ | {"azure_storage_account_key": CANARY}),
    ("az://box/t", AZ | {"azure_storage_sas_key": f"sv=1&sig={CANARY}"}),
    ("az://box/t", AZ | {"azure_storage_token": CANARY}),
    (f"az://box/t?sv=1&sig={CANARY}", AZ),
    (f"https://{CANARY}@host/t", {}),
    (f"hdfs://me:{CANARY}@host/t", {}),
    (f"file://me:{CANARY}@host/t", {}),
]


@pytest.mark.parametrize(("uri", "options"), PLANTED)
def test_secret_shows_nowhere(uri: str, options: dict[str, str]) -> None:
    shown: list[str] = []

    def use() -> None:
        storage = open_storage(uri, options)
        shown.extend([repr(storage), str(storage), f"{storage}", storage.uri])
        storage.create("a", b"1")

    with pytest.raises(HudiError) as caught:
        use()
    error = caught.value
    assert error.__context__ is None or error.__suppress_context__
    shown += [str(error), repr(error), *traceback.format_exception(error)]
    shown += [repr(value) for value in vars(error).values()]
    for text in shown:
        assert "Canary" not in text


@pytest.mark.parametrize(
    "call",
    [
        lambda storage: storage.create("a", b"1"),
        lambda storage: storage.create_from("a", [b"1"]),
        lambda storage: storage.replace("a", b"1", etag="x"),
        lambda storage: storage.write("a", b"1"),
        lambda storage: storage.read("a"),
        lambda storage: storage.read_ranges("a", [(0, 1)]),
        lambda storage: storage.stat("a"),
        lambda storage: list(storage.list("")),
        lambda storage: storage.list_folder(""),
        lambda storage: storage.delete("a"),
        lambda storage: storage.open("a"),
    ],
)
def test_no_operation_shows_a_secret(call: object) -> None:
    storage = ObstoreStorage("az://box/t", AZ | {"azure_storage_sas_key": f"sv=1&sig={CANARY}"})
    with pytest.raises(HudiError) as caught:
        call(storage)  # type: ignore[operator]
    assert "Canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing to hide", "nothing to hide"),
        ("s3://bucket/day=1/f", "s3://bucket/day=1/f"),
        ("abfss://box@me.dfs.core.windows.net/t", "abfss://box@me.dfs.core.windows.net/t"),
        ("s3://id:pass/word@bucket/t", "s3://***@bucket/t"),
        ("https://token@host/x", "https://***@host/x"),
        ("at https://h/c?sv=1&sig=a%3D&se=2", "at https://h/c?sv=1&sig=***&se=2"),
        ("?X-Amz-Signature=ab12 x", "?X-Amz-Signature=*** x"),
        ("?X-Amz-Credential=AK/1&y=2", "?X-Amz-Credential=***&y=2"),
        ("password=hunter2", "password=***"),
    ],
)
def test_what_looks_like_a_secret_is_replaced(text: str, expected: str) -> None:
    assert redacted(text) == expected


def test_longer_secret_goes_first() -> None:
    secrets = secret_values({"a_key": "abc", "b_token": "abcdef", "region": "abcdefg"})
    assert secrets == ("abcdef", "abc")
    assert redacted("abcdef abc", secrets) == "*** ***"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Configuration key: 'aws_regoin' is not valid", None),
        ("key pw1 was refused", "key *** was refused"),
        ("user=me:pw1@host", "user=me:***@host"),
        ("pw10 and aws-b", "pw10 and aws-***"),
    ],
)
def test_a_short_secret_is_hidden_as_a_whole_word_and_garbles_no_other(
    text: str, expected: str | None
) -> None:
    secrets = secret_values({"access_key_id": "b", "secret_key": "pw1", "token": "aws"})
    expected = expected and expected.replace("aws", "***")
    assert redacted(text, secrets) == (expected or text)


def test_a_long_secret_is_hidden_within_words_too() -> None:
    assert redacted("xAKIA1234y", ("AKIA1234",)) == "x***y"
