"""What each command says, in both programs."""

import csv
import io
import json
import math
import os
import pty
import re
import resource
import statistics
import subprocess
import time

import pytest

JSON_COMMANDS = ["show", "explain", "events", "export", "check"]


def test_check_says_by_its_exit_code_whether_the_run_is_healthy(firstfault, runs):
    healthy, fault, empty = (firstfault("check", runs[kind]) for kind in ("healthy", "fault", "empty"))
    assert (healthy.returncode, fault.returncode, empty.returncode) == (0, 1, 2)
    assert "no fault found (200 steps, complete)" in healthy.stdout
    assert "fault in step 40" in fault.stdout and "[op_domain]" in fault.stdout
    assert "no step to judge by" in empty.stdout
    assert healthy.stderr == fault.stderr == ""


def test_check_finds_the_fault_of_a_process_that_was_gone_before_it_closed_the_file(firstfault, runs):
    result = firstfault("check", runs["killed"])
    assert result.returncode == 1
    assert "(41 steps, died)" in result.stdout


def test_explain_names_the_op_its_line_and_what_to_do(firstfault, runs):
    result = firstfault("explain", runs["fault"])
    assert result.returncode == 0
    for part in ("aten::log", "/home/user/project/train.py:27", "model.0", "step 40", "[2, 7]", "advice"):
        assert part in result.stdout
    assert result.stdout.startswith("Fault in step 40 of 41 steps")


def test_explain_of_a_folder_goes_through_its_run_files_and_says_which_cannot_be_read(firstfault, runs, tmp_path):
    for kind in ("fault", "healthy"):
        (tmp_path / f"{kind}.ffrun").write_bytes(runs[kind].read_bytes())
    (tmp_path / "broken.ffrun").write_bytes(b"not a database" * 100)
    (tmp_path / "notes.txt").write_text("no run file")
    result = firstfault("explain", tmp_path)
    assert result.returncode == 0
    order = [result.stdout.index(f"{name}.ffrun") for name in ("broken", "fault", "healthy")]
    assert order == sorted(order)
    assert "notes.txt" not in result.stdout and "[op_domain]" in result.stdout
    members = json.loads(firstfault("explain", tmp_path, "--json").stdout)["runs"]
    assert ["error" in one for one in members] == [True, False, False]


def test_show_has_the_state_the_verdict_the_last_steps_and_the_sites_that_are_not_healthy(firstfault, runs):
    result = firstfault("show", runs["fault"], "--rows", 3)
    assert result.returncode == 0
    assert "died, 41 steps, 2 events" in result.stdout.splitlines()[0]
    assert re.findall(r"^ +(\d+) .*", result.stdout, re.M) == ["38", "39", "40"]
    assert re.search(r"^ +40 .* -Inf +\+Inf ", result.stdout, re.M)
    assert "Not healthy: 2 of 2 sites" in result.stdout
    assert re.search(r"gradient of 'model\.0\.weight' +non-finite +since step 40", result.stdout)


def test_show_and_explain_tell_what_a_guard_did_and_count_its_clips(firstfault, runs):
    sentences = [
        "step 20: skipped, gradient of 'model.0.weight' holds NaN in 12 of 4160 elements",
        "step 30: rolled back, gradient of 'model.0.weight' holds NaN in 12 of 4160 elements; "
        "back to step 25, 5 steps lost",
        "6 steps clipped; the last: step 37, norm 8 to 1 (90 % model.0.weight)",
    ]
    shown = firstfault("show", runs["guarded"]).stdout
    assert "\nWhat the guard did\n" + "".join(f"  {one}\n" for one in sentences) in shown
    explained = firstfault("explain", runs["guarded"]).stdout
    assert all(one in explained for one in sentences)
    assert "guard" not in firstfault("show", runs["healthy"]).stdout
    actions = json.loads(firstfault("show", runs["guarded"], "--json").stdout)["actions"]
    assert [one["action"] for one in actions] == ["skip", "rollback"] + ["clip"] * 6
    assert (actions[1]["snapshot"], actions[1]["lost"], actions[2]["coefficient"]) == (25, 5, 0.125)


def test_events_are_the_transitions_in_order(firstfault, runs):
    lines = firstfault("events", runs["fault"]).stdout.splitlines()
    assert [line.split(" went ")[0] for line in lines] == ["step 40: loss", "step 40: gradient of 'model.0.weight'"]
    assert firstfault("events", runs["healthy"]).stdout == "No events: no site changed its state.\n"
    events = json.loads(firstfault("events", runs["fault"], "--json").stdout)["events"]
    assert [(one["step"], one["site"], one["to_state"]) for one in events] == [
        (40, "loss", "non_finite"),
        (40, "model.0.weight", "non_finite"),
    ]


