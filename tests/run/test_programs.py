"""Compiled programs under `firstfault run`: with no LibTorch, with another one, with the right one (a stand-in for it:
tests/run/test_watched.py has the real one)."""

import os
import re
import shutil
import signal
import stat
import subprocess

import pytest

from .conftest import BUILD, ended

# What the preloaded library looks for in a process, and calls.
FAKE_TORCH = """
#include <cstdint>
namespace at {
struct RecordFunctionCallback { void* a; };
std::uint64_t addGlobalCallback(RecordFunctionCallback) { return 1; }
}
extern "C" std::uint64_t aoti_torch_abi_version() { return (2ULL << 56) | (MINOR << 48); }
"""
FAKE_LIVE = """
#include <cstdio>
extern "C" int firstfault_watch_process(const char* file) {
  std::FILE* out = std::fopen(file, "w");
  std::fprintf(out, "watched"), std::fclose(out);
  return 0;
}
"""
TRAINER = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
extern char** environ;
#ifdef WITH_TORCH
extern "C" unsigned long aoti_torch_abi_version();
unsigned long (*const keep)() = aoti_torch_abi_version;
#endif
int main(int count, char** words) {
#ifdef WITH_TORCH
  if (keep() == 0) return 99;
#endif
  for (int i = 1; i < count; ++i) std::printf("[%s]", words[i]);
  for (char** one = environ; *one; ++one)
    if (std::strstr(*one, "FIRSTFAULT_RUN") || std::strncmp(*one, "LD_PRELOAD", 10) == 0) std::printf(" %s", *one);
  std::puts("");
  std::fflush(stdout);
  if (count > 1 && std::strcmp(words[1], "abort") == 0) std::abort();
  return count > 1 ? std::atoi(words[1]) : 0;
}
"""


def compiled(folder, name, source, *flags):
    file = folder / f"{name}.cpp"
    file.write_text(source)
    subprocess.run(["g++", "-std=c++17", "-O2", str(file), "-o", str(folder / name), *map(str, flags)], check=True)
    return folder / name


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Programs, and a folder `lib` with our libraries and stand-ins for the live half and for LibTorch."""
    folder = tmp_path_factory.mktemp("programs")
    lib = folder / "lib"
    lib.mkdir()
    for name in ("libfirstfault_core.so", "libfirstfault_preload.so"):
        shutil.copy(BUILD / name, lib / name)
    shared = ("-shared", "-fPIC")
    compiled(lib, "libfirstfault_live.so", FAKE_LIVE, *shared)
    for minor in (12, 13):
        torch = compiled(lib, f"libtorch{minor}.so", FAKE_TORCH, *shared, f"-DMINOR={minor}ULL")
        compiled(folder, f"trainer{minor}", TRAINER, "-DWITH_TORCH", torch, f"-Wl,-rpath,{lib}")
    compiled(folder, "plain", TRAINER)
    compiled(folder, "static", TRAINER, "-static")
    with_torch_inside = FAKE_TORCH.replace("MINOR", "13ULL") + TRAINER
    compiled(folder, "torch_inside", with_torch_inside)
    return folder


@pytest.fixture
def call(built, tmp_path):
    """call(options, program, arguments...): by the native program, in a folder of its own."""

    def run(*command, env=None):
        return ended(
            subprocess.run(
                [str(BUILD / "bin/firstfault"), "run", *map(str, command)],
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
                env={**os.environ, "LD_LIBRARY_PATH": str(built / "lib"), **(env or {})},
            )
        )

    return run


def run_files(folder):
    return sorted(path.name for path in (folder / "runs").glob("*"))


def test_a_program_with_libtorch_is_watched_and_sees_nothing_of_it(built, call, tmp_path):
    result = call(built / "trainer13", "7", "--out", "a b")
    assert (result.code, result.stdout, result.stderr) == (7, "[7][--out][a b]\n", "")
    [name] = run_files(tmp_path)
    assert re.fullmatch(r"trainer13-\d{8}-\d{6}-\d+\.ffrun", name)
    assert (tmp_path / "runs" / name).read_text() == "watched"
    assert len(result.ours) == 1 and name in result.ours[0]


