"""`python -m pyhudi.service`: run the services of a table until stopped."""

import sys

from pyhudi.cli.service import main

if __name__ == "__main__":
    sys.exit(main())
