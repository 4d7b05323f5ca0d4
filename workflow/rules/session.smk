"""
Needs: nothing.
Makes: what surrounds a run: its merged configuration, deleted checkpoints that it needs, and one idle process that has
imported torch (workflow/models/warm.py).
"""

from workflow.models import warm

# the idle process, while there is one
WARM = []


onstart:
    write_run_config()
    if FETCHED:
        restore_checkpoints()
    WARM.append(warm.start())


onsuccess:
    warm.stop(WARM.pop())


onerror:
    warm.stop(WARM.pop())
