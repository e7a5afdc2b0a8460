"""A Python script under `firstfault run` behaves as under `python`: arguments, imports, exit codes, children."""

import ast
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from .conftest import RUN, ended


@pytest.fixture
def write(tmp_path):
    def call(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return name

    return call


def test_arguments_are_the_scripts_own(write, both):
    script = write(
        "train.py",
        """
        import argparse, sys
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        parser.add_argument("--out")
        parser.add_argument("-q", action="store_true")
        parser.add_argument("rest", nargs="*")
        print(parser.parse_args(), sys.argv, parser.prog)
        """,
    )
    assert "lr=0.5" in both(script, "--lr", "0.5", "--out", "here", "-q", "a b", "--", "--c").stdout
    assert both(script, "--wrong").code == 2
    assert "usage: train.py" in both(script, "--help").stdout


def test_the_script_sees_the_interpreter_as_without(write, both):
    script = write(
        "folder/state.py",
        """
        import os, sys
        ours = [name for name in os.environ if "FIRSTFAULT" in name]
        print(__name__, __file__, __package__, __spec__, type(__loader__).__name__)
        print(sys.path, sys.argv, sys.flags, sys.orig_argv[1:], os.getcwd(), ours)
        print({name: value for name, value in os.environ.items() if name.startswith("PYTHON")})
        print(sys.modules["__main__"].__dict__.keys(), sys.excepthook is sys.__excepthook__)
        print("torch" in sys.modules, "firstfault" in sys.modules)
        """,
    )
    assert both(script).stdout.endswith("\nFalse False\n")
    both(script, env={"PYTHONPATH": "some/folder:/another"})
    both(script, env={"PYTHONPATH": ""})


def test_flags_of_the_interpreter_are_handed_on(write, run):
    script = write("flags.py", "import sys; print(sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions)")
    flags = ["-O", "-X", "dev", "-W", "error::UserWarning"]
    plain = run(sys.executable, *flags, script)
    assert run(sys.executable, *flags, "-m", "firstfault", "run", script).stdout == plain.stdout
    assert run(sys.executable, *flags[1:], "-Om", "firstfault", "run", script).stdout == plain.stdout


def test_modules_beside_the_script_and_if_name_is_main(write, both):
    write("helpers.py", "def twice(x): return 2 * x")
    script = write("train.py", 'import helpers\nif __name__ == "__main__":\n    print(helpers.twice(21))')
    assert both(script).stdout == "42\n"


def test_a_module_with_relative_imports(write, both):
    write("package/__init__.py", "")
    write("package/helpers.py", "def twice(x): return 2 * x")
    program = "import sys\nfrom .helpers import twice\nprint(twice(21), __name__, __package__, sys.argv[1:])"
    write("package/train.py", program)
    write("package/__main__.py", "from . import train")
    assert both("-m", "package.train", "--lr", "3").stdout.startswith("42 __main__ package ['--lr', '3']")
    assert both("-m", "package").stdout.startswith("42 package.train")
    assert both("-m", "no_such_module").code == 1


@pytest.mark.parametrize(
    "ending, code",
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('a reason')", 1),
        ("raise SystemExit(True)", 1),
        ("os._exit(9)", 9),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", -signal.SIGINT),
    ],
)
def test_exit_codes_and_signals_are_the_scripts_own(write, both, ending, code):
    script = write("train.py", f"import os, signal, sys, time\nprint('begun', flush=True)\n{ending}\n")
    result = both(script)
    assert (result.code, result.stdout) == (code, "begun\n")


def test_a_traceback_has_only_the_scripts_frames(write, both):
    script = write(
        "train.py",
        """
        def inner():
            return 1 / 0
        try:
            inner()
        except ZeroDivisionError as error:
            raise RuntimeError("while training") from error
        """,
    )
    result = both(script)
    assert result.code == 1
    assert "direct cause" in result.stderr and result.stderr.startswith("Traceback (most recent call last):")
    assert "sitecustomize" not in result.stderr and "runpy" not in result.stderr
    both(write("syntax.py", "def :"))
    both("no_such_script.py")


def test_a_hook_for_exceptions_and_atexit_functions_of_the_script_run_as_without(write, both):
    script = write(
        "train.py",
        """
        import atexit, sys, threading, time
        atexit.register(print, "at exit")
        sys.excepthook = lambda kind, value, trace: print("hook", kind, trace.tb_frame.f_code.co_name, trace.tb_next)
        threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
        raise ValueError
        """,
    )
    assert both(script).stdout.split("\n")[1:3] == ["thread", "at exit"]


def test_standard_input_and_output_are_the_scripts_own(write, both):
    program = "import sys; data = sys.stdin.read(); print(len(data), sys.stdout.isatty()); print(data)"
    script = write("train.py", program)
    assert both(script, stdin="some\ntext\n").stdout == "10 False\nsome\ntext\n\n"


