"""`python -m pyhudi.service`: run the table services of some tables until stopped."""

import sys

from pyhudi.cli.service import main

if __name__ == "__main__":
    sys.exit(main())
