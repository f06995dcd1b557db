#!/bin/sh
# Start the server of the agent. What it needs and nobody gave is made at the first start, in the data volume.
set -eu
umask 077
own="$PERSISTENT_DIR/.hermes"
settings="$own/config/hermes_exec/hermes.toml"
mkdir -p "$own/config/hermes_exec" "$PERSISTENT_DIR/workspace"
[ -e "$settings" ] || cp /opt/hermes/hermes.toml "$settings"
if [ "$#" -gt 0 ]; then
    exec "$@"
fi
if [ -z "${HERMES_EXEC_SERVER_TOKEN:-}" ]; then
    token="$own/server-token"
    if [ ! -s "$token" ]; then
        od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > "$token.new"
        mv "$token.new" "$token"
        echo "the server's token is in $token"
    fi
    set -- --token-from "file:$token"
fi
exec hermes-exec serve --host 0.0.0.0 --port 8080 --approve "${HERMES_APPROVE:-deny}" "$@"