@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_json_is_one_document_with_a_schema_and_a_type(firstfault, runs, command):
    document = json.loads(firstfault(command, runs["fault"], "--json").stdout)
    assert document["schema"] == 1
    assert document["type"] == {"explain": "explanation"}.get(command, command)


def test_the_verdict_as_json(firstfault, runs):
    fault = json.loads(firstfault("check", runs["fault"], "--json").stdout)["verdict"]
    assert (fault["kind"], fault["cause"], fault["step"]) == ("fault", "op_domain", 40)
    assert 0.5 < fault["confidence"] <= 1
    healthy = json.loads(firstfault("show", runs["healthy"], "--json").stdout)["verdict"]
    assert healthy == {"kind": "healthy", "cause": None, "confidence": None, "step": None}


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_exported_steps_have_every_number_as_it_was_recorded(firstfault, runs):
    rows = table(firstfault("export", runs["fault"]).stdout)
    assert [int(row["step"]) for row in rows] == list(range(41))
    assert rows[0]["lr"] == "0.001" and rows[0]["loss_scale"] == "" and rows[0]["skipped"] == "false"
    assert rows[40]["loss"] == "-inf" and rows[40]["gradient_norm"] == "inf"
    exact = (0.25 + 2 * math.exp(-0.05 * 7)) * (1 + 0.02 * math.sin(7 * 12.9898))
    assert float(rows[7]["loss"]) == pytest.approx(exact, rel=1e-15)


def test_exported_sites_are_one_line_per_step_and_site(firstfault, runs, tmp_path):
    file = tmp_path / "sites.csv"
    result = firstfault("export", runs["fault"], "--what", "sites", "--out", file)
    assert (result.returncode, result.stdout) == (0, "")
    rows = table(file.read_text())
    assert len(rows) == 82
    assert {row["role"] for row in rows} == {"loss", "gradient"}
    last = [row for row in rows if row["step"] == "40"]
    assert [(row["name"], row["nonfinite"]) for row in last] == [("loss", "1"), ("model.0.weight", "12")]
    assert last[1]["mean"] == ""


def test_exported_events_as_json_have_the_same_columns_as_csv(firstfault, runs):
    document = json.loads(firstfault("export", runs["fault"], "--what", "events", "--format", "json").stdout)
    head = firstfault("export", runs["fault"], "--what", "events").stdout.split("\n")[0]
    assert document["columns"] == head.split(",")
    assert len(document["columns"]) == len(document["types"]) == len(document["rows"][0])
    assert document["rows"][0][document["columns"].index("to_state")] == "non_finite"


def test_the_native_program_says_who_writes_parquet(native, runs, tmp_path):
    result = native("export", runs["fault"], "--format", "parquet", "--out", tmp_path / "x.parquet")
    assert result.returncode == 2
    assert "pyarrow" in result.stderr and "python -m firstfault export" in result.stderr


def test_diff_says_what_differs_and_the_step_at_which_the_numbers_part(firstfault, runs):
    result = firstfault("diff", runs["healthy"], runs["other"])
    assert result.returncode == 1
    assert re.search(r"optimizer 0 group 0 lr +0\.001 +\| +0\.002", result.stdout)
    assert "loss differs first at step 100" in result.stdout
    assert "loss differs by more than 1 % first at step 101" in result.stdout
    assert "gradient norm: the same in all 102 steps compared" in result.stdout
    wide = json.loads(firstfault("diff", runs["healthy"], runs["other"], "--tolerance", 5, "--json").stdout)
    loss = wide["numbers"][0]
    assert (loss["name"], loss["compared"], loss["differs"]["step"]) == ("loss", 102, 100)
    assert loss["differs_clearly"] is None
    assert {one["what"] for one in wide["model"]} == {"module model.0", "module model.1"}


def test_diff_of_a_run_with_itself_finds_nothing(firstfault, runs):
    result = firstfault("diff", runs["fault"], runs["fault"])
    assert result.returncode == 0
    for heading in ("Program", "Hyperparameters", "Model"):
        assert heading not in result.stdout


