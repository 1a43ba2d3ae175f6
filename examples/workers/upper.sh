#!/bin/sh
# A worker that is a Unix filter: text in, text out. The role is `upper` unless another is named.
# Needs EXEAT_URL and an EXEAT_KEY with scope `worker` for that role.
set -eu
exec exeat worker --role "${1:-upper}" --text -- tr a-z A-Z
