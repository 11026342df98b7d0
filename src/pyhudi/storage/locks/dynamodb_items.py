"""One item of a DynamoDB table, read consistently and written on conditions.

Each request is sent once. A client that repeats a conditional write by itself may find that the
condition fails because its own first attempt had succeeded. So the caller looks instead.

boto3 is imported when the first lock is opened, since most users have none in DynamoDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyhudi.errors import HudiError, InvalidRequestError, UnavailableError
from pyhudi.format.lock.lock_address import DynamodbAddress
from pyhudi.format.lock.lock_item import (
    KEY,
    LEASE_MS,
    OWNER,
    VERSION,
    LockItem,
    decode_lock_item,
    encode_lock_item,
)
from pyhudi.storage.redaction import redacted

CONNECT_S = 5
ANSWER_S = 10  # well below a third of a lease, which is how often one is renewed

_CONDITION_FAILED = "ConditionalCheckFailedException"
_NO_TABLE = "ResourceNotFoundException"
#: What no repetition changes, by the beginning of the error's code.
_REFUSALS = (
    *("AccessDenied", "UnrecognizedClient", "InvalidSignature", "MissingAuthentication"),
    *("IncompleteSignature", "InvalidClientTokenId", "ExpiredToken", "ValidationException"),
)
_REFUSED_SETUPS = (
    *("NoCredentialsError", "PartialCredentialsError", "NoRegionError", "ProfileNotFound"),
    *("CredentialRetrievalError", "ParamValidationError", "UnknownServiceError"),
)

_SAME_VERSION = "attribute_exists(#key) AND #version = :seen"
_STILL_OURS = f"{_SAME_VERSION} AND #owner = :owner"


class DynamodbItems:
    """The item of one lock. Safe to use from several threads."""

    def __init__(self, address: DynamodbAddress, client: Any = None) -> None:
        self._address = address
        self._client = client if client is not None else _new_client(address)
        self._item_key = {KEY: {"S": address.partition_key}}

    def load(self) -> LockItem | None:
        """Return the item; None if there is none. CorruptTableError if it is not a lock."""
        with self._errors_told():
            try:
                answer = self._client.get_item(
                    TableName=self._address.table, Key=self._item_key, ConsistentRead=True
                )
            except self._client.exceptions.ResourceNotFoundException:
                return None
        attributes = answer.get("Item")
        return decode_lock_item(attributes) if attributes else None

    def put(self, item: LockItem, *, over: LockItem | None) -> bool:
        """Write the item in place of the one that was seen; False if that has changed since.

        If there is no DynamoDB table it is created, as Hudi does, and this one call raises
        UnavailableError.
        """
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": KEY},
        }
        if over is not None:
            condition = {
                "ConditionExpression": _SAME_VERSION,
                "ExpressionAttributeNames": {"#key": KEY, "#version": VERSION},
                "ExpressionAttributeValues": {":seen": {"S": over.version}},
            }
        written = encode_lock_item(self._address.partition_key, item)
        with self._errors_told():
            code = self._code_of("put_item", Item=written, **condition)
        if code == _NO_TABLE:
            raise self._made_table()
        return code is None

    def renew(self, mine: LockItem, version: str) -> bool:
        """Give our item another version; False if it is not as we know it, or gone."""
        return self._changed(
            "update_item",
            mine,
            {"#lease": LEASE_MS},
            {":lease": {"S": str(mine.lease_ms)}, ":new": {"S": version}},
            UpdateExpression="SET #lease = :lease, #version = :new",
        )

    def delete(self, mine: LockItem) -> bool:
        """Remove our item; False if it is not as we know it, or gone."""
        return self._changed("delete_item", mine, {}, {})

    def _changed(
        self, verb: str, mine: LockItem, names: dict[str, str], values: dict[str, Any], **how: Any
    ) -> bool:
        with self._errors_told():
            code = self._code_of(
                verb,
                Key=self._item_key,
                ConditionExpression=_STILL_OURS,
                ExpressionAttributeNames={
                    "#key": KEY,
                    "#version": VERSION,
                    "#owner": OWNER,
                    **names,
                },
                ExpressionAttributeValues={
                    ":seen": {"S": mine.version},
                    ":owner": {"S": mine.owner},
                    **values,
                },
                **how,
            )
        return code is None

    def _code_of(self, verb: str, **arguments: Any) -> str | None:
        """Send a write. Return None if it was made, or the code of the refused condition."""
        errors = self._client.exceptions
        try:
            getattr(self._client, verb)(TableName=self._address.table, **arguments)
        except errors.ConditionalCheckFailedException:
            return _CONDITION_FAILED
        except errors.ResourceNotFoundException:
            return _NO_TABLE
        return None

    def _made_table(self) -> UnavailableError:
        """Create the table, and return the error that says it takes a moment."""
        is_there = self._client.exceptions.ResourceInUseException  # or another writer was faster
        with self._errors_told(), suppress(is_there):
            self._client.create_table(
                TableName=self._address.table,
                KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        return UnavailableError(
            f"the DynamoDB table {self._address.table} is being made",
            why="it did not exist, and the first writer makes it",
            next_step="Repeat the call",
        )

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise _told(error, self._address) from error


def _told(error: Any, address: DynamodbAddress) -> HudiError:
    code = str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))
    is_refusal = code.startswith(_REFUSALS) or type(error).__name__ in _REFUSED_SETUPS
    if is_refusal:
        return InvalidRequestError(
            f"DynamoDB refuses the lock, {address}",
            why=redacted(str(error)).rstrip("."),
            next_step="Check the credentials of this process, its rights on that table, and that"
            f" the table's key is the text {KEY!r} alone",
        )
    return UnavailableError(
        f"DynamoDB does not answer about the lock, {address}",
        why=redacted(str(error)).rstrip("."),
        next_step="Repeat the call",
    )


def require_boto3() -> None:
    """Raise InvalidRequestError, with what to install, if DynamoDB's client is missing."""
    try:
        import boto3  # noqa: F401
    except ImportError:
        raise InvalidRequestError(
            "the lock 'dynamodb' needs a library that is not installed",
            why="boto3 cannot be imported",
            next_step="Install it with pip install 'pyhudi[dynamodb]'",
        ) from None


def _new_client(address: DynamodbAddress) -> Any:
    require_boto3()
    from boto3.session import Session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    once = Config(
        connect_timeout=CONNECT_S, read_timeout=ANSWER_S, retries={"total_max_attempts": 1}
    )
    try:
        return Session().client(
            "dynamodb",
            region_name=address.region,
            endpoint_url=address.endpoint_url,
            config=once,
        )
    except (BotoCoreError, ValueError) as error:
        raise _told(error, address) from error
