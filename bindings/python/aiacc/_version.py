"""The version of the package, which is that of the library (configure.ac)."""
__version__ = "0.1.0"
