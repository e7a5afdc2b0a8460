"""Healthy trainings: models that have nothing wrong with them, and the check that Trace agrees."""
