"""Builds the wheel with the standard library alone, so that `pip install` needs no download (PEP 517).

setuptools would have to be downloaded: pip builds in an empty environment. Metadata comes from pyproject.toml, the version
from smart_router/_version.py.
"""

import base64
import hashlib
import re
import tarfile
import zipfile
from pathlib import Path

_ROOT = Path(__file__).parent
# The same archive for the same sources.
_DATE = (2020, 1, 1, 0, 0, 0)


def _read(path):
    return (_ROOT / path).read_text(encoding="utf-8")


def _setting(name):
    """A string of pyproject.toml; Python 3.9 has no parser for TOML."""
    return re.search(rf'^{name} = "(.*)"$', _read("pyproject.toml"), re.MULTILINE).group(1)


def _name():
    version = re.search(r'"(.+)"', _read("smart_router/_version.py")).group(1)
    return f"{_setting('name').replace('-', '_')}-{version}"


def _metadata():
    name, version = _name().split("-")
    return (
        f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        f"Summary: {_setting('description')}\nLicense: Apache-2.0\n"
        f"Requires-Python: {_setting('requires-python')}\n"
        f"Description-Content-Type: text/markdown\n\n{_read('README.md')}"
    )


def _sources():
    return sorted(path for path in (_ROOT / "smart_router").iterdir() if path.suffix in (".py", ".typed"))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = f"{_name()}.dist-info"
    files = {f"smart_router/{path.name}": path.read_bytes() for path in _sources()}
    files[f"{info}/METADATA"] = _metadata().encode()
    wheel = "Wheel-Version: 1.0\nGenerator: smart-router\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/WHEEL"] = wheel.encode()
    records = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items()]
    files[f"{info}/RECORD"] = "".join([*records, f"{info}/RECORD,,\n"]).encode()
    filename = f"{_name()}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / filename, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return filename


def build_sdist(sdist_directory, config_settings=None):
    filename = f"{_name()}.tar.gz"
    paths = [_ROOT / name for name in ("pyproject.toml", "build_backend.py", "README.md")] + _sources()
    with tarfile.open(Path(sdist_directory) / filename, "w:gz") as archive:
        for path in paths:
            archive.add(path, f"{_name()}/{path.relative_to(_ROOT).as_posix()}")
    return filename


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
