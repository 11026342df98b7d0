"""Print the paths of locked jars, fetched first if need be: fetch_jars.py --into FOLDER SET...

`requirements/jars.toml` names the jars of each set and their checksums. No POM is read, so a local
Maven or Ivy repository that is incomplete cannot stop a fetch. A jar in one of them is taken if its
checksum is right; all others are fetched by the Ivy that comes with PySpark. It asks where Spark
would ask: the repository of `DEFAULT_ARTIFACT_REPOSITORY`, or Maven's central one, after those of
`spark.jars.repositories`; or what the file of `spark.jars.ivySettings` says. Both settings are read
from the `spark-defaults.conf` of `SPARK_CONF_DIR`.

A jar appears in the folder by a rename, once its checksum was found right. A process that needs a
jar while another process fetches waits for it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

LOCKED = Path(__file__).parents[1] / "requirements" / "jars.toml"


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.group}_{self.artifact}-{self.version}.jar"

    def is_whole(self, path: Path) -> bool:
        try:
            with path.open("rb") as source:
                return hashlib.file_digest(source, "sha256").hexdigest() == self.sha256
        except FileNotFoundError:
            return False

    def local_copies(self) -> Iterator[Path]:
        """Where Maven and Spark keep what they fetched for this user."""
        home = Path.home()
        maven = home.joinpath(".m2/repository", *self.group.split("."), self.artifact, self.version)
        yield maven / f"{self.artifact}-{self.version}.jar"
        yield from (folder / self.file_name for folder in sorted(home.glob(".ivy2*/jars")))


def locked_jars(text: str, sets: Sequence[str]) -> list[Jar]:
    """The jars of the sets."""
    known = tomllib.loads(text)
    if unknown := sorted(set(sets) - set(known)):
        raise SystemExit(f"there is no set of jars {unknown[0]!r}. Use one of {', '.join(known)}")
    return [
        Jar(*coordinate.split(":"), sha256)
        for name in sets
        for coordinate, sha256 in known[name].items()
    ]


def fetched(jars: Sequence[Jar], folder: Path) -> list[Path]:
    """The jars' files in the folder, each with its checksum."""
    if missing_jars(jars, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with _only_process(folder), _scratch(folder) as scratch:
            for jar in missing_jars(jars, folder):  # another process may have fetched meanwhile
                _take_local_copy(jar, scratch, folder)
            if missing := missing_jars(jars, folder):
                _fetch(missing, scratch, folder)
    return [folder / jar.file_name for jar in jars]


def missing_jars(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in jars if not jar.is_whole(folder / jar.file_name)]


@contextmanager
def _only_process(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system takes from a process that ends."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """An empty folder beside the jars; what a killed process left there is removed."""
    scratch = folder / ".scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _take_local_copy(jar: Jar, scratch: Path, folder: Path) -> None:
    copy = scratch / jar.file_name
    for path in jar.local_copies():
        with suppress(OSError):  # there is none, or it cannot be read: then it is fetched
            shutil.copyfile(path, copy)
            if jar.is_whole(copy):
                copy.replace(folder / jar.file_name)
                return
    copy.unlink(missing_ok=True)


def _fetch(jars: Sequence[Jar], scratch: Path, folder: Path) -> None:
    done = subprocess.run(_ivy_command(jars, scratch), capture_output=True, text=True)
    for jar in jars:
        path = scratch / jar.file_name
        if jar.is_whole(path):
            path.replace(folder / jar.file_name)
        elif path.exists():
            raise SystemExit(
                f"the repository's {path.name} does not have the checksum {jar.sha256}. "
                f"Set DEFAULT_ARTIFACT_REPOSITORY to another Maven repository"
            )
    if missing := missing_jars(jars, folder):
        names = ", ".join(jar.file_name for jar in missing)
        raise SystemExit(
            f"{done.stdout}{done.stderr}\n{names} could not be fetched. Set "
            f"DEFAULT_ARTIFACT_REPOSITORY to a Maven repository that this machine reaches, or put "
            f"the jars into {folder}"
        )


# -- Ivy


def _ivy_command(jars: Sequence[Jar], scratch: Path) -> list[str]:
    spark = spark_defaults()
    settings = spark.get("spark.jars.ivySettings")
    if settings is None:
        settings = str(scratch / "ivysettings.xml")
        Path(settings).write_text(_ivy_settings(_repositories(spark)))
    wanted = scratch / "ivy.xml"
    wanted.write_text(_ivy_module(jars))
    home = os.environ.get("JAVA_HOME")
    return [
        *(f"{home}/bin/java" if home else "java", f"-Divy.default.ivy.user.dir={scratch}"),
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-settings", settings, "-ivy", str(wanted), "-cache", str(scratch / "cache")),
        *("-retrieve", f"{scratch}/[organisation]_[artifact]-[revision].[ext]"),
    ]


def spark_defaults() -> dict[str, str]:
    """The settings of `spark-defaults.conf` that say where Spark looks for jars."""
    folder = os.environ.get("SPARK_CONF_DIR")
    path = Path(folder, "spark-defaults.conf") if folder else None
    if path is None or not path.is_file():
        return {}
    line = r"(?m)^[ \t]*(spark\.jars\.(?:repositories|ivySettings))[ \t]*[=: \t][ \t]*(\S+)"
    return dict(re.findall(line, path.read_text()))


def _repositories(spark: dict[str, str]) -> list[str | None]:
    """The addresses to ask, in order. None is the one that Ivy knows."""
    named = [address for address in spark.get("spark.jars.repositories", "").split(",") if address]
    return [*named, os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or None]


def _ivy_settings(repositories: Sequence[str | None]) -> str:
    """Settings without a resolver that looks into the user's home."""
    resolvers = "".join(
        f'<ibiblio name="repository-{number}" m2compatible="true" usepoms="false"'
        f"{'' if address is None else f' root={quoteattr(address)}'}/>"
        for number, address in enumerate(repositories)
    )
    return (
        '<ivysettings><settings defaultResolver="all"/><resolvers>'
        f'<chain name="all" returnFirst="true">{resolvers}</chain></resolvers></ivysettings>'
    )


def _ivy_module(jars: Sequence[Jar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} "
        f'rev={quoteattr(jar.version)} transitive="false" conf="default->default"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="pyhudi" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit("PySpark, which brings Ivy, is not installed for this Python")
    return next(Path(spec.origin).parent.glob("jars/ivy-*.jar"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the paths of locked jars.")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--locked", type=Path, default=LOCKED, help="another file of checksums")
    parser.add_argument("sets", nargs="+", metavar="SET")
    chosen = parser.parse_args()
    jars = locked_jars(chosen.locked.read_text(), chosen.sets)
    for path in fetched(jars, chosen.into.resolve()):
        print(path)


if __name__ == "__main__":
    sys.exit(main())
