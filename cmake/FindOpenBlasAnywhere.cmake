# Finds OpenBLAS, its OpenMP flavour first (one thread pool with the engine's own loops), where
# Debian (alternatives folders) and RHEL (libopenblaso) keep it. Defines the target ingot_openblas
# (headers only: kernels/blas_openblas.cpp loads the library at run time) and sets INGOT_HAS_OPENBLAS
# to true or false.
set(INGOT_HAS_OPENBLAS false)
if(NOT INGOT_OPENBLAS STREQUAL "OFF")
    find_path(OPENBLAS_INCLUDE_DIR cblas.h
        PATH_SUFFIXES openblas-openmp x86_64-linux-gnu/openblas-openmp openblas openblas-pthread)
    find_library(OPENBLAS_LIBRARY NAMES openblaso openblas
        PATH_SUFFIXES openblas-openmp x86_64-linux-gnu/openblas-openmp openblas-pthread)
    if(OPENBLAS_INCLUDE_DIR AND OPENBLAS_LIBRARY)
        add_library(ingot_openblas INTERFACE)
        target_include_directories(ingot_openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE_DIR})
        set(INGOT_HAS_OPENBLAS true)
    elseif(INGOT_OPENBLAS STREQUAL "ON")
        message(FATAL_ERROR "INGOT_OPENBLAS=ON, but cblas.h or libopenblas was not found; install "
            "libopenblas-openmp-dev (Debian) or openblas-devel (RHEL)")
    endif()
endif()
