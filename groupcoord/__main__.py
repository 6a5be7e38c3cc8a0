"""``python -m groupcoord``: the same as the command ``groupcoord``."""

from groupcoord.cli import main

if __name__ == "__main__":
    main()
