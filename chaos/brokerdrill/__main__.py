"""`python -m brokerdrill`."""

from brokerdrill.cli import main

if __name__ == "__main__":
    main()