def test_ctrl_c_ends_it_as_python_does(write, tmp_path):
    script = write("train.py", "import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    ends = []
    for command in ([sys.executable, script], [*RUN, script]):
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.5)  # until it sleeps
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=30)
        ends.append(ended(subprocess.CompletedProcess(command, process.returncode, out, err)))
    assert ends[0].code == ends[1].code == -signal.SIGINT
    assert ends[0].stderr == ends[1].stderr and "KeyboardInterrupt" in ends[1].stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_and_the_children_are_not_watched(write, both, method):
    script = write(
        "train.py",
        f"""
        import multiprocessing as mp, os, sys
        def work(x):
            watched = any("_AfterTorch" in type(one).__name__ for one in sys.meta_path) and os.getpid() == PARENT
            return x * x, watched, "FIRSTFAULT_RUN_FILE" in os.environ
        PARENT = os.getpid() if __name__ == "__main__" else None
        if __name__ == "__main__":
            mp.set_start_method("{method}")
            with mp.Pool(2) as pool:
                print(pool.map(work, range(4)))
        """,
    )
    expected = [(x * x, False, False) for x in range(4)]
    assert both(script).stdout == f"{expected}\n"


def test_children_by_fork_that_end_in_python_say_nothing_and_close_nothing(write, both):
    script = write(
        "train.py",
        """
        import os, sys
        child = os.fork()
        if child == 0:
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    result = both(script)
    assert result.stdout == "5\n"
    assert len(result.ours) == 1


def test_a_subprocess_runs_as_without(write, both):
    write("child.py", "import os, sys; print(sorted(n for n in os.environ if 'FIRSTFAULT' in n), sys.path)")
    script = write("train.py", "import subprocess, sys; subprocess.run([sys.executable, 'child.py'])")
    assert both(script).stdout.startswith("[]")


def test_a_sitecustomize_of_the_environment_is_still_imported(write, both, tmp_path):
    write("site/sitecustomize.py", "import sys; sys.seen = __file__")
    script = write("train.py", "import sys, sitecustomize; print(sys.seen, sitecustomize.__file__)")
    both(script, env={"PYTHONPATH": str(tmp_path / "site")})


def test_scripts_without_a_suffix_are_known_by_their_first_line(write, run):
    script = write("trainer", "#!/usr/bin/env python3\nimport sys; print(sys.argv, sys.executable)")
    assert run(*RUN, "./trainer", "x").stdout == f"['./trainer', 'x'] {sys.executable}\n"
    assert run(*RUN, script).code == 127  # a name without a slash is looked up along PATH


def test_a_folder_with_a_main_is_run_as_python_does(write, both):
    write("app/__main__.py", "import sys; print(sys.argv, __name__, sys.path[0])")
    both("app", "x")


@pytest.mark.parametrize(
    "wrong, says",
    [
        ([], "nothing to run"),
        (["--bogus", "train.py"], "no option --bogus"),
        (["--out", "no/such/folder/x.ffrun", "train.py"], "does not exist"),
        (["python3", "train.py"], "without python3"),
        (["--level", "everything", "train.py"], "everything"),
    ],
)
def test_misuse_is_exit_code_2_before_anything_runs(run, wrong, says):
    result = run(*RUN, *wrong)
    assert (result.code, result.stdout) == (2, "")
    assert says in result.stderr + "".join(result.ours)


def test_one_line_of_our_own_at_the_end_and_none_with_quiet(write, run):
    script = write("train.py", "import sys; print('done'); print('theirs', file=sys.stderr)")
    result = run(*RUN, script)
    assert (result.stdout, result.stderr, len(result.ours)) == ("done\n", "theirs\n", 1)
    assert "did not import torch" in result.ours[0]
    assert run(*RUN, "--quiet", script).ours == []
    assert run(*RUN, script, env={"FIRSTFAULT": "0"}).ours == []


def test_nothing_is_written_for_a_script_without_torch(write, run, tmp_path):
    run(*RUN, write("train.py", "pass"))
    assert not (tmp_path / "runs").exists()


def test_a_failed_import_of_torch_is_the_scripts_own_affair(write, both, tmp_path):
    write("fake/torch/__init__.py", "raise OSError('libtorch is broken')")
    script = write(
        "train.py",
        """
        for _ in range(2):
            try:
                import torch
            except OSError as error:
                print(error)
        """,
    )
    assert both(script, env={"PYTHONPATH": str(tmp_path / "fake")}).stdout == "libtorch is broken\n" * 2


def test_a_script_without_torch_loads_no_part_of_firstfault_but_what_waits_for_torch(write, run):
    script = write("train.py", "import sys\nprint(sorted(sys.modules))\n")
    plain, watched = (set(ast.literal_eval(run(*command, script).stdout)) for command in ([sys.executable], RUN))
    assert len(watched - plain) <= 4 and not any(name.startswith(("torch", "firstfault.")) for name in watched)
