"""Trainings with a fault put in on purpose, and healthy ones: how often is the tool right about them?

Number i of seed s is one run: architecture x optimizer x schedule x precision x accumulation, all drawn; one of three
is healthy, the others have a fault at a drawn place, step and size. What is wrong is known as it was put in, and a run
counts only if plain checks, beside the same run without the fault, find harm (verify.py). This part neither imports
firstfault nor knows its rules; only score.py does.

    python -m tests.accuracy --seed 0 --runs 60            the score (several seeds: --seed 0 1 2)
    python -m tests.accuracy --seed 0 1 2 --write docs/accuracy.md    the same, and its tables into the documentation
    python -m tests.accuracy --seed 0 --only 7             one run, with all hypotheses and events about it
    python -m tests.accuracy.generate --seed 0 --runs 60 --check      the runs and what was measured, without the tool
    python -m tests.accuracy.generate --seed 0 --only 7    one of them, with the draws that were rejected before it

In Python, one run by (seed, index):

    from tests.accuracy.program import program
    found = program(0, 7)                  # .fault, .harm, .steps, .draft.architecture.name, .draft.recipe
    training, truth = found.build()        # a fresh one each time; truth is None for a healthy run
    for i in range(found.steps):
        loss = training.step(i)            # training.models, .optimizers, .task, .recipe

Which draws hold is found out once per run (a second or two) and kept in build/accuracy/, until a file of the
generator changes.
"""
