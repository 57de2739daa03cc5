"""A module whose import takes as long as a test wants, as torch takes seconds."""

import os
import time
from pathlib import Path

while not Path(os.environ["IMPORT_ENDS"]).exists():
    time.sleep(0.01)
