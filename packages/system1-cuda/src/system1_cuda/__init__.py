"""NVIDIA backend: CUDA kernels under the names of the references. Importing it is free."""
