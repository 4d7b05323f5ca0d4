"""Adapters for transformers before 5: the versions that the papers ran, 4.40.1, 4.44.2 and 4.45.2.

One module a family, chosen by `workflow.lib.environments.adapter_module`. They offer what the papers did, one question
after the other or in batches through ``generate``; nothing is shared between questions.
"""
