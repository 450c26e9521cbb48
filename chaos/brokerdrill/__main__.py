"""`python -m brokerdrill`."""

from brokerdrill.cli.app import main

if __name__ == "__main__":
    main()