@pytest.mark.parametrize("listing, known", [("rules", "lr_too_high"), ("mechanisms", "log_of_nonpositive")])
def test_listings_have_a_name_and_a_condition(firstfault, listing, known):
    names = [line.split()[0] for line in firstfault(listing).stdout.splitlines()]
    assert known in names and len(names) == len(set(names))
    as_json = json.loads(firstfault(listing, "--json").stdout)
    assert [one["name"] for one in as_json] == names and all(one["condition"] for one in as_json)


def test_a_command_line_that_cannot_be_understood_is_exit_code_2(firstfault, runs):
    fault = runs["fault"]
    for wrong in ([], ["bogus"], ["check"], ["export", fault, "--format", "xml"], ["show", fault, "-n-1"]):
        result = firstfault(*wrong)
        assert (result.returncode, result.stdout) == (2, ""), wrong
        assert result.stderr


def test_help_and_version_are_no_errors(firstfault):
    for asked in ("--help", "--version"):
        result = firstfault(asked)
        assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"firstfault \d+\.\d+\.\d+\n", firstfault("--version").stdout)


def on_a_terminal(command: list[str], env: dict[str, str]) -> str:
    """What the command writes where its standard output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, env={**os.environ, "TERM": "xterm", **env})
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    process.wait(timeout=30)
    return written.decode()


def test_colour_is_for_terminals_that_want_it(native, runs):
    command = [*native.command, "show", str(runs["fault"])]
    assert "\x1b[" in on_a_terminal(command, {})
    assert "\x1b" not in on_a_terminal(command, {"NO_COLOR": "1"})
    assert "\x1b" not in on_a_terminal(command, {"TERM": "dumb"})
    assert "\x1b" not in native("show", runs["fault"]).stdout


@pytest.mark.parametrize("command", ["show", "explain", "events", "export", "check"])
def test_escapes_in_names_do_not_reach_the_terminal(firstfault, runs, command):
    wanted = ["--what", "sites"] if command == "export" else []
    result = firstfault(command, runs["hostile"], *wanted)
    assert result.returncode in (0, 1)
    assert "\x1b" not in result.stdout and "\u202e" not in result.stdout
    if command != "check":
        assert r"\x1b[31m" in result.stdout and r"\u202e" in result.stdout and r"\xff" in result.stdout


def test_names_with_commas_quotes_and_newlines_stay_in_their_column(firstfault, runs):
    rows = table(firstfault("export", runs["hostile"], "--what", "sites").stdout)
    assert {row["name"] for row in rows} == {"loss", r'model.\x1b[31m\u202e\xff,"q"\n<b>.weight'}


def test_follow_ends_when_the_process_that_records_is_gone(native, tmp_path):
    file = tmp_path / "live.ffrun"
    recorder = subprocess.Popen([*native.command[:0], str(make_run_program(native)), "recording", str(file)])
    try:
        deadline = time.monotonic() + 20
        while native("check", file).returncode != 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        follower = subprocess.Popen(
            [*native.command, "show", str(file), "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        first = follower.stdout.readline()
        time.sleep(1.5)
        assert follower.poll() is None, "it ended before the run did"
        recorder.kill()
        recorder.wait()
        rest, errors = follower.communicate(timeout=30)
    finally:
        recorder.kill()
    assert first.startswith("step 0 ")
    steps = [int(step) for step in re.findall(r"^step (\d+)", first + rest, re.M)]
    assert steps == sorted(set(steps)) and steps[-1] > 30
    assert (follower.returncode, errors) == (0, "")


def make_run_program(native):
    return native.command[0].replace("bin/firstfault", "bin/make_run")


def test_follow_of_a_run_that_has_ended_shows_it_once(native, runs):
    lines = native("show", runs["healthy"], "--follow", "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["complete"]


def test_a_reader_that_goes_away_ends_the_program_without_a_word(native, runs):
    reader = f"{native.command[0]} export {runs['healthy']} --what sites | head -n 1"
    result = subprocess.run(["sh", "-c", reader], capture_output=True, text=True)
    assert result.stdout.startswith("step,") and result.stderr == ""


def test_a_full_disk_is_said(native, runs):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*native.command, "export", str(runs["healthy"])], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 2 and "standard output" in result.stderr
    result = native("export", runs["healthy"], "--out", "/dev/full")
    assert result.returncode == 2 and "No space left on device" in result.stderr


def test_the_native_program_starts_in_less_than_50_milliseconds_of_processor_time(native, runs):
    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert native("check", runs["healthy"]).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert statistics.median(seconds() for _ in range(15)) < 0.05
