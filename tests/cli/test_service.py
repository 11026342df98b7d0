"""The table services as a process of their own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pyhudi
from opened_tables import opening_on, session_on
from pyhudi.api.services import Services
from pyhudi.cli.service import _Stop, main
from pyhudi.commit.proposals import Begin, Decided
from pyhudi.format.timeline.instant import Action
from pyhudi.services.migration import run as migration
from pyhudi.storage.locks.file_lock import FileLock
from pyhudi.storage.open import open_storage
from pyhudi.world import real_world

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> pyhudi.Table:
    """A table that records no policy."""
    buckets = pyhudi.SimpleBuckets(1)
    return pyhudi.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="at", buckets=buckets, upkeep=False
    )


def upsert(table: pyhudi.Table, *times: int) -> None:
    for at in times:
        table.upsert(pa.table({"id": ["a", f"k{at}"], "at": [at, at]}, schema=SCHEMA))


def compactions(table: pyhudi.Table) -> int:
    actions: list[str] = table.inspect.timeline().column("action").to_pylist()
    return actions.count("commit")


def test_one_round_does_what_is_due(
    table: pyhudi.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    upsert(table, 1, 2)
    assert main([table.uri, "--once", "--compact-after", "2"]) == 0
    assert "compaction" in capsys.readouterr().out
    assert compactions(table) == 1
    assert main([table.uri, "--once", "--compact-after", "2"]) == 0
    assert capsys.readouterr().out == ""


def test_a_migration_whose_process_died_goes_on_unless_resizes_are_left_to_others(
    table: pyhudi.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    upsert(table, 1, 2)
    opening = opening_on(open_storage(table.uri), real_world())
    session = opening.session()
    target = migration._target(session.config, pyhudi.ConsistentBuckets(initial=2))
    migration._announce(opening, session, target)
    assert main([table.uri, "--once", "--no-resize"]) == 0
    assert capsys.readouterr().out == ""
    assert main([table.uri, "--once", "--no-compaction"]) == 0
    assert "the migration is done: 1 partition migrated" in capsys.readouterr().out
    assert table.inspect.buckets().num_rows == 2


def test_a_dry_run_only_tells(table: pyhudi.Table, capsys: pytest.CaptureFixture[str]) -> None:
    upsert(table, 1, 2)
    assert main([table.uri, "--dry-run", "--compact-after", "2"]) == 0
    assert "1 file group to compact" in capsys.readouterr().out
    assert compactions(table) == 0


def test_services_that_are_left_to_others_are_left(table: pyhudi.Table) -> None:
    upsert(table, 1, 2)
    assert main([table.uri, "--once", "--compact-after", "2", "--no-compaction"]) == 0
    assert compactions(table) == 0


def test_a_file_that_archiving_stops_at_is_told_of(
    table: pyhudi.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    upsert(table, *range(1, 13))
    timeline = Path(table.uri.removeprefix("file://")) / ".hoodie" / "timeline"
    writes = sorted(path.name[:17] for path in timeline.glob("*_*.deltacommit"))
    for path in timeline.glob(f"{writes[2]}*"):
        path.unlink()  # by hand, as nobody should
    time.sleep(1.2)
    asked = [table.uri, "--once", "--no-compaction", "--no-clean", "--archive-keep", "1", "2"]
    assert main([*asked, "--archive-grace", "1ms"]) == 0
    told = capsys.readouterr().err
    assert writes[2] in told
    assert "whose instant is on no timeline" in told
    assert "services.repair()" in told


def test_a_resize_whose_plan_cannot_be_read_is_told_of_with_what_cancels_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    buckets = pyhudi.ConsistentBuckets(1)
    table = pyhudi.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=buckets)
    upsert(table, 1)
    session = session_on(open_storage(table.uri), real_world())
    begun = session.log.append(Begin(Action.CLUSTERING, b"rubbish"))
    assert isinstance(begun, Decided)
    requested = str(begun.entry.instant)
    assert main([table.uri, "--once"]) == 1
    told = capsys.readouterr().err
    assert f"'.hoodie/timeline/{requested}.clustering.requested'" in told
    assert f"table.services.cancel_resize({requested!r})" in told
    table.services.cancel_resize(requested)
    assert main([table.uri, "--once"]) == 0


def test_a_fault_of_ours_is_told_in_full_and_the_next_round_tries_again(
    table: pyhudi.Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert(table, 1, 2)
    rounds: list[Any] = [ZeroDivisionError("unforeseen"), pyhudi.UpkeepResult()]

    def run(*_: Any, **__: Any) -> pyhudi.UpkeepResult:
        answer = rounds.pop(0)
        if isinstance(answer, Exception):
            raise answer
        signal.raise_signal(signal.SIGTERM)
        return pyhudi.UpkeepResult()

    monkeypatch.setattr(Services, "run", run)
    assert main([table.uri, "--every", "1ms"]) == 0
    assert rounds == []
    assert "ZeroDivisionError: unforeseen" in capsys.readouterr().err


def test_what_is_no_table_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing"), "--once"]) == 1
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--every", "soon"],
        ["--keep-commits", "1", "--keep-hours", "1"],
        ["--compact-order", "size"],
        ["--compact-trigger", "always"],
        ["--compact-after-time", "1500ms"],
        ["--compact-min-log-bytes", "64mb"],
        ["--compact-io-bytes-max", "-1"],
        ["--resize-target", "100"],
        ["--resize-split-above", "0.5"],
        ["--resize-split", "anywhere"],
        ["--archive-grace", "10"],
        ["--every", "0s"],
        ["--keep-commits", "0"],
        ["--archive-keep", "30", "20"],
        ["--heartbeat-interval", "10ms"],
        ["--on"],
        [],
    ],
)
def test_a_command_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["table", *arguments] if arguments else arguments)
    assert refused.value.code == 2


def test_a_process_beside_a_writer_compacts_and_ends_when_told_to(table: pyhudi.Table) -> None:
    command = [sys.executable, "-m", "pyhudi.service", table.uri, "--every", "50ms"]
    service = subprocess.Popen([*command, "--compact-after", "3"])
    try:
        deadline = time.monotonic() + 300
        at = 0
        while compactions(table) < 2:
            assert time.monotonic() < deadline, "it does not compact"
            at += 1
            upsert(table, at)
        service.send_signal(signal.SIGTERM)
        assert service.wait(120) == 0
    finally:
        service.kill()
        service.wait()
    found = table.read(columns=["id"]).to_arrow().column("id").to_pylist()
    assert sorted(found) == sorted(["a", *(f"k{n}" for n in range(1, at + 1))])


def policy(**given: Any) -> pyhudi.CompactionPolicy:
    """Of words, as a program may give them too."""
    return pyhudi.CompactionPolicy(**given)


@pytest.fixture
def upkeeps(monkeypatch: pytest.MonkeyPatch) -> list[pyhudi.Upkeep | None]:
    """What each round was asked to do; None for what the table records."""
    seen: list[pyhudi.Upkeep | None] = []

    def run(_: Services, upkeep: pyhudi.Upkeep | None, **__: Any) -> pyhudi.UpkeepResult:
        seen.append(upkeep)
        return pyhudi.UpkeepResult()

    monkeypatch.setattr(Services, "run", run)
    return seen


CLEAN, ARCHIVE, COMPACT = pyhudi.CleanPolicy, pyhudi.ArchivePolicy, policy
RESIZE = pyhudi.ResizePolicy
OPTIONS: dict[str, pyhudi.Upkeep | None] = {
    "": None,
    "--compact-after 9": pyhudi.Upkeep(compaction=COMPACT(trigger_delta_commits=9)),
    "--compact-trigger num_or_time": pyhudi.Upkeep(compaction=COMPACT(trigger="num_or_time")),
    "--compact-after-time 90m": pyhudi.Upkeep(compaction=COMPACT(trigger_seconds=5_400)),
    "--compact-order age": pyhudi.Upkeep(compaction=COMPACT(order="age")),
    "--compact-min-delta-commits 3": pyhudi.Upkeep(compaction=COMPACT(min_delta_commits=3)),
    "--compact-min-log-bytes 64MB": pyhudi.Upkeep(compaction=COMPACT(min_log_bytes=64 << 20)),
    "--compact-io-bytes-max 4096": pyhudi.Upkeep(compaction=COMPACT(io_bytes_max=4_096)),
    "--resize-target 64MB": pyhudi.Upkeep(resize=RESIZE(target_bytes=64 << 20)),
    "--resize-split-above 1.5": pyhudi.Upkeep(resize=RESIZE(split_above=1.5)),
    "--resize-merge-below 0.1": pyhudi.Upkeep(resize=RESIZE(merge_below=0.1)),
    "--resize-split even": pyhudi.Upkeep(resize=RESIZE(split="even")),
    "--resize-bytes-max 1GB": pyhudi.Upkeep(resize=RESIZE(bytes_max=1 << 30)),
    "--resize-rest 5m": pyhudi.Upkeep(resize=RESIZE(rest_seconds=300)),
    "--archive-grace 1m": pyhudi.Upkeep(archive=ARCHIVE(grace_ms=60_000)),
    "--archive-aborted-grace 2h": pyhudi.Upkeep(archive=ARCHIVE(aborted_grace_ms=7_200_000)),
    "--keep-commits 7": pyhudi.Upkeep(clean=CLEAN.commits(7)),
    "--keep-versions 2": pyhudi.Upkeep(clean=CLEAN.versions(2)),
    "--keep-hours 168": pyhudi.Upkeep(clean=CLEAN.hours(168)),
    "--archive-keep 40 50": pyhudi.Upkeep(archive=ARCHIVE(keep_min=40, keep_max=50)),
    "--no-compaction": pyhudi.Upkeep(compaction=None),
    "--no-resize": pyhudi.Upkeep(resize=None),
    "--no-clean": pyhudi.Upkeep(clean=None),
    "--no-archive": pyhudi.Upkeep(archive=None),
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options or "none")
def test_every_option_reaches_its_policy(
    table: pyhudi.Table, upkeeps: list[pyhudi.Upkeep | None], options: str
) -> None:
    assert main([table.uri, "--once", *options.split()]) == 0
    assert upkeeps == [OPTIONS[options]]


def test_options_change_the_policy_that_the_table_records(
    table: pyhudi.Table, upkeeps: list[pyhudi.Upkeep | None]
) -> None:
    recorded = pyhudi.Upkeep(compaction=COMPACT(order="age"), clean=CLEAN.hours(3), archive=None)
    table.alter.upkeep(recorded)
    assert main([table.uri, "--once", "--compact-after", "9", "--archive-grace", "1m"]) == 0
    compaction = COMPACT(order="age", trigger_delta_commits=9)
    archive = ARCHIVE(grace_ms=60_000)
    assert upkeeps == [pyhudi.Upkeep(compaction=compaction, clean=recorded.clean, archive=archive)]


def test_a_process_with_another_policy_than_the_table_is_warned(
    table: pyhudi.Table,
) -> None:
    table.alter.upkeep()
    upsert(table, 1, 2)
    with pytest.warns(pyhudi.UpkeepWarning, match="another policy of compaction"):
        assert main([table.uri, "--once", "--compact-after", "2"]) == 0
    assert main([table.uri, "--once"]) == 0


def test_a_policy_that_makes_no_sense_is_told(
    table: pyhudi.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:  # no supervisor should start it again
        main([table.uri, "--once", "--compact-min-delta-commits", "0"])
    assert refused.value.code == 2
    assert "min_delta_commits=0 cannot be used" in capsys.readouterr().err


def test_the_help_tells_every_option_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert [option for option in OPTIONS if option.partition(" ")[0] not in told] == []
    for default in (
        "30s",
        "num_commits",
        "1h",
        "log_size",
        "512000MB",
        "10m",
        "24h",
        "20 30",
        "60s",
    ):
        assert f"({default})" in told
    for told_of in documented_options():
        assert told_of.partition(" ")[0] in told


def documented_options() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "services.md").read_text()
    _, _, section = page.partition("## The process\n")
    return re.findall("`(--[^`]+)`", section.partition("\n## ")[0])


def test_documented_defaults_are_those_of_the_process(
    table: pyhudi.Table, upkeeps: list[pyhudi.Upkeep | None]
) -> None:
    """Who gives every option as it is documented asks for what he gets without."""
    defaults = [option for option in documented_options() if re.search(" [^K]", option)]
    assert len(defaults) == 21
    with patch("pyhudi.cli.service.open_table", return_value=table) as opening:
        assert main([table.uri, "--once"]) == 0
        assert main([table.uri, "--once", *" ".join(defaults).split()]) == 0
    assert upkeeps == [None, pyhudi.Upkeep()], "None is the usual policy where none is recorded"
    assert opening.call_args_list[0] == opening.call_args_list[1]


def test_what_the_table_does_not_tell_reaches_its_opening(
    table: pyhudi.Table, upkeeps: list[pyhudi.Upkeep | None]
) -> None:
    options = "--job nightly --storage-option a=b --storage-option c=d=e --buckets 4"
    options += " --heartbeat-interval 5m --heartbeat-misses 3"
    options += " --lock zookeeper --lock-option url=zk:2181 --lock-option base_path=/hudi"
    with patch("pyhudi.cli.service.open_table", return_value=table) as opening:
        assert main([table.uri, "--once", *options.split()]) == 0
    [call] = opening.call_args_list
    assert call.args == (table.uri,)
    assert call.kwargs == {
        "storage_options": {"a": "b", "c": "d=e"},
        "write_settings": pyhudi.WriteSettings(
            job="nightly", heartbeat_interval_ms=300_000, heartbeat_misses=3
        ),
        "buckets": pyhudi.SimpleBuckets(4),
        "lock": "zookeeper",
        "lock_options": {"url": "zk:2181", "base_path": "/hudi"},
        "upkeep": False,
        "progress": False,
    }
    assert len(upkeeps) == 1


def test_without_them_the_table_tells(
    table: pyhudi.Table, upkeeps: list[pyhudi.Upkeep | None]
) -> None:
    with patch("pyhudi.cli.service.open_table", return_value=table) as opening:
        assert main([table.uri, "--once"]) == 0
    told = {name: opening.call_args.kwargs[name] for name in ("buckets", "lock", "lock_options")}
    assert told == {"buckets": None, "lock": None, "lock_options": None}
    assert len(upkeeps) == 1


def test_the_lock_of_other_engines_is_taken(table: pyhudi.Table) -> None:
    """The table's own properties say nothing of one, as those that Hudi wrote do."""
    properties = Path(table.uri.removeprefix("file://")) / ".hoodie" / "hoodie.properties"
    kept = [line for line in properties.read_text().splitlines() if "lock" not in line]
    properties.write_text("\n".join(kept) + "\n")
    upsert(pyhudi.open_table(table.uri), 1, 2)
    held: list[bool] = []

    def noted(self: FileLock, *arguments: Any) -> Any:
        held.append(True)
        return acquire(self, *arguments)

    acquire = FileLock.acquire
    with patch.object(FileLock, "acquire", noted):
        assert main([table.uri, "--once", "--compact-after", "2"]) == 0
        assert not held  # nobody told it
        upsert(pyhudi.open_table(table.uri), 3, 4)
        assert main([table.uri, "--once", "--compact-after", "2", "--lock", "file"]) == 0
        assert held
        upsert(pyhudi.open_table(table.uri), 5, 6)
        held.clear()
        assert main([table.uri, "--once", "--compact-after", "2"]) == 0
        assert held  # now the table tells


def test_the_handlers_of_signals_are_put_back(
    table: pyhudi.Table, upkeeps: list[pyhudi.Upkeep | None]
) -> None:
    def mine(*_: object) -> None:
        """Whoever calls main has handlers of his own."""

    before = {number: signal.signal(number, mine) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert main([table.uri, "--once"]) == 0
        assert main([f"{table.uri}/nothing", "--once"]) == 1
        assert {signal.getsignal(number) for number in before} == {mine}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert len(upkeeps) == 1


def test_a_second_signal_ends_the_process_at_once() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    stop = _Stop()
    try:
        signal.signal(signal.SIGTERM, stop)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_asked
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
