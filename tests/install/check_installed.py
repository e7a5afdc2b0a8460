"""Checks an installed firstfault from inside its virtual environment.

usage: python check_installed.py REPOSITORY WHEEL
"""

import statistics
import subprocess
import sys
import zipfile

IMPORT_LIMIT = 0.1  # seconds
TIMED_IMPORT = """
import sys, time
start = time.perf_counter()
import firstfault
seconds = time.perf_counter() - start
assert "torch" not in sys.modules, "import firstfault imports torch"
print(seconds)
"""
LOADED_FILES = """
import firstfault, torch
from firstfault import _core, _live
print(open("/proc/self/maps").read())
"""
# Beside firstfault's own: what is compiled into the modules or shipped beside them.
LICENCES = {"nanobind", "robin-map", "fmt", "nlohmann-json", "CLI11", "highway", "Apache-2.0"}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def check_import_time() -> None:
    seconds = statistics.median(float(run(TIMED_IMPORT)) for _ in range(7))
    print(f"-- import firstfault: {seconds * 1000:.0f} ms, without torch")
    assert seconds < IMPORT_LIMIT, f"import firstfault takes {seconds:.3f} s"


def check_libraries(repository: str) -> None:
    files = {line.split()[-1] for line in run(LOADED_FILES).splitlines() if "/" in line}
    ours = [file for file in files if "firstfault" in file.rsplit("/", 1)[-1] or "libhwy" in file]
    assert len(ours) == 3, f"expected both libraries and Highway, got {ours}"
    strays = [
        file for file in files if file.startswith(repository) or ("libhwy" in file and "site-packages" not in file)
    ]
    assert not strays, f"loaded from outside of the virtual environment: {strays}"


def check_wheel(wheel: str) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    bundled = {name.rsplit("/", 1)[-1].removesuffix(".txt") for name in names if "firstfault/licenses/" in name}
    assert bundled == LICENCES, f"licences in the wheel: {sorted(bundled)}"
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names), "the wheel lacks its own licence"
    assert "firstfault/py.typed" in names
    strays = [name for name in names if name.startswith(("include/", "lib/", "tests/", "bin/"))]
    assert not strays, f"not part of the Python package: {strays}"


def main() -> None:
    repository, wheel = sys.argv[1:]
    check_wheel(wheel)
    check_import_time()
    check_libraries(repository)


if __name__ == "__main__":
    main()
