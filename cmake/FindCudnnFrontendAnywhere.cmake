# Finds what model.attention=cudnn is built from: cuDNN 9's C headers, and the C++ frontend (headers
# only) that `tools/setup.sh venv cudnn` installs from PyPI. CUDNN_FRONTEND_PATH, as a CMake or an
# environment variable, names a folder with include/cudnn_frontend.h instead. Sets INGOT_HAS_CUDNN to
# true or false. The library itself is loaded at run time and not needed here.
set(INGOT_HAS_CUDNN false)
if(INGOT_HAS_CUDA AND NOT INGOT_CUDNN STREQUAL "OFF")
    file(GLOB _site_packages LIST_DIRECTORIES true ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages)
    find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
        HINTS "${CUDNN_FRONTEND_PATH}" "$ENV{CUDNN_FRONTEND_PATH}"
        PATHS ${_site_packages} PATH_SUFFIXES include)
    find_path(CUDNN_INCLUDE_DIR cudnn.h
        HINTS ${CUDAToolkit_INCLUDE_DIRS}
        PATHS /usr/local/cuda/include /usr/include/x86_64-linux-gnu
        PATH_SUFFIXES include nvidia/cudnn/include)
    if(CUDNN_FRONTEND_INCLUDE_DIR AND CUDNN_INCLUDE_DIR)
        set(INGOT_HAS_CUDNN true)
    elseif(INGOT_CUDNN STREQUAL "ON")
        message(FATAL_ERROR "INGOT_CUDNN=ON, but cudnn.h (${CUDNN_INCLUDE_DIR}) or cudnn_frontend.h "
            "(${CUDNN_FRONTEND_INCLUDE_DIR}) was not found; install cuDNN 9's headers and run "
            "tools/setup.sh venv cudnn, or set CUDNN_FRONTEND_PATH")
    endif()
endif()
