# Debian packages Duet needs; sourced by quickstart.sh and test.sh. README says why each.
# Installs only what is missing; asks sudo only when not root.

# libdnnl-dev's CMake file asks for OpenCL, which the package only recommends.
BUILD_PACKAGES="g++ cmake ninja-build libdnnl-dev ocl-icd-opencl-dev libeigen3-dev libhwy-dev libfmt-dev
  libtomlplusplus-dev nlohmann-json3-dev libxxhash-dev"
# ccache: the builds with and without CUDA share most objects.
TEST_PACKAGES="libgtest-dev clang-format python3 git ccache"
LINT_PACKAGES="clang clang-tidy libclang-rt-dev libomp-dev"

need_packages() {
  missing=""
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" ||
      missing="$missing $package"
  done
  [ -z "$missing" ] && return 0
  echo "Installing:$missing"
  as_root=""
  [ "$(id -u)" -eq 0 ] || as_root="sudo"
  # shellcheck disable=SC2086
  $as_root apt-get update -qq &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends $missing >/dev/null || {
    echo "error: could not install:$missing; install them by hand and run this again" >&2
    exit 1
  }
}
