"""triton.profiler.viewer: prints a profile as a tree with metrics."""

from kernelpack.profiler.viewer import main as main
from kernelpack.profiler.viewer import parse as parse
from kernelpack.profiler.viewer import print_tree as print_tree

if __name__ == "__main__":
    main()
