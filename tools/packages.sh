# shellcheck shell=bash disable=SC2034
# Shared by quickstart.sh and test.sh: the Debian packages Duet needs (README says why each), and how a
# build directory is configured. Installs only what is missing; asks sudo only when not root.

# libdnnl-dev's CMake file asks for OpenCL, which the package only recommends. ccache: a compile line
# that has been seen before, in whichever build directory, costs nothing.
BUILD_PACKAGES="g++ cmake ninja-build libdnnl-dev ocl-icd-opencl-dev libeigen3-dev libhwy-dev libfmt-dev
  libtomlplusplus-dev nlohmann-json3-dev libxxhash-dev ccache"
TEST_PACKAGES="libgtest-dev clang-format python3 git"
LINT_PACKAGES="clang clang-tidy libclang-rt-dev libomp-dev"

# One counting line: rewritten in place on a terminal, elsewhere a line every 15 seconds at most.
# progress TEXT; progress_done ends it.
progress_last=-15
progress() {
  if [ -t 1 ]; then
    printf '\r%.*s\033[K' "$((${COLUMNS:-80} - 1))" "$1"
  elif [ $((SECONDS - progress_last)) -ge 15 ]; then
    printf '%s\n' "$1"
    progress_last=$SECONDS
  fi
}
progress_done() {
  [ ! -t 1 ] || printf '\r\033[K'
  progress_last=-15
}

# Runs apt-get with "$@" behind a counting line. apt writes its state to a pipe of its own, for a
# package's script fails when it writes to the same one: dlstatus:N:PERCENT:TEXT while it downloads,
# pmstatus:PACKAGE:PERCENT:TEXT while it installs. sudo passes on descriptors 0 to 2 only.
apt_with_progress() {
  # shellcheck disable=SC2016
  $as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C sh -c \
    'exec apt-get -y -o APT::Status-Fd=3 -o Dpkg::Use-Pty=0 "$@" 3>&1 1>&2' apt-get "$@" \
    2>>"$apt_log" </dev/null |
    while IFS=: read -r kind _ percent text; do
      case "$kind" in
        dlstatus) progress "packages: download ${percent%%.*} %, $text, $SECONDS s" ;;
        pmstatus) progress "packages: install ${percent%%.*} %, $text, $SECONDS s" ;;
      esac
    done
}

need_packages() {
  missing=""
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" ||
      missing="$missing $package"
  done
  [ -z "$missing" ] && return 0
  as_root=""
  [ "$(id -u)" -eq 0 ] || as_root="sudo"
  echo "Installing$([ -z "$as_root" ] || echo " (sudo may ask for your password)"):$missing"
  [ -z "$as_root" ] || sudo -v || true  # asked before the counting line; apt-get says what is refused
  apt_log=$(mktemp)
  progress "packages: apt-get update"
  # shellcheck disable=SC2086
  if apt_with_progress update && apt_with_progress install --no-install-recommends $missing; then
    progress_done
    rm -f "$apt_log"
    return 0
  fi
  progress_done
  tail -n 20 "$apt_log" >&2
  rm -f "$apt_log"
  echo "error: could not install:$missing; install them by hand and run this again" >&2
  exit 1
}

# configure BUILD_DIR [CMAKE ARGUMENT...]: an existing directory keeps what it was configured with, so
# that what has been built stays built.
configure() {
  if [ -f "$1/CMakeCache.txt" ]; then
    cmake -S . -B "$@" >/dev/null
  else
    cmake -S . -B "$1" -G Ninja -DDUET_CUDA=OFF "${@:2}" >/dev/null
  fi
}
