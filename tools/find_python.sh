#!/bin/sh
# Print the first Python 3.11 or newer that can make virtual environments.
# Each candidate is run, since a name on PATH may be a shim with nothing behind it.
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 python; do
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
    >/dev/null 2>&1; then
    echo "$candidate"
    exit 0
  fi
done
echo "error: no Python 3.11 or newer with the venv module was found;" >&2
echo "  install one (Debian and Ubuntu: apt install python3 python3-venv)," >&2
echo "  or name it: make PYTHON=/path/to/python3.12 ..." >&2
exit 1
