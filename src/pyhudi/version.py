"""The release, which executors compare with the driver's."""

__version__ = "0.1.0.dev0"
