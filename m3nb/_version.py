"""The version, in one place: the build and `m3nb.__version__` read it here."""

__version__ = "0.1.0"
