from __future__ import annotations

import io
import logging
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequestError, UnavailableError
from pyhudi.progress import (
    Listener,
    Progress,
    ProgressBoard,
    ProgressLine,
    progress_listener,
    progress_text,
)
from pyhudi.wording import readable
from pyhudi.world import World, real_world
from worlds import Clock, still_world

SOME = Progress(1_234_567, 45_100_000, 32, 10.25)
LAST = replace(SOME, last=True)


# -- numbers


def test_rates_are_totals_over_all_the_time() -> None:
    progress = Progress(rows=10, bytes=200, files=1, seconds=4)
    rates = progress.rows_per_second, progress.bytes_per_second, progress.files_per_second
    assert rates == (2.5, 50, 0.25)


def test_rate_in_no_time_is_zero() -> None:
    assert Progress(10, 10, 10, 0.0).rows_per_second == 0


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"),
        (0, "B", "0 B"),
        (0.04, "", "0"),
        (9.96, "", "10"),
        (99.96, "", "100"),
        (999, "B", "999 B"),
        (999.6, "", "1 k"),
        (1_000, "B", "1 kB"),
        (1_550, "", "1.6 k"),
        (999_999, "B", "1 MB"),
        (123_456_789, "B", "123 MB"),
        (5 * 10**15, "B", "5 PB"),
        (5 * 10**18, "B", "5000 PB"),
    ],
)
def test_numbers_are_short(value: float, unit: str, text: str) -> None:
    assert readable(value, unit) == text


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (62, "1,234,567 rows (120 k/s), 45.1 MB (4.4 MB/s), 32 files (3.1/s)"),
        (61, "1,234,567 rows, 45.1 MB, 32 files"),
        (32, "1,234,567 rows"),
        (9, "1,234,567"),
        (0, ""),
    ],
)
def test_line_leaves_out_what_does_not_fit(width: int, text: str) -> None:
    assert progress_text(SOME, width) == text


_COUNTS = st.integers(0, 10**18)


@settings(deadline=None, max_examples=100)
@given(
    st.builds(Progress, _COUNTS, _COUNTS, _COUNTS, st.floats(0, 1e9)),
    st.integers(0, 200),
)
def test_line_never_exceeds_the_width(progress: Progress, width: int) -> None:
    text = progress_text(progress, width)
    assert len(text) <= width
    assert text.isprintable()
    assert text.isascii()


# -- the line


class Screen(io.StringIO):
    """What a person sees: the text that carriage returns leave."""

    def isatty(self) -> bool:
        return True

    @property
    def line(self) -> str:
        shown = ""
        for part in self.getvalue().split("\r"):
            shown = part + shown[len(part) :]
        return shown.rstrip()


def test_line_is_rewritten_in_place_and_cleared_at_the_end() -> None:
    screen = Screen()
    line = ProgressLine(screen)
    line(SOME)
    assert screen.line == progress_text(SOME, 79)
    line(Progress(1, 1, 1, 1))
    assert screen.line == "1 row (1/s), 1 B (1 B/s), 1 file (1/s)"
    line(LAST)
    assert screen.line == ""
    assert screen.getvalue().endswith("\r")
    assert "\n" not in screen.getvalue()


def test_write_too_short_for_a_line_leaves_the_screen_alone() -> None:
    screen = Screen()
    ProgressLine(screen)(LAST)
    assert screen.getvalue() == ""


def test_line_fits_the_terminal_it_is_written_to() -> None:
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    controller, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with open(controller, "rb", buffering=0) as seen, open(terminal, "w") as stream:
        assert progress_listener(None, stream) is not None
        ProgressLine(stream)(SOME)
        assert seen.read(1_000) == b"\r1,234,567 rows, 45.1 MB, 32 files"


class Broken(Screen):
    """A stream that is gone."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise self.error


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(5, "hung up"), ValueError("I/O operation on closed file")]
)
def test_stream_that_is_gone_is_left_alone(error: Exception) -> None:
    stream = Broken(error)
    line = ProgressLine(stream)
    line(SOME)
    line(SOME)
    line(LAST)
    assert stream.writes == 1


# -- who listens


@pytest.mark.parametrize(
    ("asked", "stream", "shown"),
    [
        (None, Screen(), True),
        (None, io.StringIO(), False),
        (None, None, False),
        (True, Screen(), True),
        (True, io.StringIO(), True),
        (True, None, False),
        (False, Screen(), False),
    ],
)
def test_line_is_shown_where_it_was_asked_for(
    asked: bool | None, stream: io.StringIO | None, shown: bool
) -> None:
    assert isinstance(progress_listener(asked, stream), ProgressLine) == shown


def test_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()  # asking it now raises
    assert progress_listener(None, stream) is None


def test_function_listens_whatever_the_stream() -> None:
    reports: list[Progress] = []
    assert progress_listener(reports.append, None) == reports.append


@pytest.mark.parametrize("asked", ["yes", 1, [print]])
def test_what_is_no_listener_is_refused(asked: object) -> None:
    with pytest.raises(InvalidRequestError, match="progress="):
        progress_listener(asked, None)  # type: ignore[arg-type]


# -- the board


class Background:
    """A world in which the background call comes when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock(0)
        self.intervals: list[int] = []
        self.stops = 0
        self.tick: Callable[[], None] = lambda: None

    @property
    def world(self) -> World:
        return replace(still_world(self.clock), every=self._every)

    def _every(self, interval_ms: int, call: Callable[[], None]) -> Callable[[], None]:
        self.intervals.append(interval_ms)
        self.tick = call
        return self._stop

    def _stop(self) -> None:
        self.stops += 1


