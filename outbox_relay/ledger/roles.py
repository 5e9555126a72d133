"""The five roles: their names, and how each platform wants them made.

What differs between managed services is the capture role's right to replicate, who may give it, and the name of the
parameter that makes wal_level logical. Everything else is the same SQL everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum

import psycopg
from psycopg import sql

from outbox_relay.errors import Refused


class Platform(StrEnum):
    """Who runs the PostgreSQL."""

    OWN = "own"
    RDS = "rds"
    CLOUDSQL = "cloudsql"
    CNPG = "cnpg"


@dataclass(frozen=True, slots=True)
class RoleNames:
    """The names of the five roles. Roles are cluster-wide, so two ledgers in one cluster need distinct names."""

    agent: str = "outbox_agent"
    relay: str = "outbox_relay"
    reconciler: str = "outbox_reconciler"
    operator: str = "outbox_operator"
    capture: str = "outbox_capture"

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield (part, role name)."""
        for field in fields(self):
            yield field.name, getattr(self, field.name)


_PREPARATION = {
    Platform.OWN: """\
-- To be run by a superuser. Where Kafka is used, once, with a restart: alter system set wal_level = 'logical';
-- and max_slot_wal_keep_size, so that a connector that is away cannot fill the disk.
""",
    Platform.RDS: """\
-- Amazon RDS and Aurora, to be run by the master user. Where Kafka is used, in the parameter group (Aurora: of the
-- cluster): rds.logical_replication = 1, with a reboot; wal_level is then logical and cannot be set by itself.
-- Set max_slot_wal_keep_size there too. REPLICATION cannot be given; membership in rds_replication stands for it.
""",
    Platform.CLOUDSQL: """\
-- Cloud SQL, to be run by a member of cloudsqlsuperuser, such as the user postgres. Where Kafka is used, the flag
-- cloudsql.logical_decoding = on, with a restart; wal_level is then logical and cannot be set by itself.
-- Set max_slot_wal_keep_size as a flag too. The capture role itself need not be a cloudsqlsuperuser. Nobody logs in
-- there without a password: give each role one (alter role ... password).
""",
}

_CNPG_HEAD = """\
# CloudNativePG: for the Cluster resource; the operator makes the roles, each with the password of a secret of type
# kubernetes.io/basic-auth. wal_level is logical already. Then, as the database's owner: outbox migrate --roles=existing
spec:
  postgresql:
    parameters:
      max_slot_wal_keep_size: "10GB"   # a connector that is away must not fill the volume
  # From PostgreSQL 17 and operator 1.27 on, so that a promoted standby has the slot (with sync_replication_slots and
  # hot_standby_feedback above): replicationSlots: {highAvailability: {synchronizeLogicalDecoding: true}}
  managed:
    roles:
"""


def quoted(name: str) -> str:
    """A role's name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def create_roles_sql(roles: RoleNames, platform: Platform = Platform.OWN) -> str:
    """Return what makes the roles, for whoever may: SQL, or for CloudNativePG a part of the Cluster resource."""
    if platform is Platform.CNPG:
        return _CNPG_HEAD + "".join(_cnpg_role(part, name) for part, name in roles.items())
    lines = [f"create role {quoted(name)} login{_option(part, platform)};" for part, name in roles.items()]
    if platform is Platform.RDS:
        lines.append(f"grant rds_replication to {quoted(roles.capture)};")
    return _PREPARATION[platform] + "\n".join(lines) + "\n"


def _option(part: str, platform: Platform) -> str:
    return " replication" if part == "capture" and platform is not Platform.RDS else ""


def _cnpg_role(part: str, name: str) -> str:
    secret = name.lower().replace("_", "-")
    lines = [f"      - name: {json.dumps(name)}", "        login: true"]
    lines += ["        replication: true"] if part == "capture" else []
    return "\n".join([*lines, f"        passwordSecret: {{name: {json.dumps(secret)}}}"]) + "\n"


def make_roles(
    connection: psycopg.Connection, roles: RoleNames, passwords: Mapping[str, str], platform: Platform
) -> None:
    """Make the roles that are missing, and give passwords. Raises Refused where only the operator may make roles."""
    if platform is Platform.CNPG:
        hint = "outbox migrate --platform=cnpg --roles=print, apply that, then --roles=existing"
        raise Refused("CloudNativePG makes roles from its Cluster resource, not by SQL", hint=hint)
    for part, name in roles.items():
        identifier = sql.Identifier(name)
        found = connection.execute("select 1 from pg_roles where rolname = %s", [name]).fetchone()
        if found is None:
            option = sql.SQL(" replication" if _option(part, platform) else "")
            # Roles belong to the whole server: another ledger's migration may make the same ones at this moment.
            with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation), connection.transaction():
                connection.execute(sql.SQL("create role {} login{}").format(identifier, option))
        if part in passwords:
            statement = sql.SQL("alter role {} password {}").format(identifier, sql.Literal(passwords[part]))
            connection.execute(statement)
    if platform is Platform.RDS:
        connection.execute(sql.SQL("grant rds_replication to {}").format(sql.Identifier(roles.capture)))
