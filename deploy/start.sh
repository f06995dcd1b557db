#!/bin/sh
# Start the server of the agent. Without a token of its user's it gets one of its own, kept in the data volume.
set -eu
umask 077
if [ "$#" -gt 0 ]; then
    exec "$@"
fi
if [ -z "${HERMES_EXEC_SERVER_TOKEN:-}" ]; then
    file="$PERSISTENT_DIR/.hermes/server-token"
    if [ ! -s "$file" ]; then
        mkdir -p "$PERSISTENT_DIR/.hermes"
        od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > "$file.new"
        mv "$file.new" "$file"
        echo "the server's token is in $file"
    fi
    set -- --token-from "file:$file"
fi
exec /opt/hermes/bin/hermes-exec serve --host 0.0.0.0 --port 8080 "$@"
