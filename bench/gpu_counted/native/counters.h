// What all libraries of the counted GPU share; defined in cudart.cpp.
#pragma once
#include <cstddef>

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Counts one event of this name and adds to its amount: bytes of a copy, nanoseconds of a plan.
EXPORTED void counted_note(const char* name, size_t amount);

// Counts a kernel or product that a real GPU would compute in so many microseconds; inside a capture, as part of the graph.
EXPORTED void counted_kernel(const char* kind, const char* name, double microseconds);

// Takes memory of the card and returns whether there was enough; gives it back.
EXPORTED bool counted_take(size_t size);
EXPORTED void counted_give(size_t size);

// Says that addresses are memory of the card from now on, or no longer; returns whether exactly these were.
EXPORTED void counted_mapped(void* address, size_t size);
EXPORTED bool counted_unmapped(void* address, size_t size);

// Returns whether so many bytes are memory of the card.
EXPORTED bool counted_holds(const void* address, size_t size);

// Counts a copy of so many bytes in all.
EXPORTED void counted_copy(void* target, const void* source, size_t size, void* stream);
