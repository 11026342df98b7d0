"""Java's side of a lock: Hudi's own provider for ZooKeeper, and Amazon's client for DynamoDB.

Hudi's provider for DynamoDB wraps that client and adds nothing to what it writes. The client has to
be named beside the bundle (`JUDGE_MORE_JARS`); the rest comes with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError

from conformance.judge.encoding import Row
from conformance.judge.spark import SparkJudge

DYNAMODB = "hoodie.write.lock.dynamodb."
LEASE_MS = 60_000  # what Hudi asks for
INSIDE_S = 0.02  # long enough to be met there


class JavaLock(Protocol):
    def take(self, wait_ms: int) -> bool: ...

    def give_back(self) -> None: ...


class HudiLock:
    """The provider that the options name, made anew for each turn, as Hudi does."""

    def __init__(self, judge: SparkJudge, options: Mapping[str, str]) -> None:
        self._judge = judge
        self._options = options
        self._provider: Any = None

    def take(self, wait_ms: int) -> bool:
        jvm, conf = self._judge.jvm, self._judge.storage_conf
        named = jvm.java.util.Properties()
        for name, text in self._options.items():
            named.setProperty(name, text)
        configuration = jvm.org.apache.hudi.common.config.LockConfiguration(named)
        locks = jvm.org.apache.hudi.client.transaction.lock
        provider = locks.ZookeeperBasedLockProvider(configuration, conf)
        try:
            is_taken = provider.tryLock(wait_ms, jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
        except Py4JJavaError as error:
            provider.close()
            if "FAILED_TO_ACQUIRE" not in str(error.java_exception):
                raise
            return False
        self._provider = provider
        return bool(is_taken)

    def give_back(self) -> None:
        self._provider.unlock()
        self._provider.close()
        self._provider = None


class AmazonLock:
    """Amazon's lock client, set up as Hudi's provider sets it up."""

    def __init__(self, judge: SparkJudge, options: Mapping[str, str]) -> None:
        jvm = judge.jvm
        sdk, self._client_classes = (
            jvm.software.amazon.awssdk,
            jvm.com.amazonaws.services.dynamodbv2,
        )
        self._units = jvm.java.util.concurrent.TimeUnit
        keys = sdk.auth.credentials.AwsBasicCredentials.create("nobody", "nothing")
        service = (
            sdk.services.dynamodb.DynamoDbClient.builder()
            .endpointOverride(jvm.java.net.URI.create(options[f"{DYNAMODB}endpoint_url"]))
            .region(sdk.regions.Region.of(options[f"{DYNAMODB}region"]))
            .credentialsProvider(sdk.auth.credentials.StaticCredentialsProvider.create(keys))
            .build()
        )
        table = options[f"{DYNAMODB}table"]
        lease_ms = int(options.get("hoodie.write.lock.wait_time_ms", LEASE_MS))
        self._client = self._client_classes.AmazonDynamoDBLockClient(
            self._client_classes.AmazonDynamoDBLockClientOptions.builder(service, table)
            .withTimeUnit(self._units.MILLISECONDS)
            .withLeaseDuration(lease_ms)
            .withHeartbeatPeriod(lease_ms // 3)
            .withCreateHeartbeatBackgroundThread(True)
            .build()
        )
        self._key = options[f"{DYNAMODB}partition_key"]
        self._item: Any = None

    def take(self, wait_ms: int) -> bool:
        asked = (
            self._client_classes.AcquireLockOptions.builder(self._key)
            .withAdditionalTimeToWaitForLock(wait_ms)
            .withTimeUnit(self._units.MILLISECONDS)
            .build()
        )
        found = self._client.tryAcquireLock(asked)
        self._item = found.get() if found.isPresent() else None
        return self._item is not None

    def give_back(self) -> None:
        self._client.releaseLock(self._item)
        self._item = None


class Locks:
    """The locks that Java holds at the moment."""

    def __init__(self, judge: SparkJudge) -> None:
        self._judge = judge
        self._held: list[JavaLock] = []

    def lock(self, options: Mapping[str, str], wait_ms: int = 0) -> list[Row]:
        """Take the lock and keep it until `unlock`."""
        lock = self._lock(options)
        is_taken = lock.take(wait_ms)
        if is_taken:
            self._held.append(lock)
        return [{"taken": is_taken}]

    def unlock(self) -> list[Row]:
        """Give back the lock that was taken last."""
        self._held.pop().give_back()
        return []

    def race(self, options: Mapping[str, str], witness: str, stop: str) -> list[Row]:
        """Take the lock time and again until there is a file `stop`.

        The witness is a file that is there while anybody is inside; who was, is written beside it.
        """
        lock, entered, clashes = self._lock(options), 0, 0
        while not os.path.exists(stop):
            if not lock.take(120_000):
                raise TimeoutError("the lock was not to be had")
            entered += 1
            try:
                os.close(os.open(witness, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                clashes += 1
            else:
                with open(f"{witness}.order", "a") as order:
                    order.write("J")
                time.sleep(INSIDE_S)
                os.unlink(witness)
            lock.give_back()
        return [{"entered": entered, "clashes": clashes}]

    def _lock(self, options: Mapping[str, str]) -> JavaLock:
        is_dynamodb = f"{DYNAMODB}table" in options
        return (AmazonLock if is_dynamodb else HudiLock)(self._judge, options)
