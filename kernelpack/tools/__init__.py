"""What host code makes kernels' arguments with."""
