"""Hudi on an S3 server of a test: Hadoop's S3A for the files, and a client for Hudi's storage lock.

The lock's protocol is Hudi's own, in its bundle. What it needs of S3, two kinds of requests, Hudi
has in a package of its own that drags in the whole of Amazon's SDK; `S3StorageLockClient.java`
takes its place, and is compiled here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

#: As old as the Hadoop that PySpark 3.5 brings along.
HADOOP_JARS = "s3"  # a set of requirements/jars.toml
LOCK_CLIENT = Path(__file__).with_name("S3StorageLockClient.java")


def use_server(spark: Any, scratch: str, endpoint: str, key: str, secret: str) -> None:
    """From now on, tables at s3:// are on this server."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    files = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    settings = {
        "fs.s3.impl": files,
        "fs.s3a.impl": files,
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.access.key": key,
        "fs.s3a.secret.key": secret,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.attempts.maximum": "3",
        "fs.s3a.connection.maximum": "1000",  # a Hudi reader of many logs leaves some open
    }
    for name, value in settings.items():
        hadoop.set(name, value)
    jvm = spark._jvm
    jvm.java.lang.System.setProperty("judge.s3.endpoint", endpoint)
    classes = jvm.java.io.File(str(_compiled(spark, Path(scratch) / "classes")))
    jvm.Thread.currentThread().getContextClassLoader().addURL(classes.toURI().toURL())


def _compiled(spark: Any, folder: Path) -> Path:
    """The folder with the class of the lock's client."""
    configured = spark.sparkContext.getConf()
    jars = configured.get("spark.jars", "").split(",")
    jars += configured.get("spark.driver.extraClassPath", "").split(":")
    paths = ":".join(jar.removeprefix("file://") for jar in jars if jar)
    compiler = Path(os.environ["JAVA_HOME"]) / "bin" / "javac"
    if not compiler.exists():
        raise FileNotFoundError("this Java has no compiler")
    command = [str(compiler), "-nowarn", "-classpath", paths, "-d", str(folder), str(LOCK_CLIENT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder
