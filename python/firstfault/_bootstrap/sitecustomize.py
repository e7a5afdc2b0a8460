"""Python imports this before the script that `firstfault run` was given: once the script has imported torch, watch it.

Nothing of it shows to the script: the environment, sys.path and the environment's own sitecustomize are as without it.
"""

import os
import sys

_HERE = os.path.dirname(__file__)


def _take_wishes():
    """Ours out of the environment: what the script starts in its turn runs as without us."""
    names = ("FILE", "LEVEL", "QUIET", "CHANGE", "STEPS")
    wishes = {name: os.environ.pop(f"FIRSTFAULT_RUN_{name}", "") for name in names}
    before = os.environ.pop("FIRSTFAULT_RUN_PYTHONPATH", None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    sys.path[:] = [folder for folder in sys.path if folder != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    return wishes


class _AfterTorch:
    """A finder that finds nothing of its own: it calls `then` when this process has imported torch."""

    def __init__(self, then):
        self.process = os.getpid()
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or path is not None or os.getpid() != self.process:
            return None
        sys.meta_path.remove(self)
        try:
            spec = self.found()
        except BaseException:
            sys.meta_path.insert(0, self)
            raise
        if spec is None or not hasattr(spec.loader, "exec_module"):
            sys.meta_path.insert(0, self)
            return spec
        self.follow(spec.loader)
        return spec

    def found(self):
        for finder in sys.meta_path:
            if spec := finder.find_spec("torch", None, None):
                return spec
        return None

    def follow(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            try:
                execute(module)
            except BaseException:
                sys.meta_path.insert(0, self)  # the script may catch it and try once more
                raise
            self.then()

        loader.exec_module = exec_module


def _begin():
    wishes = _take_wishes()
    if not wishes["FILE"] or os.environ.get("FIRSTFAULT") == "0":
        return
    import atexit

    state = {}

    def start():
        try:
            from firstfault import _run

            limits = wishes["CHANGE"], int(wishes["STEPS"] or 0)
            state["run"] = _run.start(wishes["FILE"], wishes["LEVEL"] or None, bool(wishes["QUIET"]), *limits)
        except Exception as error:
            if not wishes["QUIET"]:
                print(f"firstfault: the script runs unwatched: {type(error).__name__}: {error}", file=sys.stderr)

    @atexit.register  # the first to be registered is the last to be called
    def finish():
        if "run" in state:
            state["run"].finish()
        elif hook.process == os.getpid() and hook in sys.meta_path and not wishes["QUIET"]:
            print("firstfault: the script did not import torch: nothing was recorded", file=sys.stderr)

    hook = _AfterTorch(start)
    sys.meta_path.insert(0, hook)


def _hand_over():
    """To the sitecustomize that this one hides, if there is one."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_begin()
_hand_over()
