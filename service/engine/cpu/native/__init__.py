"""The engine on the CPU in C++: its library and its runner.

`interface.cpp` has the functions that `library.py` calls; `layers.cpp` the model; `kernels.h` what an instruction set
computes, of which `plain.cpp` is the reference.  `pack.py` writes a bundle's weights as the library reads them.
"""
