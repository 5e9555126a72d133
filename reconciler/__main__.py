"""`python -m reconciler` runs the reconciler."""

from reconciler.app import main

if __name__ == "__main__":
    main()
