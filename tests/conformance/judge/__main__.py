"""Ask Apache Hudi and hudi-rs about a table.

    cd tests && python -m conformance.judge serve
    cd tests && python -m conformance.judge '{"cmd": "read", "path": "TABLE"}' ...

`serve` reads one JSON command a line and answers each with one line, `{"ok": true, "rows": [...]}`
or `{"ok": false, "error": "..."}`, so that many questions share one JVM; an `id` is given back.
Of `{"cmd": "several", "commands": [...]}` hudi-rs answers its own while Hudi does, and the rows are
the answers.
Nothing here knows pyhudi: an answer is evidence only because it comes from somebody else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

from conformance.judge import hudi_rs
from conformance.judge.encoding import Row
from conformance.judge.locks import Locks
from conformance.judge.spark import SparkJudge


def hello(judge: SparkJudge) -> list[Row]:
    """Start everything, so that whatever cannot start is found out now."""
    return [{"spark": judge.spark.version, "hudi": judge.hudi_version, "hudi_rs": hudi_rs.VERSION}]


def commands(judge: SparkJudge, locks: Locks) -> dict[str, Callable[..., list[Row]]]:
    """What may be asked. Every other field of a command is an argument of the function."""
    return {
        "hello": lambda: hello(judge),
        "read": judge.read,
        "stream": judge.stream,
        "rs-read": hudi_rs.read,
        "write": judge.write,
        "sql": judge.sql,
        "call": judge.call,
        "timeline": judge.timeline,
        "slices": judge.slices,
        "use-s3-server": judge.use_s3_server,
        "schema": lambda path: [{"schema": judge.schema(path)}],
        "several": lambda commands: several(judge, locks, commands),
        "lock": locks.lock,
        "unlock": locks.unlock,
        "lock-race": locks.race,
    }


def several(judge: SparkJudge, locks: Locks, questions: list[dict[str, Any]]) -> list[Row]:
    """Each judge answers its own questions one after the other: Hudi's reads are not made for more
    than one thread of a session."""
    is_for_rs = [question["cmd"] == "rs-read" for question in questions]

    def answers(*, of_rs: bool) -> list[Row]:
        chosen = (q for q, is_rs in zip(questions, is_for_rs, strict=True) if is_rs == of_rs)
        return [answer(judge, locks, question) for question in chosen]

    with ThreadPoolExecutor(1) as thread:
        by_rs = thread.submit(answers, of_rs=True)
        by_hudi = iter(answers(of_rs=False))
        from_rs = iter(by_rs.result())
    return [next(from_rs if is_rs else by_hudi) for is_rs in is_for_rs]


def answer(judge: SparkJudge, locks: Locks, command: dict[str, Any]) -> Row:
    reply: Row = {}
    try:
        if "id" in command:
            reply["id"] = command.pop("id")
        name, known = command.pop("cmd"), commands(judge, locks)
        if name not in known:
            raise ValueError(f"no command {name!r}; there are {', '.join(known)}")
        return {**reply, "ok": True, "rows": known[name](**command)}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # hudi-rs may panic, and a panic is no Exception
        return {**reply, "ok": False, "error": reason(error)}


def reason(error: BaseException) -> str:
    """An error in a few lines; for a Java error, the innermost of the chain of its causes."""
    messages = [f"{type(error).__name__}: {_beginning(str(error))}"]
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None and hasattr(cause, "getCause"):
        text = _beginning(cause.toString() or "")
        if text not in messages:
            messages.append(text)
        cause = cause.getCause()
    return "\n  because ".join(messages[-4:])


def _beginning(text: str) -> str:
    """A message without the stack trace that Spark appends to some."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return " | ".join(line for line in lines if line and not line.startswith("at "))[:400]


def own_stdout() -> TextIO:
    """Keep stdout for answers: whatever the JVM prints goes to stderr."""
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return sink


def main(arguments: list[str]) -> int:
    sink = own_stdout()
    judge = SparkJudge()
    locks = Locks(judge)
    failed = False
    try:
        for line in sys.stdin if arguments == ["serve"] else arguments:
            if line.strip():
                reply = answer(judge, locks, json.loads(line))
                failed = failed or not reply["ok"]
                print(json.dumps(reply, sort_keys=True), file=sink, flush=True)
    finally:
        judge.stop()
    return 0 if arguments == ["serve"] else int(failed)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
