#!/bin/sh
# As root, like the hub's: makes the cluster and its database, then runs the server as postgres.
set -eu
data=/var/lib/postgresql/data
as_postgres() { setpriv --reuid postgres --regid postgres --clear-groups -- "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
  install -m 0600 -o postgres "$POSTGRES_PASSWORD_FILE" /tmp/password
  # shellcheck disable=SC2086
  as_postgres initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile=/tmp/password \
    --auth-local=trust --auth-host=scram-sha-256 --locale=C.UTF-8 $POSTGRES_INITDB_ARGS
  rm /tmp/password
  echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
  as_postgres pg_ctl --pgdata="$data" --wait -o '-c listen_addresses=' start
  as_postgres psql --username="$POSTGRES_USER" --dbname=postgres \
    --command="CREATE DATABASE \"$POSTGRES_DB\""
  as_postgres pg_ctl --pgdata="$data" --wait --mode=fast stop
fi
exec setpriv --reuid postgres --regid postgres --clear-groups -- \
  postgres -D "$data" -c 'listen_addresses=*'