def test_board_reports_while_the_write_runs_and_once_at_the_end() -> None:
    behind, reports = Background(), list[Progress]()
    with ProgressBoard(reports.append, behind.world, interval_ms=250) as board:
        assert board.is_watched
        board.add(rows=5)
        board.add(rows=5, bytes=70, files=1)
        behind.clock.ms += 2_000
        behind.tick()
        board.add(rows=1)
        behind.clock.ms += 500
    assert reports == [Progress(10, 70, 1, 2.0), Progress(11, 70, 1, 2.5, last=True)]
    assert (behind.intervals, behind.stops) == ([250], 1)


def test_board_without_listener_starts_nothing() -> None:
    behind = Background()
    with ProgressBoard(None, behind.world) as board:
        board.add(rows=1)
        assert not board.is_watched
    assert behind.intervals == []


def test_write_that_fails_gives_its_last_report_and_its_own_error() -> None:
    behind, reports = Background(), list[Progress]()

    def write() -> None:
        with ProgressBoard(reports.append, behind.world) as board:
            board.add(rows=3)
            raise UnavailableError("the write failed", why="a test", next_step="None")

    with pytest.raises(UnavailableError, match="the write failed"):
        write()
    assert [(report.rows, report.last) for report in reports] == [(3, True)]
    assert behind.stops == 1


def raising(reports: list[Progress]) -> Listener:
    def listen(progress: Progress) -> None:
        reports.append(progress)
        raise RuntimeError("a broken dashboard")

    return listen


def test_listener_that_raises_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    behind, reports = Background(), list[Progress]()
    with caplog.at_level(logging.WARNING), ProgressBoard(raising(reports), behind.world):
        behind.tick()
        behind.tick()
    assert [report.last for report in reports] == [False, False, True]
    assert len(caplog.records) == 1
    assert "a broken dashboard" in caplog.text


def test_user_who_interrupts_a_listener_interrupts_the_write() -> None:
    def interrupted(_: Progress) -> None:
        raise KeyboardInterrupt

    def write() -> None:
        with ProgressBoard(interrupted, Background().world):
            pass

    with pytest.raises(KeyboardInterrupt):
        write()


def totals(rows: int) -> Progress:
    return Progress(rows, rows * 10, 1, 0)


def test_board_follows_totals_until_it_is_given_the_true_ones() -> None:
    behind, reports = Background(), list[Progress]()
    with ProgressBoard(reports.append, behind.world) as board:
        board.add(rows=1_000)  # of a first try, which met a conflict
        found = iter([totals(3), totals(7)])
        board.follow(lambda: next(found))
        behind.tick()
        behind.tick()
        board.set_totals(totals(8))
        behind.tick()
    assert [(r.rows, r.bytes, r.files) for r in reports] == [
        *((3, 30, 1), (7, 70, 1)),
        *((8, 80, 1), (8, 80, 1)),
    ]


def test_totals_read_before_the_true_ones_came_do_not_replace_them() -> None:
    behind, reports = Background(), list[Progress]()
    with ProgressBoard(reports.append, behind.world) as board:

        def late() -> Progress:
            board.set_totals(totals(8))
            return totals(7)

        board.follow(late)
        behind.tick()
    assert [report.rows for report in reports] == [8, 8]


def test_source_that_does_not_answer_leaves_the_numbers_as_they_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    behind, reports = Background(), list[Progress]()
    answers = [totals(3), None, totals(5)]

    def load() -> Progress:
        answer = answers.pop(0)
        if answer is None:
            raise UnavailableError("storage did not answer", why="a test", next_step="None")
        return answer

    with ProgressBoard(reports.append, behind.world) as board:
        board.follow(load)
        for _ in range(3):
            behind.tick()
    assert [report.rows for report in reports] == [3, 3, 5, 5]
    assert not caplog.records


def test_many_threads_may_add() -> None:
    reports: list[Progress] = []
    with ProgressBoard(reports.append, real_world(), interval_ms=1) as board:

        def add() -> None:
            for _ in range(2_000):
                board.add(rows=1, bytes=2, files=3)

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    last = reports[-1]
    assert (last.rows, last.bytes, last.files, last.last) == (8_000, 16_000, 24_000, True)
    assert all(r.bytes == 2 * r.rows and r.files == 3 * r.rows for r in reports)
    assert [r.last for r in reports].count(True) == 1
