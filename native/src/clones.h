// Functions that are compiled for several instruction sets.
#pragma once

// The set is chosen when the module is loaded. -ffp-contract=off keeps the results of all of them the same.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ELASTICDL_SANITIZED)
#define ELASTICDL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ELASTICDL_CLONES
#endif
