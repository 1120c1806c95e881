"""What is called of each package, and what torch, or the package's own reference, makes of the same."""
