"""`python -m t1` is the command `t1`."""

import sys

from t1.cli import main

sys.exit(main())
