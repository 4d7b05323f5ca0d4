"""A function for test_warm that runs until it is killed."""

import os
import time

from workflow.lib import files


def sleep(path):
    files.write_text(str(os.getpid()), path)
    time.sleep(60)
