"""Reports: one HTML file that shows kernels beside every stage of their compilation, their figures, a library's sizes and benchmarks."""
