"""Files that are no run files, or are damaged: one sentence and exit code 2, or what can still be read; no crash."""

import json
import random
import sqlite3

import pytest

COMMANDS = [["show"], ["explain"], ["events"], ["export", "--what", "sites"], ["check"]]


def acceptable(result, path):
    """Read as well as can be, or refused with a sentence."""
    assert result.returncode in (0, 1, 2), (result.returncode, result.stderr)
    assert "Sanitizer" not in result.stderr and "runtime error" not in result.stderr, result.stderr
    if result.returncode == 2 and not result.stdout:
        assert result.stderr.startswith("firstfault: ") and len(result.stderr.splitlines()) == 1, result.stderr


def refused(result, path):
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("firstfault: ") and len(result.stderr.splitlines()) == 1
    assert path.name in result.stderr


def foreign(path):
    with sqlite3.connect(path) as database:
        database.execute("create table songs(title text)")


def newer(path, runs):
    path.write_bytes(runs["fault"].read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("pragma user_version = 1000")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("kind", ["missing", "empty", "text", "foreign", "newer", "folder"])
def test_what_is_no_run_file_is_refused_with_one_sentence(native, runs, tmp_path, kind, command):
    path = tmp_path / f"{kind}.ffrun"
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("loss,step\n" * 1000)
    elif kind == "foreign":
        foreign(path)
    elif kind == "newer":
        newer(path, runs)
    elif kind == "folder":
        path.mkdir()
    refused(native(*command, path), path)


def test_a_run_whose_steps_are_lost_is_not_called_healthy(native, runs, tmp_path):
    path = tmp_path / "lost.ffrun"
    path.write_bytes(runs["healthy"].read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("drop table steps")
    result = native("check", path)
    assert result.returncode == 2 and "no step to judge by" in result.stdout and "steps" in result.stderr


def test_diff_refuses_when_either_file_is_missing(native, runs, tmp_path):
    missing = tmp_path / "missing.ffrun"
    refused(native("diff", runs["fault"], missing), missing)
    refused(native("diff", missing, runs["fault"]), missing)


def test_a_refusal_leaves_standard_output_empty_with_json_too(native, tmp_path):
    refused(native("check", "--json", tmp_path / "missing.ffrun"), tmp_path / "missing.ffrun")


def cut_everywhere(native, content, path, every):
    for length in range(0, len(content), every):
        path.write_bytes(content[:length])
        for command in COMMANDS:
            acceptable(native(*command, path), path)


def flip(content, seed):
    """One to four bits, half of them in the first pages, where the structure is."""
    draw = random.Random(seed)
    out = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(4096 * 4 if draw.random() < 0.5 else len(out))
        out[place % len(out)] ^= 1 << draw.randrange(8)
    return bytes(out)


def test_a_file_cut_anywhere_is_read_or_refused(native, runs, tmp_path):
    content = runs["fault"].read_bytes()
    cut_everywhere(native, content, tmp_path / "cut.ffrun", max(512, len(content) // 20 // 512 * 512))


@pytest.mark.slow
def test_a_file_cut_at_every_512th_byte_is_read_or_refused(native, runs, tmp_path):
    cut_everywhere(native, runs["fault"].read_bytes(), tmp_path / "cut.ffrun", 512)


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_file_with_flipped_bits_is_read_or_refused(native, runs, tmp_path, count):
    content = runs["hostile"].read_bytes()
    path = tmp_path / "flipped.ffrun"
    for seed in range(count):
        path.write_bytes(flip(content, seed))
        result = native(*COMMANDS[seed % len(COMMANDS)], path)
        acceptable(result, path)
        assert "\x1b" not in result.stdout + result.stderr, f"seed {seed}"


def test_strings_in_the_file_cannot_break_the_json(native, runs, tmp_path):
    content = runs["hostile"].read_bytes()
    path = tmp_path / "flipped.ffrun"
    for seed in range(40):
        path.write_bytes(flip(content, 5000 + seed))
        result = native("show", "--json", path)
        if result.returncode == 0:
            json.loads(result.stdout)


def test_a_file_that_cannot_be_opened_says_so(native, runs, tmp_path):
    import os

    if os.geteuid() == 0:
        pytest.skip("root opens everything")
    path = tmp_path / "locked.ffrun"
    path.write_bytes(runs["fault"].read_bytes())
    path.chmod(0)
    refused(native("show", path), path)
