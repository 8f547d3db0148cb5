# Copies a shard to the local disk; ends as rsync does if files are missing.
echo "staging shard $1"
if [ "$1" = 1 ]; then
  echo "staging: some files could not be copied (code 23: partial transfer)" >&2
  exit 23
fi