def test_the_run_file_can_be_named_and_the_words_be_left_out(built, call, tmp_path):
    result = call("--quiet", "--out", "here.ffrun", built / "trainer13")
    assert (result.code, result.stderr, result.ours) == (0, "", [])
    assert (tmp_path / "here.ffrun").read_text() == "watched"


def test_its_signals_are_its_own(built, call):
    assert call(built / "trainer13", "abort").code == -signal.SIGABRT


def test_a_shell_and_what_it_starts(built, call, tmp_path):
    trainer = built / "trainer13"
    result = call("/bin/sh", "-c", f"{trainer} 1; {trainer} 2; echo $?; exit 5")
    assert (result.code, result.stdout, result.stderr) == (5, "[1]\n[2]\n2\n", "")
    names = run_files(tmp_path)
    assert len(names) == 2 and all(name.startswith("sh-") for name in names)
    assert len(result.ours) == 2


def test_a_preload_of_the_users_own_stays(built, call):
    result = call("--quiet", built / "trainer13", env={"LD_PRELOAD": "libm.so.6"})
    assert result.stdout == " LD_PRELOAD=libm.so.6\n"


def test_a_program_without_libtorch_runs_as_without(built, call, tmp_path):
    result = call(built / "plain", "3")
    assert (result.code, result.stderr, result.ours) == (3, "", [])
    assert not (tmp_path / "runs").exists()


def test_another_libtorch_is_refused_with_a_sentence(built, call, tmp_path):
    result = call(built / "trainer12", "4")
    assert (result.code, result.stdout, result.stderr) == (4, "[4]\n", "")
    [said] = result.ours
    assert "2.13" in said and "2.12" in said and "unwatched" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("program, why", [("static", "linked statically"), ("torch_inside", "LibTorch is linked into")])
def test_a_static_program_is_refused_with_a_sentence(built, call, program, why):
    result = call(built / program, "6")
    assert (result.code, result.stdout, result.stderr) == (6, "[6]\n", "")
    [said] = result.ours
    assert why in said and "unwatched" in said


def test_a_set_uid_program_is_refused_with_a_sentence(built, call, tmp_path):
    program = tmp_path / "setuid"
    shutil.copy(built / "trainer13", program)
    program.chmod(0o755 | stat.S_ISUID)
    result = call("./setuid", "6")
    assert (result.code, result.stdout) == (6, "[6]\n")
    assert "set-uid" in result.ours[0]


def test_a_live_half_that_cannot_be_loaded_leaves_the_program_alone(built, call, tmp_path):
    lib = tmp_path / "lib"
    shutil.copytree(built / "lib", lib)
    (lib / "libfirstfault_live.so").write_bytes(b"not a library")
    result = call(built / "trainer13", "6", env={"LD_LIBRARY_PATH": str(lib)})
    assert (result.code, result.stdout, result.stderr) == (6, "[6]\n", "")
    assert "unwatched" in result.ours[0]
    (lib / "libfirstfault_live.so").unlink()
    result = call(built / "trainer13", "6", env={"LD_LIBRARY_PATH": str(lib)})
    assert (result.code, result.stdout) == (6, "[6]\n")
    assert "without its live half" in result.ours[0]


def test_firstfault_0_in_the_environment_switches_it_off(built, call, tmp_path):
    result = call(built / "trainer13", "6", env={"FIRSTFAULT": "0"})
    assert (result.code, result.ours) == (6, [])
    assert not (tmp_path / "runs").exists()


def test_programs_that_cannot_be_run_have_the_exit_codes_of_a_shell(call, tmp_path):
    assert call("./no_such_program").code == 127
    assert call("no_such_program").code == 127
    (tmp_path / "data").write_text("text")
    assert call("./data").code == 126


def test_a_script_is_handed_to_the_python_package(call, tmp_path):
    """By the first python3 along PATH."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    python.chmod(0o755)
    env = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    assert call("-q", "--out", "x.ffrun", "train.py", "--lr", "1", env=env).stdout == (
        "[-m][firstfault][run][--quiet][--out][x.ffrun][train.py][--lr][1]"
    )
    assert call("-m", "package.train", env=env).stdout == "[-m][firstfault][run][-m][package.train]"


def test_two_dashes_may_stand_before_the_command(built, call):
    assert call("--quiet", "--", built / "trainer13", "--", "x").stdout == "[--][x]\n"
